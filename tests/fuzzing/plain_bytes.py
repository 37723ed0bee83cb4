"""Mutations that know nothing of a format: bytes changed, cut, put in, doubled, moved."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .interesting import whole_number

Mutation = Callable[[Random, bytes], bytes]


def place(random: Random, data: bytes) -> int:
    """Somewhere in the file, rather near its beginning, where its structure stands."""
    reach = random.choice([64, 1024, len(data), len(data)])
    return random.randrange(max(1, min(reach, len(data))))


def flip_a_bit(random: Random, data: bytes) -> bytes:
    at = place(random, data)
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :] if data else data


def change_bytes(random: Random, data: bytes) -> bytes:
    at = place(random, data)
    new = random.choice([random.randbytes(random.randint(1, 8)), b"\0" * 8, b"\xff" * 8, b"\x80", b"\x7f"])
    return data[:at] + new + data[at + len(new) :]


def change_a_number(random: Random, data: bytes) -> bytes:
    size = random.choice([2, 4, 8])
    at = place(random, data)
    actual = int.from_bytes(data[at : at + size], "little")
    return data[:at] + whole_number(random, 8 * size, actual, len(data)).to_bytes(size, "little") + data[at + size :]


def cut_the_end(random: Random, data: bytes) -> bytes:
    return data[: random.choice([place(random, data), max(0, len(data) - random.randint(1, 64))])]


def leave_out(random: Random, data: bytes) -> bytes:
    at = place(random, data)
    return data[:at] + data[at + random.choice([1, 2, 4, 8, 100, 5000]) :]


def put_in(random: Random, data: bytes) -> bytes:
    at = place(random, data)
    return data[:at] + random.randbytes(random.choice([1, 2, 4, 8, 100])) + data[at:]


def repeat_a_part(random: Random, data: bytes) -> bytes:
    at = place(random, data)
    part = data[at : at + random.choice([1, 8, 64, 1000])]
    return data[:at] + part * random.randint(2, 5) + data[at:]


def move_a_part(random: Random, data: bytes) -> bytes:
    source, target, size = place(random, data), place(random, data), random.choice([1, 4, 8, 32, 500])
    part = data[source : source + size]
    return data[:target] + part + data[target + len(part) :]


def only_noise(random: Random, data: bytes) -> bytes:
    """The first bytes, which say the format, and noise."""
    return data[: random.choice([0, 4, 8, 24])] + random.randbytes(random.choice([0, 1, 100, 3000]))


MUTATIONS: dict[str, Mutation] = {
    function.__name__: function
    for function in (
        flip_a_bit,
        change_bytes,
        change_a_number,
        cut_the_end,
        leave_out,
        put_in,
        repeat_a_part,
        move_a_part,
        only_noise,
    )
}
