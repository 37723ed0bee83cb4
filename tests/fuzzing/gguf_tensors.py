"""Mutations of a GGUF file's tensors: sizes that overflow, places that overlap, types that do not fit, names."""

from __future__ import annotations

from copy import copy
from math import prod
from random import Random

from .gguf_parts import Entry, Parts
from .interesting import BROKEN_UTF8, TEXTS, whole_number

# Sizes whose product, times an element's bytes, wraps to something small, at once or when padded.
WRAPPING = [
    [1 << 62, 4], [1 << 32, 1 << 32], [1 << 42, 1 << 22], [(1 << 42) + 1, 1 << 22], [1 << 21, 1 << 21, 1 << 22],
    [(1 << 64) - 1], [(1 << 62) - 1], [(1 << 62) - 8], [(1 << 63) - 16, 2], [1 << 16] * 4, [1 << 61, 8, 1, 1],
    [3, (1 << 64) // 3], [(1 << 64) - 31, 1],
]  # fmt: skip


def some_entry(random: Random, parts: Parts) -> Entry:
    if not parts.entries:
        parts.entries.append(Entry(b"token_embd.weight", [64, 128], 0, 0))
    return random.choice(parts.entries)


def sizes_wrap(random: Random, parts: Parts) -> None:
    some_entry(random, parts).sizes = list(random.choice(WRAPPING))


def size_changed(random: Random, parts: Parts) -> None:
    entry = some_entry(random, parts)
    if entry.sizes:
        at = random.randrange(len(entry.sizes))
        entry.sizes[at] = whole_number(random, 64, entry.sizes[at], len(parts.data))


def sizes_rearranged(random: Random, parts: Parts) -> None:
    """As many weights in another shape, so that the file's own checks pass."""
    entry = some_entry(random, parts)
    total = prod(entry.sizes)
    half = 1 << random.randrange(1, 9)
    shapes = [entry.sizes[::-1], [total], [total, 1], [1, total], [total, 1, 1, 1], [*entry.sizes, 1], [1] * 5, []]
    entry.sizes = random.choice([*shapes, [half, total // half]])


def number_of_dimensions(random: Random, parts: Parts) -> None:
    entry = some_entry(random, parts)
    entry.sizes = (entry.sizes * 20)[: random.choice([0, 1, 3, 4, 5, 6, 8, 40])]


def tensor_type_changed(random: Random, parts: Parts) -> None:
    """A type of as many bytes, of other ones, one that is withdrawn, or one that nobody knows."""
    entry = some_entry(random, parts)
    entry.number = random.choice([0, 1, 30, *range(45), 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])


def tensor_types_changed(random: Random, parts: Parts) -> None:
    number = random.choice([0, 1, 30, 2, 3, 8, 24])
    for entry in parts.entries:
        entry.number = number


def offset_changed(random: Random, parts: Parts) -> None:
    """Out of the file, at another tensor's place, a little beside, or where it wraps."""
    entry = some_entry(random, parts)
    entry.offset = random.choice(
        [
            random.choice(parts.entries).offset,
            (entry.offset + random.choice([-32, 32, 1, 64])) % (1 << 64),
            (1 << 64) - random.choice([1, 32, 64, len(parts.data) // 32 * 32]),
            len(parts.data) // 32 * 32,
            whole_number(random, 64, entry.offset, len(parts.data)),
        ]
    )


def places_swapped(random: Random, parts: Parts) -> None:
    """Two tensors of each other's bytes: valid where they are of one size."""
    first, second = some_entry(random, parts), some_entry(random, parts)
    first.offset, second.offset = second.offset, first.offset


def tensor_twice(random: Random, parts: Parts) -> None:
    again = copy(some_entry(random, parts))
    again.name = random.choice([again.name, again.name + b"2", b"output.weight", b"rope_freqs.weight"])
    parts.entries.insert(random.randrange(len(parts.entries) + 1), again)


def tensor_left_out(random: Random, parts: Parts) -> None:
    parts.entries.remove(some_entry(random, parts))


def name_changed(random: Random, parts: Parts) -> None:
    entry = some_entry(random, parts)
    other = random.choice(parts.entries).name
    new = [*(t.encode() for t in TEXTS), *BROKEN_UTF8, entry.name.replace(b"0", b"1"), b"blk.99.attn_q.weight"]
    entry.name = random.choice([other, *new, b"rope_freqs.weight", b"blk.-1.attn_q.bias", b"token_embd.weight"])


def data_cut(random: Random, parts: Parts) -> None:
    parts.data = parts.data[: -random.choice([1, 31, 32, 33, 1000, max(1, len(parts.data) - 64)])]


def weights_extreme(random: Random, parts: Parts) -> None:
    """Infinities, no numbers, the largest and the smallest, in places or everywhere."""
    pattern = random.choice(
        [b"\xff", b"\x00\x7c", b"\xff\x7b", b"\x00\x80", b"\x80\x7f", b"\x01\x00", b"\x00\x00\x80\x7f"]
    )
    size = random.choice([64, 4096, len(parts.data)]) // len(pattern) * len(pattern)
    at = random.randrange(max(1, len(parts.data) // 4)) * 4
    parts.data = (parts.data[:at] + pattern * (size // len(pattern)) + parts.data[at + size :])[: len(parts.data)]


MUTATIONS = {
    function.__name__: function
    for function in (
        sizes_wrap,
        size_changed,
        sizes_rearranged,
        number_of_dimensions,
        tensor_type_changed,
        tensor_types_changed,
        offset_changed,
        places_swapped,
        tensor_twice,
        tensor_left_out,
        name_changed,
        data_cut,
        weights_extreme,
    )
}
