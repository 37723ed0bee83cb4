"""GGUF vocabularies: ids, bytes and ends are llama.cpp's own, kept in tests/fixtures/tokenizers."""

from __future__ import annotations

import codecs
import json
import random
import re
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizer_battery import WRITTEN, bytes_digest, digest, document, random_texts

from ringlet.core.errors import FormatError, RingletError
from ringlet.tokenization.tokenizer import Tokenizer

FIXTURES = Path(__file__).parent / "fixtures" / "tokenizers"
VOCABULARIES = json.loads((FIXTURES / "vocabularies.json").read_text(encoding="utf-8"))
EXPECTED = json.loads((FIXTURES / "llama_cpp_ids.json").read_text(encoding="utf-8"))
SMALL = [name for name, case in EXPECTED.items() if "vocabulary" in case]
KINDS = ["byte_pairs", "sentencepiece", "space_mark_pairs"]


def metadata(kind: str, **changes: object) -> dict[str, object]:
    """A small vocabulary as a GGUF file's metadata has it; a change to None takes the key away."""
    values: dict[str, object] = {"pre": "gpt-2", **VOCABULARIES[kind], **changes}
    values = {key: value for key, value in values.items() if value is not None}
    for key, dtype in (("token_type", np.int32), ("scores", np.float32)):
        if isinstance(values.get(key), list):
            values[key] = np.array(values[key], dtype)
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


def small(name: str) -> Tokenizer:
    return Tokenizer.from_gguf(metadata(EXPECTED[name]["vocabulary"], **EXPECTED[name]["changes"]))


def assert_as_llama_cpp(tokenizer: Tokenizer, expected: dict) -> None:
    """Ids of the battery in all four modes, the ids that end a generation, control tokens, and every token's bytes."""
    texts = [*WRITTEN.values(), *random_texts(expected["n_random"])]
    written = [digest([tokenizer.encode(text, add_special=False)])[:8] for text in WRITTEN.values()]
    wrong = [name for name, ours, theirs in zip(WRITTEN, written, expected["written"], strict=True) if ours != theirs]
    assert wrong == []
    for mode in ("00", "01", "10", "11"):
        add_special, parse_special = mode[0] == "1", mode[1] == "1"
        assert digest(tokenizer.encode(text, add_special, parse_special) for text in texts) == expected[mode], mode
    assert sorted(tokenizer.eos_ids) == expected["eos_ids"]
    everything = range(tokenizer.n_tokens)
    assert bytes_digest(map(tokenizer._codec.token_bytes, everything)) == expected["token_bytes"]
    assert digest([sorted(tokenizer.special_ids)]) == expected["special_ids"]


@pytest.mark.parametrize("name", SMALL)
def test_small_vocabularies(name):
    assert_as_llama_cpp(small(name), EXPECTED[name])


@pytest.mark.parametrize("name", [name for name in SMALL if "document" in EXPECTED[name]])
def test_a_document_of_one_megabyte(name):
    text, tokenizer = document(), small(name)
    ids = tokenizer.encode(text, add_special=False)
    assert digest([ids]) == EXPECTED[name]["document"]


@pytest.mark.real_model
@pytest.mark.parametrize("name", ["smollm2", "gemma"])
def test_real_vocabularies(name, request):
    tokenizer = Tokenizer.from_pretrained(request.getfixturevalue(f"{name}_path"))
    assert_as_llama_cpp(tokenizer, EXPECTED[name])
    assert digest([tokenizer.encode(document(), add_special=False)]) == EXPECTED[name]["document"]


def test_a_file_that_holds_only_a_vocabulary(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "vocabulary.gguf", "llama")
    for key, value in VOCABULARIES["byte_pairs"].items():
        add = {str: writer.add_string, int: writer.add_uint32, list: writer.add_array}[type(value)]
        add(f"tokenizer.ggml.{key}", value)
    writer.add_string("tokenizer.ggml.pre", "smollm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert_as_llama_cpp(Tokenizer.from_pretrained(tmp_path / "vocabulary.gguf"), EXPECTED["byte_pairs smollm"])


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_becomes_a_control_token(kind):
    tokenizer = Tokenizer.from_gguf(metadata(kind))
    special = [tokenizer.piece(i) for i in sorted(tokenizer.special_ids)]
    for text in [*special, "".join(special), " ".join(special)]:
        assert not tokenizer.special_ids & set(tokenizer.encode(text, add_special=False))
    ids = tokenizer.encode("".join(special), add_special=False, parse_special=True)
    assert ids == sorted(tokenizer.special_ids)


def test_merges_may_pass_through_a_control_token_but_not_end_in_it():
    tokenizer = Tokenizer.from_gguf(metadata("sentencepiece"))
    # llama.cpp's own answer: "</s>" is merged first, then with "<" into a token of its own.
    pieces = [tokenizer.piece(i) for i in tokenizer.encode("||</s></s>", add_special=False)]
    assert pieces == [" ", "|", "|", "</s><", "/s>"]
    pieces = [tokenizer.piece(i) for i in tokenizer.encode("</s>", add_special=False)]
    assert pieces[0] == " "
    assert "".join(pieces[1:]) == "</s>"
    assert "</s>" not in pieces


@pytest.mark.parametrize("kind", KINDS)
def test_decode_gives_the_text_back(kind):
    tokenizer = Tokenizer.from_gguf(metadata(kind, add_space_prefix=False))
    for text in [*WRITTEN.values(), *random_texts(200, seed=5)]:
        if "▁" in text or (kind == "byte_pairs" and "\x06" in text):
            continue  # a space mark comes back as a space; this vocabulary has no token for byte 6
        assert tokenizer.decode(tokenizer.encode(text)) == text


def text_of(data: bytes, kind: str) -> str:
    """U+FFFD for each part of a character, or for each byte where the vocabulary falls back to bytes."""
    if kind == "byte_pairs":
        return data.decode(errors="replace")
    return re.sub("[\udc80-\udcff]", "\ufffd", data.decode(errors="surrogateescape"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_joins_to_its_tokens_and_gives_each_character_at_once(kind):
    tokenizer = Tokenizer.from_gguf(metadata(kind))
    rng = random.Random(6)
    for _ in range(300):
        ids = [rng.randrange(tokenizer.n_tokens) for _ in range(12)]
        stream, reference, given, data = (
            tokenizer.stream_decoder(),
            codecs.getincrementaldecoder("utf-8")("ignore"),
            "",
            b"",
        )
        for token_id in ids:
            token = b"" if token_id in tokenizer.special_ids else tokenizer._codec.token_bytes(token_id)
            piece = stream.push(token_id)
            assert piece.replace("\ufffd", "") == reference.decode(token).replace("\ufffd", "")
            given, data = given + piece, data + token
        assert given + stream.flush() == text_of(data, kind)


def test_the_space_before_a_text_goes_at_decoding_and_stays_in_a_stream():
    tokenizer = Tokenizer.from_gguf(metadata("sentencepiece"))
    ids = tokenizer.encode("a", add_special=False)
    stream = tokenizer.stream_decoder()
    assert tokenizer.decode(ids) == "a"
    assert "".join(map(stream.push, ids)) == " a"


def test_ends_that_the_file_names_and_ends_by_their_text():
    tokens = ["<eos>", "a", "b", "<|end|>", "<|return|>", "<|call|>", "<|eom_id|>", "<|fim_pad|>", "c"]
    kinds = [3, 1, 1, 3, 3, 3, 1, 1, 1]
    base = {"tokens": tokens, "token_type": kinds, "merges": [], "bos_token_id": None, "eos_token_id": 2}
    tokenizer = Tokenizer.from_gguf(metadata("byte_pairs", **base, eot_token_id=8))
    assert tokenizer.eos_ids == {0, 2, 4, 5, 6, 7, 8}, "beside <|return|> and <|call|>, <|end|> ends a part only"
    assert 7 in tokenizer.special_ids, "a known control token is one whatever the file calls it"
    assert tokenizer.bos_id is None


def test_chat_templates():
    values = {**metadata("byte_pairs"), "tokenizer.chat_template": "a", "tokenizer.chat_template.tool_use": "b"}
    tokenizer = Tokenizer.from_gguf(values)
    assert tokenizer.chat_template == "a"
    assert tokenizer.chat_templates == {"default": "a", "tool_use": "b"}


def test_ids_without_a_token():
    tokenizer = Tokenizer.from_gguf(metadata("byte_pairs"))
    for token_id in (-1, tokenizer.n_tokens):
        assert not tokenizer.has_token(token_id)
        assert tokenizer.decode([token_id]) == ""
        with pytest.raises(RingletError, match="has no token"):
            tokenizer.piece(token_id)


N = len(VOCABULARIES["byte_pairs"]["tokens"])


@pytest.mark.parametrize(
    ("kind", "changes", "named"),
    [
        ("byte_pairs", {"model": None}, "model is missing"),
        ("byte_pairs", {"model": 3}, "model is of type int"),
        ("byte_pairs", {"model": "bert"}, "'bert'"),
        ("byte_pairs", {"pre": "nonesuch"}, "'nonesuch'"),
        ("byte_pairs", {"tokens": None}, "tokens"),
        ("byte_pairs", {"tokens": []}, "tokens"),
        ("byte_pairs", {"tokens": [1, 2]}, "tokens"),
        ("byte_pairs", {"tokens": "abc"}, "tokens"),
        ("byte_pairs", {"tokens": ["a", "b", "a"]}, "'a' twice"),
        ("byte_pairs", {"token_type": [1, 1]}, f"2 entries for {N} tokens"),
        ("byte_pairs", {"token_type": np.ones(N)}, "token_type"),
        ("byte_pairs", {"token_type": "normal"}, "token_type"),
        ("byte_pairs", {"merges": None}, "merges"),
        ("byte_pairs", {"merges": [b"a b"]}, "merges"),
        ("byte_pairs", {"merges": ["ab"]}, "'ab'"),
        ("byte_pairs", {"merges": ["a no-token"]}, "'a no-token'"),
        ("byte_pairs", {"eos_token_id": N}, "eos_token_id"),
        ("byte_pairs", {"bos_token_id": -1}, "bos_token_id"),
        ("byte_pairs", {"bos_token_id": True}, "bos_token_id"),
        ("byte_pairs", {"eot_token_id": "2"}, "eot_token_id"),
        ("byte_pairs", {"add_bos_token": 1}, "add_bos_token"),
        ("byte_pairs", {"add_bos_token": True, "bos_token_id": None}, "bos_token_id"),
        ("sentencepiece", {"scores": None}, "scores is missing"),
        ("sentencepiece", {"scores": [0.5]}, "1 entries"),
        ("sentencepiece", {"scores": [float("nan")] * len(VOCABULARIES["sentencepiece"]["tokens"])}, "no number"),
    ],
)
def test_a_broken_vocabulary_is_named_in_one_line(kind, changes, named):
    with pytest.raises(FormatError) as caught:
        Tokenizer.from_gguf(metadata(kind, **changes), name="model.gguf")
    assert str(caught.value).startswith("model.gguf: ")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sentencepiece_vocabulary_without_bytes_refuses_what_it_cannot_spell():
    tokens = ["<s>", "</s>", "▁", "a"]
    changes = {"tokens": tokens, "token_type": [3, 3, 1, 1], "scores": [0.0] * 4}
    tokenizer = Tokenizer.from_gguf(
        metadata("sentencepiece", **changes, bos_token_id=0, eos_token_id=1, unknown_token_id=None)
    )
    with pytest.raises(RingletError, match="no token for"):
        tokenizer.encode("ab")
