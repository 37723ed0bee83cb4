"""Mutations of tokenizer.json: ids, merges and added tokens that contradict each other, and patterns that never end."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from .interesting import TEXTS
from .json_values import value_changed
from .plain_bytes import Mutation

IDS = [-1, 0, 1, 127, 128, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 64, 0.5, "0", None]
PATTERNS = [
    "(a+)+$",
    "(a|aa)+$",
    "(a*)*b",
    "((a+)b?)+c",
    "(?=(a+))a*b\\1",
    "[",
    "(?<=a+)b",
    "\\p{Nobody}",
    "",
    "(?R)",
    "a{99999}",
]
DOUBLES = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}  # a step that doubles what it is given
UNKNOWN = {"SpecialToken": {"id": "x", "type_id": 0}}
PAD = {"pad_to_multiple_of": 0, "pad_id": 0, "pad_type_id": 0, "pad_token": ""}


def ids_changed(random: Random, document: dict) -> None:
    """Huge ids, negative ones, the same id for two tokens."""
    vocabulary = document["model"]["vocab"]
    if isinstance(vocabulary, dict):
        vocabulary[random.choice(list(vocabulary))] = random.choice([*IDS, random.choice(list(vocabulary.values()))])
    else:
        vocabulary[random.randrange(len(vocabulary))] = random.choice(
            [["a", -1e300], ["", 0.0], ["a"], ["a", None], vocabulary[0], ["the", float("-inf")]]
        )


def tokens_changed(random: Random, document: dict) -> None:
    vocabulary = document["model"]["vocab"]
    if isinstance(vocabulary, dict):
        vocabulary[random.choice(TEXTS)] = vocabulary.pop(random.choice(list(vocabulary)))


def merges_changed(random: Random, document: dict) -> None:
    new = [
        "nobody knows",
        "a",
        "",
        " ",
        "a b c",
        ["a"],
        ["a", "b", "c"],
        ["nobody", "knows"],
        [1, 2],
        None,
        {"a": 1},
        ["", ""],
    ]
    merges = document["model"].setdefault("merges", [])
    merges[random.randrange(len(merges) + 1) :] = [random.choice(new)]


def added_tokens_changed(random: Random, document: dict) -> None:
    token = {
        "id": random.choice(IDS),
        "content": random.choice([*TEXTS, "the", "<s>", "a", " "]),
        "special": random.choice([True, False]),
        "single_word": random.choice([True, False]),
        "lstrip": random.choice([True, False]),
        "rstrip": False,
        "normalized": random.choice([True, False]),
    }
    tokens = document.setdefault("added_tokens", [])
    tokens[random.randrange(len(tokens) + 1) :] = [token] if random.random() < 0.5 else [token, *tokens[:1]]


def patterns_changed(random: Random, document: dict) -> None:
    pattern = random.choice([{"Regex": random.choice(PATTERNS)}, {"String": random.choice([*TEXTS, "a"])}])
    steps = {
        "pre_tokenizer": [
            {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False},
            {"type": "Split", "pattern": pattern, "behavior": "Removed", "invert": True},
            {"type": "Metaspace", "replacement": random.choice(["▁", "", "ab"]), "prepend_scheme": "always"},
            {"type": "Digits", "individual_digits": True},
            {"type": "Nobody"},
        ],
        "normalizer": [
            {"type": "Replace", "pattern": pattern, "content": random.choice(["", "aa", "a" * 1000])},
            {"type": "Sequence", "normalizers": [DOUBLES] * 30},
            {"type": "Prepend", "prepend": "a" * 1000},
            {"type": "Precompiled", "precompiled_charsmap": random.choice(["", "AAAA", "/////w==", "BAAAAAAAAAA="])},
        ],
        "decoder": [
            {"type": "Replace", "pattern": pattern, "content": "b"},
            {"type": "Strip", "content": " ", "start": random.choice([1, 1 << 40]), "stop": 0},
            {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
            {"type": "BPEDecoder", "suffix": ""},
            {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True},
        ],
        "post_processor": [
            {"type": "TemplateProcessing", "single": [UNKNOWN], "pair": [], "special_tokens": {}},
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        ],
        "truncation": [{"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 1 << 40}],
        "padding": [{"strategy": {"Fixed": 1 << 40}, "direction": "Left", **PAD}],
    }  # fmt: skip
    part = random.choice([*steps, "pre_tokenizer", "normalizer"])
    document[part] = random.choice(steps[part])


def model_changed(random: Random, document: dict) -> None:
    model = document["model"]
    model["type"] = random.choice(["BPE", "Unigram", "WordPiece", "WordLevel", "Nobody"])
    model["unk_token"], model["unk_id"] = random.choice(["", "nobody", None, "<unk>"]), random.choice(IDS)
    model["dropout"], model["max_input_chars_per_word"] = (
        random.choice([None, -1, 0, 1, 2]),
        random.choice([0, 100, 1 << 60]),
    )
    model["continuing_subword_prefix"] = random.choice(["", "##", None, "a"])


CHANGES: list[Callable[[Random, dict], None]] = [
    ids_changed,
    tokens_changed,
    merges_changed,
    added_tokens_changed,
    patterns_changed,
    model_changed,
    value_changed,
]


def part_of_tokenizer(random: Random, data: bytes) -> bytes:
    document = json.loads(data)
    random.choice(CHANGES)(random, document)
    return json.dumps(document).encode()


MUTATIONS: dict[str, Mutation] = {
    "part_of_tokenizer": part_of_tokenizer,
    "another_part_of_tokenizer": part_of_tokenizer,
}
