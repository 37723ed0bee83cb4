"""Mutations of a safetensors file: the header's length, its entries, and places that overlap or lie outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from .interesting import JSON_VALUES, whole_number
from .json_values import deep, value_changed
from .plain_bytes import Mutation

Header = dict[str, dict]
DTYPES = ["F32", "F16", "BF16", "F64", "I8", "BOOL", "U64", "F8_E4M3", "Q4_0", "Q8_0", "F4", "", "f32"]


def some_entry(random: Random, header: Header) -> dict:
    return header[random.choice([name for name in header if name != "__metadata__"])]


def offsets_changed(random: Random, header: Header) -> None:
    entry = some_entry(random, header)
    start, stop = entry["data_offsets"]
    entry["data_offsets"] = random.choice(
        [
            [stop, start],
            [start, start],
            [start, 1 << 63],
            [-start - 1, stop],
            [start - 2, stop - 2],
            [0, stop - start],
            [start],
            [start, stop, stop],
            [float(start), stop],
            [whole_number(random, 64, start, stop), whole_number(random, 64, stop, stop)],
            some_entry(random, header)["data_offsets"],
        ]
    )


def shape_changed(random: Random, header: Header) -> None:
    """Of as many weights, of others, or of so many that a product wraps."""
    entry = some_entry(random, header)
    shape = entry["shape"]
    wrapping = [[1 << 62, 4], [1 << 32, 1 << 32], [1 << 42, 1 << 22], [0, 1 << 70], [1 << 64, 1]]
    others = [shape[::-1], [*shape, 1], [1, *shape], shape[:1], [], [0], [-1], [-1, -1], [True], [1.0], [1] * 200]
    entry["shape"] = random.choice([*wrapping, *others])


def dtype_changed(random: Random, header: Header) -> None:
    for entry in [some_entry(random, header)] if random.random() < 0.7 else list(header.values()):
        entry["dtype"] = random.choice([*DTYPES, *JSON_VALUES])


def entry_twice(random: Random, header: Header) -> None:
    """A tensor under two names, or two of each other's bytes."""
    names = [name for name in header if name != "__metadata__"]
    first, second = random.choice(names), random.choice(names)
    if random.random() < 0.5:
        header[random.choice([first + "2", "lm_head.weight", "", "\x1b[31m"])] = header[second]
    else:
        header[first], header[second] = header[second], header[first]


def entry_left_out(random: Random, header: Header) -> None:
    del header[random.choice(list(header))]


HEADER_MUTATIONS: list[Callable[[Random, Header], None]] = [
    offsets_changed,
    shape_changed,
    dtype_changed,
    entry_twice,
    entry_left_out,
    value_changed,
]


def entry_of_header(random: Random, data: bytes) -> bytes:
    header, tensors = split(data)
    random.choice(HEADER_MUTATIONS)(random, header)
    return join(json.dumps(header).encode(), tensors)


def length_of_header(random: Random, data: bytes) -> bytes:
    actual = int.from_bytes(data[:8], "little")
    return whole_number(random, 64, actual, len(data)).to_bytes(8, "little") + data[8:]


def text_of_header(random: Random, data: bytes) -> bytes:
    """Blanks, the same name twice, deep nesting, no JSON at all."""
    header, tensors = split(data)
    text = json.dumps(header).encode()
    name = json.dumps(next(iter(header))).encode()
    twice = text[:-1] + b", " + name + b": " + json.dumps(next(iter(header.values()))).encode() + b"}"
    new = [b" " * 1000 + text, text + b" " * 1000, twice, deep(random), b"", b"{", b"[]", b"\xff" * 8, text + text]
    return join(random.choice(new), tensors)


def weights_extreme(random: Random, data: bytes) -> bytes:
    header, tensors = split(data)
    at = random.randrange(len(tensors) // 4) * 4
    pattern = random.choice([b"\xff\xff", b"\x00\x7c", b"\xff\x7b", b"\x00\x80", b"\x80\x7f"])
    new = pattern * random.choice([2, 100, len(tensors) // 2])
    return join(json.dumps(header).encode(), (tensors[:at] + new + tensors[at + len(new) :])[: len(tensors)])


def split(data: bytes) -> tuple[Header, bytes]:
    """Of a valid file."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(header: bytes, tensors: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + tensors


MUTATIONS: dict[str, Mutation] = {
    "entry_of_header": entry_of_header,
    "another_entry_of_header": entry_of_header,
    "length_of_header": length_of_header,
    "text_of_header": text_of_header,
    "weights_extreme": weights_extreme,
}
