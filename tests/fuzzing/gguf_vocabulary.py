"""Mutations of the vocabulary in a GGUF file: tokens, kinds, scores, merges, ids with a role, pre-tokenizers."""

from __future__ import annotations

from random import Random
from struct import pack

from .gguf_parts import BOOL, FLOAT32, INT32, TEXT, UINT32, UINT64, Parts, array_of, numbers, text, texts
from .interesting import BROKEN_UTF8, TEXTS

MERGES = [
    b"",
    b" ",
    b"a",
    b"a b c",
    b"nobody knows",
    b"t\xff he",
    b" he",
    b"he ",
    b"\xe2\x96\x81 t",
    b"a" * 3000 + b" b",
]
ROLES = [b"bos", b"eos", b"eot", b"unknown", b"padding", b"fim_pre", b"seperator"]


def tokens_changed(random: Random, parts: Parts) -> None:
    """Invalid UTF-8, the same token twice, empty or long ones, ones that mean something elsewhere."""
    tokens = strings(parts, b"tokens")
    new = [
        *(t.encode() for t in TEXTS),
        *BROKEN_UTF8,
        b"<0x00>",
        b"<0xZZ>",
        b"<0xff>",
        b"<|im_end|>",
        b"\xe2\x96\x81" * 9,
    ]
    for _ in range(random.choice([1, 1, 2, 20])):
        if tokens:
            tokens[random.randrange(len(tokens))] = random.choice([*new, random.choice(tokens)])
    parts.set(b"tokenizer.ggml.tokens", 9, texts(tokens))


def number_of_tokens(random: Random, parts: Parts) -> None:
    """More or fewer tokens than kinds, scores and rows of the embedding."""
    tokens = strings(parts, b"tokens")
    more = [f"token {index}".encode() for index in range(random.choice([1, 2, 500]))]
    tokens = random.choice([tokens + more, tokens[:-1], tokens[:1], []])
    parts.set(b"tokenizer.ggml.tokens", 9, texts(tokens))
    if random.random() < 0.5:
        parts.set(b"tokenizer.ggml.scores", 9, numbers(FLOAT32, [0.0] * len(tokens)))
        parts.set(b"tokenizer.ggml.token_type", 9, numbers(INT32, [1] * len(tokens)))


def kinds_changed(random: Random, parts: Parts) -> None:
    count = len(strings(parts, b"tokens"))
    kinds = random.choice([[0], [3], [6], [2], [4], [-1], [7], [1 << 30], [-(1 << 31)], [1, 2, 3, 4, 5, 6]])
    parts.set(b"tokenizer.ggml.token_type", 9, numbers(INT32, [random.choice(kinds) for _ in range(count)]))


def scores_changed(random: Random, parts: Parts) -> None:
    count = len(strings(parts, b"tokens"))
    scores = random.choice([[float("nan")], [float("inf")], [float("-inf"), 0.0], [0.0], [-1e38, 1e38], [1e-45]])
    parts.set(b"tokenizer.ggml.scores", 9, numbers(FLOAT32, [random.choice(scores) for _ in range(count)]))


def merges_changed(random: Random, parts: Parts) -> None:
    """Merges that name no token, of one side or of three, not UTF-8, the same ones often."""
    merges = strings(parts, b"merges")
    at = random.randrange(len(merges) + 1)
    merges[at:at] = [random.choice(MERGES) for _ in range(random.choice([1, 1, 3]))]
    parts.set(b"tokenizer.ggml.merges", 9, texts(random.choice([merges, merges, merges[::-1], merges * 3, []])))


def role_changed(random: Random, parts: Parts) -> None:
    value = random.choice([0, 1, 2, 127, 128, 129, 399, 400, 1 << 31, (1 << 32) - 1])
    kind = random.choice([UINT32, UINT32, INT32, UINT64, BOOL])
    size = {UINT32: 4, INT32: 4, UINT64: 8, BOOL: 1}[kind]
    key = b"tokenizer.ggml." + random.choice(ROLES) + b"_token_id"
    parts.set(key, kind, value.to_bytes(8, "little")[:size])


def flags_changed(random: Random, parts: Parts) -> None:
    key = random.choice([b"add_bos_token", b"add_eos_token", b"add_space_prefix", b"remove_extra_whitespaces"])
    kind, value = random.choice([(BOOL, b"\0"), (BOOL, b"\1"), (UINT32, pack("<I", 1)), (TEXT, text(b"true"))])
    parts.set(b"tokenizer.ggml." + key, kind, value)


def another_model(random: Random, parts: Parts) -> None:
    names = [b"llama", b"gpt2", b"gemma4", b"bert", b"t5", b"rwkv", b"none", b"no_vocab", b"", b"\xff"]
    parts.set(b"tokenizer.ggml.model", TEXT, text(random.choice(names)))
    if random.random() < 0.5:
        pre = random.choice([b"default", b"llama-bpe", b"qwen2", b"smollm", b"gpt-2", b"nobody", b"", b"\xc3"])
        parts.set(b"tokenizer.ggml.pre", TEXT, text(pre))


def strings(parts: Parts, key: bytes) -> list[bytes]:
    """An array of texts of the vocabulary; [] where there is none."""
    pair = parts.pair(b"tokenizer.ggml." + key)
    if pair is None or pair.kind != 9:
        return []
    kind, values = array_of(pair.value)
    return list(values) if kind == TEXT else []


MUTATIONS = {
    function.__name__: function
    for function in (
        tokens_changed,
        number_of_tokens,
        kinds_changed,
        scores_changed,
        merges_changed,
        role_changed,
        flags_changed,
        another_model,
    )
}
