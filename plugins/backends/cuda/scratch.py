"""The memory that a step works in: allocated once, and anew when a batch needs more. And what a step is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.plugins.backends.cuda.device import Device, Memory
from ringlet.plugins.backends.cuda.planes import ALIGNMENT, padded
from ringlet.plugins.backends.cuda.shapes import BFLOATS, BYTES, FLOATS, QUERY_ROWS, RUN, ranked_parts


@dataclass(frozen=True)
class Sizes:
    """What a step needs room for at most; see `step.Shape`."""

    tokens: int
    wanted: int
    tiles: int
    partials: int  # tokens times pieces of the context
    listed: int  # likeliest tokens of all rows

    def covers(self, other: Sizes) -> bool:
        return all(getattr(self, field.name) >= getattr(other, field.name) for field in fields(self))

    def and_also(self, other: Sizes) -> Sizes:
        return Sizes(*(max(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)))


NOTHING = Sizes(0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Rows:
    """Addresses of activations (tokens, width padded) in their forms; see `kernels/rows.py`. 0: no matrix takes it."""

    floats: int
    bytes: int
    scales: int
    sums: int
    bfloats: int

    @property
    def all(self) -> tuple[int, int, int, int, int]:
        return self.floats, self.bytes, self.scales, self.sums, self.bfloats


class Scratch:
    """Addresses of everything that a step reads anew or writes. told: see `_told`; written, then sent with `tell`.

    forms: that normed, heads and hidden are needed in, at most.
    """

    def __init__(self, device: Device, config: ModelConfig, forms: dict[str, int], n_pairs: int, n_ropes: int) -> None:
        self._device, self._config, self._forms, self._angles = device, config, forms, n_pairs * max(1, n_ropes)
        self.sizes = NOTHING
        self._memory: Memory | None = None

    def make_room(self, sizes: Sizes) -> bool:
        """Have room for a step; true if addresses are new. Raises MemoryError."""
        if self.sizes.covers(sizes):
            return False
        sizes = self.sizes.and_also(sizes)
        places, n_bytes = self._lay_out(sizes)
        self._memory, self.sizes = None, NOTHING  # the old memory is free before the new is taken
        self._memory = Memory(self._device, n_bytes)
        self._places = {name: self._memory.address + offset for name, offset in places.items()}
        self.sizes = sizes
        self._told = self._device.host_array(told_bytes(sizes))
        self.told = told_parts(sizes, self._told)
        return True

    def tell(self) -> None:
        """Send what `told` says to the GPU."""
        assert self._memory is not None
        self._device.upload(self._told, self._memory.address)

    def __getitem__(self, name: str) -> int:
        return self._places[name]

    def rows(self, name: str) -> Rows:
        return Rows(*(self._places.get(f"{name}.{field.name}", 0) for field in fields(Rows)))

    def _lay_out(self, sizes: Sizes) -> tuple[dict[str, int], int]:
        places, end = dict(told_offsets(sizes)), _aligned(told_bytes(sizes))
        for name, n_bytes in self._parts(sizes):
            places[name] = end
            end += _aligned(max(1, n_bytes))
        return places, end

    def _parts(self, sizes: Sizes) -> Iterator[tuple[str, int]]:
        config, n = self._config, sizes.tokens
        floats = {
            "x": n * padded(config.d_model),
            "added": n * padded(config.d_model),
            "last": n * padded(config.d_model),
            "qkv": n * padded(config.n_heads * config.d_k + config.n_kv_heads * (config.d_k + config.d_v)),
            "q_ring": n * config.n_heads * config.d_k,
            "q_sinks": n * config.n_heads * config.d_k,
            "up": n * padded(config.d_ff * (2 if config.gated else 1)),
            "angles": 4 * n * self._angles,
            "partials": sizes.partials * config.n_heads * config.d_v,
            "states": sizes.partials * config.n_heads * 2,
            "logits": sizes.wanted * config.d_vocab,
            "keys": 2 * sizes.listed * ranked_parts(config.d_vocab),
            "listed": 2 * sizes.listed,
        }
        for name, count in floats.items():
            yield name, 4 * count
        most = max(n, sizes.wanted)
        for name, width in {
            "normed": config.d_model,
            "heads": config.n_heads * config.d_v,
            "hidden": config.d_ff,
        }.items():
            yield from _rows_parts(name, most * padded(width), self._forms[name])


def _rows_parts(name: str, count: int, forms: int) -> Iterator[tuple[str, int]]:
    if forms & FLOATS:
        yield f"{name}.floats", 4 * count
    if forms & BYTES:
        yield f"{name}.bytes", count
        yield f"{name}.scales", 4 * count // RUN
        yield f"{name}.sums", 4 * count // RUN
    if forms & BFLOATS:
        yield f"{name}.bfloats", 2 * count


def _told(sizes: Sizes) -> list[tuple[str, np.dtype, int]]:
    """What changes from step to step: names, dtypes and numbers of values, one after the other.

    rings: the address of each token's ring. positions: of the tokens, then those that they have among the sinks;
    `Shape` says whether there are any. tiles: (n_tiles, 3), see `kernels/attention.py`.
    """
    longs, ints = np.dtype(np.int64), np.dtype(np.int32)
    return [
        ("rings", longs, sizes.tokens),
        ("token_ids", ints, sizes.tokens),
        ("positions", ints, 2 * sizes.tokens),
        ("wanted", ints, sizes.wanted),
        ("tiles", ints, 3 * sizes.tiles),
    ]


def told_offsets(sizes: Sizes) -> Iterator[tuple[str, int]]:
    at = 0
    for name, dtype, count in _told(sizes):
        yield name, at
        at += count * dtype.itemsize


def told_bytes(sizes: Sizes) -> int:
    return sum(count * dtype.itemsize for _, dtype, count in _told(sizes))


def told_parts(sizes: Sizes, memory: np.ndarray) -> dict[str, np.ndarray]:
    """The parts as arrays, to be written in host memory that goes to the GPU in one copy."""
    return {
        name: memory[at : at + count * dtype.itemsize].view(dtype)
        for (name, dtype, count), (_, at) in zip(_told(sizes), told_offsets(sizes), strict=True)
    }


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def tiles_of(n_tokens: int, group: int) -> int:
    """Tiles that a sequence's tokens make."""
    return -(-n_tokens * group // QUERY_ROWS)
