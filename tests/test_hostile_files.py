"""Kinds of files that have broken readers of GGUF and safetensors in public: each is refused, or read as it says.

What a file may cost in memory is tried by `test_fuzzing`; here are the limits that keep it so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from struct import pack

import numpy as np
import pytest
from fuzzing.gguf_parts import (
    ARRAY,
    BOOL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    TEXT,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Pair,
    Parts,
    Walk,
    array_of,
    numbers,
    text,
    texts,
)  # fmt: skip
from whole_models import TOKENS, write_whole_directory, write_whole_gguf

from ringlet.core.errors import FormatError, RingletError
from ringlet.core.formats.gguf import MOST_TENSORS, open_gguf
from ringlet.core.formats.gguf_metadata import MOST_ARRAYS, MOST_PAIRS
from ringlet.core.formats.json_object import MOST_VALUES, parse_json_object
from ringlet.core.formats.safetensors import LONGEST_NAME, open_safetensors
from ringlet.core.pipeline import Pipeline
from ringlet.tokenization.gguf_vocabulary import MOST_MERGES, MOST_TOKENS, MOST_WHOLE_TOKENS
from ringlet.tokenization.hostile_json import check_text
from ringlet.tokenization.tokenizer import Tokenizer

SIZES_THAT_WRAP = {  # multiplied in 64 bits, or padded, or as bytes, each would be small; innermost first, F32
    "a dimension near 2**42 whose stride wraps to 0": [1 << 42, 1 << 20, 4],
    "a dimension near 2**42 beside one": [(1 << 42) + 1, 1 << 22],
    "a product of 2**64": [1 << 32, 1 << 32],
    "bytes that wrap": [1 << 62],
    "a size that wraps only when padded to the alignment": [(1 << 62) - 1],
    "a size that wraps only when padded, in a matrix": [(1 << 61) - 2, 2],
    "four dimensions of 2**16": [1 << 16] * 4,
}


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Walk(write_whole_gguf(tmp_path / "whole.gguf").read_bytes()).parts


def write(parts: Parts, tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(parts.pack())
    return path


def refused(path: Path, call: Callable[[Path], object], words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        call(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("kind", SIZES_THAT_WRAP)
def test_sizes_that_wrap(kind: str, parts: Parts, tmp_path: Path) -> None:
    parts.entries[0].sizes = SIZES_THAT_WRAP[kind]
    parts.entries[0].number = 0
    refused(write(parts, tmp_path), open_gguf, "cut short")


@pytest.mark.parametrize("offset", [(1 << 64) - 32, (1 << 63), (1 << 64) - (1 << 20)])
def test_an_offset_that_wraps_back_into_the_file(offset: int, parts: Parts, tmp_path: Path) -> None:
    parts.entries[3].offset = offset
    refused(write(parts, tmp_path), open_gguf, "cut short")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((UINT32, pack("<I", value)) for value in (0, 3, 24, 33, (1 << 32) - 1)),
        (INT32, pack("<i", -32)),
        (UINT64, pack("<Q", 32)),
        (UINT8, b"\x20"),
        (FLOAT32, pack("<f", 32)),
        (BOOL, b"\1"),
        (TEXT, text(b"32")),
        (ARRAY, numbers(UINT32, [32])),
    ],
)
def test_an_alignment_of_the_wrong_type_or_no_power_of_two(
    kind: int, value: bytes, parts: Parts, tmp_path: Path
) -> None:
    parts.set(b"general.alignment", kind, value)
    refused(write(parts, tmp_path), open_gguf, "general.alignment is .*: a uint32 that is a power of two is needed")


@pytest.mark.parametrize("alignment", [1 << 20, 1 << 31])
def test_an_alignment_that_puts_the_data_beyond_the_file(alignment: int, parts: Parts, tmp_path: Path) -> None:
    parts.set(b"general.alignment", UINT32, pack("<I", alignment))
    refused(write(parts, tmp_path), open_gguf, "no multiple of|cut short")


@pytest.mark.parametrize("count", [5, 6, 64])
def test_more_than_four_dimensions(count: int, parts: Parts, tmp_path: Path) -> None:
    parts.entries[0].sizes = [1] * count
    refused(write(parts, tmp_path), open_gguf, f"{count} dimensions; 4 are possible")


@pytest.mark.parametrize("number", [42, 99, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_an_unknown_type_number_is_no_index(number: int, parts: Parts, tmp_path: Path) -> None:
    parts.entries[0].number = number
    refused(write(parts, tmp_path), open_gguf, f"unknown type {number}")


@pytest.mark.parametrize("more", [1, 2, 1000, MOST_TENSORS, 1 << 32, (1 << 64) // 24, (1 << 64) - 100])
def test_a_tensor_count_too_large_for_this_check_or_the_next(more: int, parts: Parts, tmp_path: Path) -> None:
    parts.counts = (len(parts.entries) + more, len(parts.pairs))
    refused(
        write(parts, tmp_path), open_gguf, "fit|ends inside|possible|bytes long|UTF-8|dimensions|type|holds nothing"
    )


@pytest.mark.parametrize("kind", [UINT8, INT8, UINT16, INT32, INT64, UINT64, FLOAT32, FLOAT64, BOOL])
@pytest.mark.parametrize("key", ["scores", "token_type"])
def test_scores_and_kinds_of_another_width_are_read_as_they_say_or_refused(
    key: str, kind: int, parts: Parts, tmp_path: Path
) -> None:
    """Each element by its declared type, never by the one that a reader assumes."""
    name = f"tokenizer.ggml.{key}".encode()
    parts.set(name, ARRAY, numbers(kind, [1] * len(TOKENS)))
    path = write(parts, tmp_path)
    assert np.asarray(open_gguf(path).metadata[name.decode()]).tolist() == [1] * len(TOKENS)
    is_right = kind != BOOL and (key == "scores" or kind not in (FLOAT32, FLOAT64))
    if is_right:
        assert Tokenizer.from_pretrained(path).n_tokens == len(TOKENS)
    else:
        refused(path, Tokenizer.from_pretrained, f"tokenizer.ggml.{key} is not a list of numbers")


@pytest.mark.parametrize("key", ["scores", "token_type"])
@pytest.mark.parametrize("length", [0, 1, len(TOKENS) - 1, len(TOKENS) + 1, 10 * len(TOKENS)])
def test_scores_and_kinds_of_another_number_than_the_tokens(
    key: str, length: int, parts: Parts, tmp_path: Path
) -> None:
    name = f"tokenizer.ggml.{key}".encode()
    kind, values = array_of(parts.pair(name).value)
    parts.set(name, ARRAY, numbers(kind, (values * 10)[:length]))
    refused(write(parts, tmp_path), Tokenizer.from_pretrained, f"has {length} entries for {len(TOKENS)} tokens")


@pytest.mark.parametrize("size", [1, 127, 129, 1 << 20, (1 << 31) - 1, (1 << 32) - 1])
def test_a_vocabulary_size_that_only_the_header_says(size: int, parts: Parts, tmp_path: Path) -> None:
    parts.set(b"llama.vocab_size", UINT32, pack("<I", size))
    refused(write(parts, tmp_path), lambda path: Pipeline.from_pretrained(path, backend="numpy"), "vocab")


def test_more_tokens_than_the_model_has_rows(parts: Parts, tmp_path: Path) -> None:
    """A prompt whose ids lie beyond the embedding is refused before a kernel sees it."""
    tokens = [token.encode() for token in TOKENS] + [b"\xe2\x96\x81ring", b"ring"]
    parts.set(b"tokenizer.ggml.tokens", ARRAY, texts(tokens))
    parts.set(b"tokenizer.ggml.scores", ARRAY, numbers(FLOAT32, [0.0] * len(tokens)))
    parts.set(b"tokenizer.ggml.token_type", ARRAY, numbers(INT32, [1] * (len(tokens) - 1) + [4]))
    pipe = Pipeline.from_pretrained(write(parts, tmp_path), backend="numpy")
    assert len(tokens) - 1 in pipe.tokenizer.encode("ring")
    with pytest.raises(RingletError, match=r"the token id \d+: the model's vocabulary has 128"):
        pipe.generate("ring", max_tokens=1)


# --- what a file may hold --------------------------------------------------------------------------------------------


def test_more_pairs_tensors_or_arrays_than_any_model_has(tmp_path: Path) -> None:
    data = bytes(40 * MOST_TENSORS + 1000)
    refused(write(Parts([], [], data, counts=(0, MOST_PAIRS + 1)), tmp_path), open_gguf, "metadata pairs; 65536 are")
    refused(write(Parts([], [], data, counts=(MOST_TENSORS + 1, 0)), tmp_path), open_gguf, "tensors; 65536 are")
    half = pack("<IQ", ARRAY, MOST_ARRAYS // 2 + 1) + numbers(UINT8, []) * (MOST_ARRAYS // 2 + 1)
    twice = Parts([Pair(b"a", ARRAY, half), Pair(b"b", ARRAY, half)], [], b"")
    refused(write(twice, tmp_path), open_gguf, "arrays inside arrays, more than 65536 in all")


def test_as_many_pairs_and_arrays_as_are_possible(tmp_path: Path) -> None:
    arrays = pack("<IQ", ARRAY, MOST_ARRAYS) + numbers(UINT8, []) * MOST_ARRAYS
    pairs = [Pair(b"%x" % index, UINT8, b"\1") for index in range(MOST_PAIRS - 1)]
    parts = Parts([Pair(b"arrays", ARRAY, arrays), *pairs], [], b"")
    assert len(open_gguf(write(parts, tmp_path)).metadata) == MOST_PAIRS


def test_more_tokens_or_merges_than_any_vocabulary_has(parts: Parts, tmp_path: Path) -> None:
    parts.set(b"tokenizer.ggml.tokens", ARRAY, texts([b"a"] * (MOST_TOKENS + 1)))
    refused(
        write(parts, tmp_path), Tokenizer.from_pretrained, f"tokens has {MOST_TOKENS + 1} entries: {MOST_TOKENS} are"
    )
    parts.set(b"tokenizer.ggml.tokens", ARRAY, texts([b"%x" % index for index in range(MOST_WHOLE_TOKENS + 1)]))
    parts.set(b"tokenizer.ggml.token_type", ARRAY, numbers(UINT8, [4] * (MOST_WHOLE_TOKENS + 1)))
    refused(write(parts, tmp_path), Tokenizer.from_pretrained, f"more than {MOST_WHOLE_TOKENS} control and user-")
    parts.set(b"tokenizer.ggml.tokens", ARRAY, texts([b"a", b"b"]))
    parts.pairs = [pair for pair in parts.pairs if not pair.key.endswith((b"scores", b"token_type"))]
    parts.set(b"tokenizer.ggml.model", TEXT, text(b"gpt2"))
    parts.set(b"tokenizer.ggml.merges", ARRAY, texts([b"a b"] * (MOST_MERGES + 1)))
    refused(write(parts, tmp_path), Tokenizer.from_pretrained, f"merges has {MOST_MERGES + 1} entries")


@pytest.mark.parametrize("element", [b"0", b"[]", b"{}", b'"ab"', b'{"a":1}'])
def test_json_of_more_values_than_any_model_has(element: bytes, tmp_path: Path) -> None:
    """In config.json, in a safetensors header and in tokenizer.json: it is not parsed."""
    bomb = b'{"a":[' + (element + b",") * (MOST_VALUES * 5 // 4) + element + b"]}"
    with pytest.raises(FormatError, match="config: it holds so many values"):
        parse_json_object(bomb, "config")
    folder = write_whole_directory(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(pack("<Q", len(bomb)) + bomb)
    refused(folder / "model.safetensors", open_safetensors, "values|does not fit")
    (folder / "tokenizer.json").write_bytes(bomb)
    refused(folder / "tokenizer.json", lambda path: Tokenizer.from_pretrained(path.parent), "so many values")


# --- what stands in errors -------------------------------------------------------------------------------------------

LONG = "a" * 100_000 + "\x1b[31m\n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("general.architecture", LONG),
        ("tokenizer.ggml.model", LONG),
        ("llama.rope.scaling.type", LONG),
        ("llama.nobody\x1b[31m\n", "x"),
    ],
)
def test_a_file_s_long_and_unprintable_texts_are_shown_short_and_escaped(
    key: str, value: str, parts: Parts, tmp_path: Path
) -> None:
    parts.set(key.encode(), TEXT, text(value.encode()))
    path = write(parts, tmp_path)
    with pytest.raises(FormatError) as caught:
        Pipeline.from_pretrained(path, backend="numpy")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000 + len(str(path))


@pytest.mark.parametrize(
    "entry",
    [
        {LONG: {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}},
        {"w": {"dtype": LONG, "shape": [1], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [1 << 63] * 9000, "data_offsets": [0, 4]}},
        {"w" * (LONGEST_NAME + 1): {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [1 << 62] * 64, "data_offsets": [0, (1 << 63) - 1]}},
    ],
)
def test_a_safetensors_entry_that_is_long_or_unprintable(entry: dict, tmp_path: Path) -> None:
    header = json.dumps(entry).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack("<Q", len(header)) + header + bytes(8))
    refused(path, open_safetensors, "damaged|cannot have")


@pytest.mark.parametrize("number", [-1, 1 << 31, 1 << 32, 1 << 63, 10**300])
@pytest.mark.parametrize("key", ["eos_token_id", "bos_token_id"])
def test_an_id_of_an_end_that_no_vocabulary_reaches(key: str, number: int, tmp_path: Path) -> None:
    folder = write_whole_directory(tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({key: [1, number]}))
    refused(folder, Tokenizer.from_pretrained, f"generation_config.json: {key} is .*: a token id")


# --- tokenizer.json, which a library reads ---------------------------------------------------------------------------


def doubling(times: int) -> dict:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {"type": "Sequence", "normalizers": [step] * times}


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("normalizer", doubling(30), "makes a text over 4096 times longer"),
        ("normalizer", {"type": "Sequence", "normalizers": [doubling(7), doubling(7)]}, "makes a text over 4096"),
        (
            "normalizer",
            {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "b" * 5000},
            "makes a text over 4096",
        ),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "/////w=="}, "charsmap is cut short"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAEAAAAAAAA="}, "charsmap is cut short"),
    ],
)
def test_a_tokenizer_json_that_takes_memory_by_what_it_does(part: str, value: dict, words: str, tmp_path: Path) -> None:
    folder = write_whole_directory(tmp_path / "model")
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {part: value}))
    refused(path, lambda path: Tokenizer.from_pretrained(path.parent), words)


def test_a_key_that_hides_from_these_checks(tmp_path: Path) -> None:
    folder = write_whole_directory(tmp_path / "model")
    path = folder / "tokenizer.json"
    value = {"type": "Precompiled", "precompiled_charsmap": "/////w=="}
    document = json.dumps(json.loads(path.read_text()) | {"normalizer": value})
    path.write_text(document.replace('"precompiled_charsmap"', r'"pr\u0065compiled_charsmap"'))
    refused(path, lambda path: Tokenizer.from_pretrained(path.parent), "letters that are escaped")


def test_normalizers_that_models_have(tmp_path: Path) -> None:
    """Spaces become marks, words get one, and a backslash before a u in a token is no escape."""
    folder = write_whole_directory(tmp_path / "model")
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    document["normalizer"] = doubling(4)
    document["model"]["vocab"]["\\u0041"] = document["model"]["vocab"].pop("t")
    path.write_text(json.dumps(document))
    assert Tokenizer.from_pretrained(folder).token_id("\\u0041") is not None


@pytest.mark.parametrize("number", [1 << 22, 1 << 31, (1 << 32) - 1])
def test_a_token_of_an_id_far_beyond_the_others(number: int, tmp_path: Path) -> None:
    """The library would take four bytes for each id that it skips."""
    folder = write_whole_directory(tmp_path / "model")
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    document["model"]["vocab"]["t"] = number
    path.write_text(json.dumps(document))
    refused(path, lambda path: Tokenizer.from_pretrained(path.parent), f"a token has the id {number}")


def test_a_layer_type_as_long_as_a_book(tmp_path: Path) -> None:
    folder = write_whole_directory(tmp_path / "model", "qwen2_window")
    config = json.loads((folder / "config.json").read_text())
    config["layer_types"] = [LONG] * config["num_hidden_layers"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(FormatError, match="layer_types") as caught:
        Pipeline.from_pretrained(folder, backend="numpy")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_an_array_in_place_of_an_id(parts: Parts, tmp_path: Path) -> None:
    parts.set(b"tokenizer.ggml.eos_token_id", ARRAY, numbers(FLOAT32, [1.0] * 64))
    refused(write(parts, tmp_path), Tokenizer.from_pretrained, "eos_token_id is array.*: an id from 0 to 127")


def test_the_largest_vocabulary_fits_as_the_library_saves_it() -> None:
    """Of Gemma's size: tokens and merges, a line for each value."""
    tokens = b",\n".join(b'      "token%d": %d' % (index, index) for index in range(262_144))
    merges = b",\n".join([b'      [\n        "abc",\n        "def"\n      ]'] * 514_906)
    check_text(
        b'{\n  "model": {\n    "vocab": {\n' + tokens + b'\n    },\n    "merges": [\n' + merges + b"\n    ]\n  }\n}",
        "it",
    )
    with pytest.raises(FormatError, match=r"^it: it holds so many values .* indented"):
        check_text(b"[" + b"[0,0]," * 514_906 + b"0]", "it")
