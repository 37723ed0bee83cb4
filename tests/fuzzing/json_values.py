"""Mutations of a file that holds JSON: values of any kind in any place, and texts that are hardly JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from .interesting import JSON_VALUES
from .plain_bytes import Mutation

Place = tuple[Any, Any]  # a list or an object, and an index or a key of it


def places(value: Any) -> list[Place]:
    """Every place in a JSON value; of long lists and large objects the first ones."""
    if isinstance(value, dict):
        items: list = list(value.items())[:60]
    elif isinstance(value, list):
        items = list(enumerate(value[:30]))
    else:
        return []
    return [(value, key) for key, _ in items] + [place for _, inner in items for place in places(inner)]


def some_place(random: Random, document: Any) -> Place:
    """Rather near the top: there are few places, but each means something."""
    if isinstance(document, dict) and document and random.random() < 0.5:
        return document, random.choice(list(document))
    return random.choice(places(document) or [({"": 0}, "")])


def value_changed(random: Random, document: Any) -> None:
    inside, key = some_place(random, document)
    actual = inside[key]
    new = [*JSON_VALUES, [actual], {"x": actual}, str(actual)]
    if isinstance(actual, (int, float)):
        new += [-actual, actual + 0.5, actual * 2, actual + 1, actual - 1, actual * (1 << 40)] * 4
    inside[key] = deepcopy(random.choice(new))  # what is changed later must not be everybody's


def value_left_out(random: Random, document: Any) -> None:
    inside, key = some_place(random, document)
    del inside[key]


def key_added(random: Random, document: Any) -> None:
    keys = [
        "rope_scaling",
        "rope_parameters",
        "layer_types",
        "sliding_window",
        "head_dim",
        "quantization_config",
        "x\n",
    ]
    ropes = [{"rope_type": kind, "factor": random.choice([0.5, 4, -1, "2"])} for kind in ("yarn", "llama3", "linear")]
    if isinstance(document, dict):
        document[random.choice(keys)] = deepcopy(random.choice([*JSON_VALUES, *ropes * 5]))


def values_swapped(random: Random, document: Any) -> None:
    (first, one), (second, other) = some_place(random, document), some_place(random, document)
    first[one], second[other] = deepcopy(second[other]), deepcopy(first[one])  # one may lie in the other


TREE_MUTATIONS: list[Callable[[Random, Any], None]] = [value_changed, value_left_out, key_added, values_swapped]


def value_of_json(random: Random, data: bytes) -> bytes:
    """One to three changes of the value that the text stands for."""
    document = json.loads(data)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        random.choice([value_changed, *TREE_MUTATIONS])(random, document)
    return json.dumps(document).encode()


def text_of_json(random: Random, data: bytes) -> bytes:
    """Texts that parsers take for JSON, or nearly: no numbers, long numbers, the same name twice."""
    text, number = data.decode(), random.choice(["NaN", "-Infinity", "1e999", "1" * 5000, "-0", "1E+2", "0.1e-400"])
    how = random.randrange(8)
    if how == 0:
        return (text[: text.index(":") + 1] + number + ", " + text[text.index('"') :]).encode()
    if how == 1:
        return text.replace("{", '{"model_type": "llama", "model_type": "llama",', 1).encode()
    if how == 2:
        return random.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\0"]) + data
    if how == 3:
        return text.encode(random.choice(["utf-16", "utf-32", "utf-7"]))
    if how == 4:
        return text.replace('"', '"\\ud800', random.choice([1, 2, 9])).encode()
    if how == 5:
        return random.choice([b"", b"[]", b"null", b'"a"', b"0", b"{}", b"[{}]"])
    if how == 6:
        at = random.randrange(len(data))
        return data[:at] + random.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\n", b"\0", b"/**/"]) + data[at:]
    return deep(random)


def deep(random: Random) -> bytes:
    """Lists in lists, or objects in objects, closed or not."""
    depth = random.choice([10, 500, 2000, 20_000, 100_000])
    opening, closing = random.choice([(b"[", b"]"), (b'{"a":', b"}")])
    inside = opening * depth + b"1" + closing * random.choice([depth, 0])
    return b'{"model_type":"llama","a":' + inside + b"}"


MUTATIONS: dict[str, Mutation] = {
    "value_of_json": value_of_json,
    "another_value_of_json": value_of_json,
    "text_of_json": text_of_json,
}
