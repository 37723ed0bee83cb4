"""A ring's keys and values in the GPU's memory: one allocation, which begins with a record of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.host_memory import HOST_DTYPES
from ringlet.core.ring_cache import RingLayout, RingMemory
from ringlet.plugins.backends.cuda.device import Device, Memory
from ringlet.plugins.backends.cuda.planes import ALIGNMENT
from ringlet.plugins.backends.cuda.shapes import (
    BYTE_RING,
    RING_KEY_SCALES,
    RING_KEYS,
    RING_KINDS,
    RING_RECORD,
    RING_SLOTS,
    RING_VALUE_SCALES,
    RING_VALUES,
)

HALVES_A_LOAD = 8  # heads are padded to what a lane loads at once
BYTES = {"f32": 4, "f16": 2, "q8": 1}
SCALE_BYTES = 4


class DeviceRing(RingMemory):
    """Keys (n_kv_heads, slots, d_k padded) and values (n_kv_heads, slots, d_v padded) of each layer, zeroed; in int8
    ("q8") each has a scale beside it, float32 (n_kv_heads, slots), as in `core/host_memory.py`.

    kv_dtype: "f32", "f16" or "q8". address: of the records; see `shapes` for their fields. capacities, sinks: int64, of
    each layer. capacity: of the layer that sees most. Raises RingletError where there is less memory than needed.
    """

    def __init__(self, device: Device, config: ModelConfig, layout: RingLayout, kv_dtype: str) -> None:
        self.device, self.config, self.layout, self.kv_dtype = device, config, layout, kv_dtype
        self.capacities = np.array([layer.capacity for layer in layout.layers], np.int64)
        self.sinks = np.array([layer.sinks for layer in layout.layers], np.int64)
        self.capacity = int(self.capacities.max())
        try:
            self._memory = Memory(device, ring_bytes(config, layout, kv_dtype))
        except MemoryError:
            raise RingletError(self._too_large()) from None
        self.address = self._memory.address
        device.upload(self._records(), self.address)

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def copy_from(self, other: DeviceRing, length: int) -> None:
        """All of it: that is one copy, and fast."""
        self.device.make_current()
        start = _records_bytes(self.layout)
        self.device.copy(other.address + start, self.address + start, self.nbytes - start)

    def contents(self, length: int) -> dict[str, np.ndarray]:
        """The same names, shapes and dtypes as those of host memory, so that either reads the other's files."""
        self.device.make_current()
        return {name: plane.rows(self.device, length) for name, plane in self._planes().items()}

    def restore(self, contents: Mapping[str, np.ndarray], length: int) -> None:
        self.device.make_current()
        for name, plane in self._planes().items():
            plane.put_rows(self.device, contents[name])

    def _planes(self) -> dict[str, Plane]:
        """Keys, values and their scales, by the names that `contents` gives them."""
        config, numbers = self.config, HOST_DTYPES[self.kv_dtype]
        kinds: list[tuple[str, int, int | None, np.dtype]]
        kinds = [("keys", RING_KEYS, config.d_k, numbers), ("values", RING_VALUES, config.d_v, numbers)]
        if RING_KINDS[self.kv_dtype] == BYTE_RING:
            scale = np.dtype(np.float32)
            kinds += [("key_scales", RING_KEY_SCALES, None, scale), ("value_scales", RING_VALUE_SCALES, None, scale)]
        return {
            f"{index}.{name}": Plane(int(record[place]), config.n_kv_heads, int(record[RING_SLOTS]), width, dtype)
            for name, place, width, dtype in kinds
            for index, record in enumerate(self._records())
        }

    def _records(self) -> np.ndarray:
        at, records = self.address + _records_bytes(self.layout), []
        kind, widths = RING_KINDS[self.kv_dtype], (head_width(self.config.d_k), head_width(self.config.d_v))
        for layer, sizes in zip(self.layout.layers, _sizes(self.config, self.layout, self.kv_dtype), strict=True):
            places = (at + np.cumsum([0, *sizes])).tolist()
            keys, values, key_scales, value_scales, at = places
            about = [layer.slots, layer.capacity, layer.sinks, kind, *widths]
            records.append([keys, values, *about, key_scales, value_scales])
        return np.array(records, np.int64)

    def _too_large(self) -> str:
        needed, free = ring_bytes(self.config, self.layout, self.kv_dtype), self.device.free_bytes()
        fits = int(self.layout.context * free / needed)
        way_out = f"a context of about {fits} would fit" if fits else "no context fits"
        return (
            f"the ring needs {needed / 2**30:.2f} GiB, {self.device.name} has {free / 2**30:.2f} GiB free: {way_out}, "
            "or fewer sequences at once"
        )


@dataclass(frozen=True)
class Plane:
    """Rows of a ring on the GPU, (n_heads, slots, width) with each row padded; width None: (n_heads, slots)."""

    address: int
    n_heads: int
    slots: int
    width: int | None
    dtype: np.dtype

    @property
    def _stride(self) -> int:
        return 1 if self.width is None else head_width(self.width)

    def rows(self, device: Device, length: int) -> np.ndarray:
        """Of the first `length` slots, without padding, in the host's memory."""
        used = min(length, self.slots)
        row_bytes = self._stride * self.dtype.itemsize
        host = device.host_array(self.n_heads * used * row_bytes)
        for head in range(self.n_heads if used else 0):
            part = host[head * used * row_bytes : (head + 1) * used * row_bytes]
            device.download(self.address + head * self.slots * row_bytes, part)
        device.synchronise()
        found = host.view(self.dtype).reshape(self.n_heads, used, self._stride)
        return found[..., 0].copy() if self.width is None else found[..., : self.width].copy()

    def put_rows(self, device: Device, rows: np.ndarray) -> None:
        """Into the first slots; padding becomes 0."""
        used = rows.shape[1]
        padded = np.zeros((self.n_heads, used, self._stride), self.dtype)
        padded[..., : self.width or 1] = rows if self.width else rows[..., None]
        for head in range(self.n_heads if used else 0):
            device.upload(padded[head], self.address + head * self.slots * self._stride * self.dtype.itemsize)


def head_width(d: int) -> int:
    """Numbers of a head, with their padding."""
    return -(-d // HALVES_A_LOAD) * HALVES_A_LOAD


def ring_bytes(config: ModelConfig, layout: RingLayout, kv_dtype: str) -> int:
    """Bytes of a whole ring."""
    return _records_bytes(layout) + sum(map(sum, _sizes(config, layout, kv_dtype)))


def _sizes(config: ModelConfig, layout: RingLayout, kv_dtype: str) -> Iterator[tuple[int, int, int, int]]:
    """Bytes of each layer's keys, values, and scales of either."""
    for layer in layout.layers:
        rows = config.n_kv_heads * layer.slots
        keys, values = (_aligned(rows * head_width(d) * BYTES[kv_dtype]) for d in (config.d_k, config.d_v))
        scales = _aligned(rows * SCALE_BYTES) if RING_KINDS[kv_dtype] == BYTE_RING else 0
        yield keys, values, scales, scales


def _records_bytes(layout: RingLayout) -> int:
    return _aligned(len(layout.layers) * RING_RECORD * 8)


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT
