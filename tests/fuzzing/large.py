"""Files of tens of megabytes that are valid, or begin so, and mean much more memory than they take on disk."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import PurePath
from random import Random
from struct import pack

from .gguf import walk
from .gguf_parts import ARRAY, FLOAT32, INT32, UINT8, Entry, Pair, Parts, numbers, text, texts
from .safetensors_header import join, split

SIZE = 40 << 20  # bytes, about


def gguf_with(change: Callable[[Random, Parts], None]) -> Callable[[Random, bytes], bytes]:
    def mutation(random: Random, data: bytes) -> bytes:
        parts = deepcopy(walk(data).parts)
        change(random, parts)
        return parts.pack()

    return mutation


def many_texts(random: Random, parts: Parts) -> None:
    """In a list that nobody reads."""
    length = random.choice([0, 1, 20])
    parts.pairs.append(Pair(b"tokenizer.ggml.nobody", ARRAY, texts([b"a" * length] * (SIZE // (8 + length)))))


def many_tokens(random: Random, parts: Parts) -> None:
    tokens = [b"%x" % index for index in range(SIZE // 14)]
    parts.set(b"tokenizer.ggml.tokens", ARRAY, texts(tokens))
    parts.set(b"tokenizer.ggml.token_type", ARRAY, numbers(INT32, [random.choice([1, 4, 3])] * len(tokens)))
    parts.set(b"tokenizer.ggml.scores", ARRAY, numbers(FLOAT32, [0.0] * len(tokens)))


def many_merges(random: Random, parts: Parts) -> None:
    parts.set(b"tokenizer.ggml.merges", ARRAY, texts([b"%x a" % index for index in range(SIZE // 16)]))


def many_pairs(random: Random, parts: Parts) -> None:
    count = SIZE // 18
    parts.pairs += [Pair(b"%x" % index, UINT8, b"\1") for index in range(count)]


def many_arrays(random: Random, parts: Parts) -> None:
    """Empty arrays in one array."""
    count = SIZE // 12
    parts.pairs.append(Pair(b"nested", ARRAY, pack("<IQ", ARRAY, count) + numbers(UINT8, []) * count))


def many_tensors(random: Random, parts: Parts) -> None:
    count = SIZE // 40
    parts.entries += [Entry(b"%x" % index, [1], 0, (index % 1000) * 32) for index in range(count)]


def long_text(random: Random, parts: Parts) -> None:
    """Of characters that take four times their bytes in memory."""
    value = text(("a" * SIZE + random.choice(["", "我", "\U0010ffff"])).encode())
    parts.set(random.choice([b"general.name", b"tokenizer.chat_template", b"tokenizer.ggml.model"]), 8, value)


def json_of(element: bytes) -> Callable[[Random, bytes], bytes]:
    """An object with one list of so many elements that it has SIZE bytes, or nearly as many as config.json may have."""

    def mutation(random: Random, data: bytes) -> bytes:
        size = random.choice([(1 << 24) - 1000, SIZE])
        return data.rstrip()[:-1] + b',"large":[' + (element + b",") * (size // (len(element) + 1)) + element + b"]}"

    return mutation


def tokenizer_of(element: bytes) -> Callable[[Random, bytes], bytes]:
    """A tokenizer.json with such a list where one belongs."""

    def mutation(random: Random, data: bytes) -> bytes:
        name = random.choice([b'"added_tokens":', b'"merges":', b'"vocab":'])
        new = name + b" [" + (element + b",") * (SIZE // (len(element) + 1)) + element + b'], "x":'
        return data.replace(b": ", b":").replace(name, new, 1)

    return mutation


def header_of(element: bytes) -> Callable[[Random, bytes], bytes]:
    """A safetensors header with one such list."""

    def mutation(random: Random, data: bytes) -> bytes:
        return join(b'{"a":[' + (element + b",") * (SIZE // (len(element) + 1)) + element + b"]}", split(data)[1])

    return mutation


def many_entries(random: Random, data: bytes) -> bytes:
    entry = '"%x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    return join(b"{" + ",".join(entry % index for index in range(SIZE // 60)).encode() + b"}", split(data)[1])


ELEMENTS = {
    "lists": b"[]",
    "objects": b"{}",
    "numbers": b"7",
    "floats": b"1.5",
    "texts": b'"ab"',
    "small objects": b'{"a":1}',
}
GGUF = {
    function.__name__: gguf_with(function)
    for function in (many_texts, many_tokens, many_merges, many_pairs, many_arrays, many_tensors, long_text)
}
JSON = {f"JSON of many {name}": json_of(element) for name, element in ELEMENTS.items()}
TOKENIZERS = {f"tokenizer of many {name}": tokenizer_of(element) for name, element in ELEMENTS.items()}
TOKENIZERS |= {
    "tokenizer of many pairs": tokenizer_of(b'["a","b"]'),
    "tokenizer of many merges": tokenizer_of(b'"a b"'),
    "tokenizer of many scores": tokenizer_of(b'["a",1.5]'),
}
HEADERS = {f"header of many {name}": header_of(element) for name, element in ELEMENTS.items()}
HEADERS["many_entries"] = many_entries
LARGE = {**GGUF, **JSON, **TOKENIZERS, **HEADERS}


def names_for(file: str) -> list[str]:
    kinds = {".gguf": GGUF, ".safetensors": HEADERS}
    usual = TOKENIZERS if file == "tokenizer.json" else JSON
    return list(kinds.get(PurePath(file).suffix, usual))
