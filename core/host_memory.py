"""A ring's keys and values in host memory, in one allocation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.ring_cache import RingLayout, RingMemory

HOST_DTYPES: dict[str, np.dtype] = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16)}
ALIGNMENT = 64  # bytes: a cache line, and the widest vector load


class HostMemory(RingMemory):
    """keys[layer]: (n_kv_heads, slots, d_k), values[layer]: (n_kv_heads, slots, d_v), in float32 or float16.

    kv_dtype: one of HOST_DTYPES. Raises RingletError where there is less memory than needed.
    """

    def __init__(self, config: ModelConfig, layout: RingLayout, kv_dtype: str) -> None:
        nbytes, dtype = host_bytes(config, layout, kv_dtype), HOST_DTYPES[kv_dtype]
        try:
            self._memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
        except MemoryError:
            raise RingletError(
                f"the ring needs {nbytes / 2**30:.1f} GiB and there is less: choose a smaller context"
            ) from None
        at = -self._memory.ctypes.data % ALIGNMENT
        arrays: list[np.ndarray] = []
        for shape in _shapes(config, layout):
            size = _size(shape, dtype)
            arrays.append(self._memory[at : at + size].view(dtype).reshape(shape))
            at += _aligned(size)
        self.keys, self.values = arrays[::2], arrays[1::2]
        self._layers = layout.layers

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def copy_from(self, other: HostMemory, length: int) -> None:
        for mine, theirs in zip((*self.keys, *self.values), (*other.keys, *other.values), strict=True):
            used = min(length, mine.shape[1])
            mine[:, :used] = theirs[:, :used]

    def copy_since(self, other: HostMemory, shared: int, length: int) -> None:
        for index, layer in enumerate(self._layers):
            slots = np.unique(layer.slot(np.arange(shared, length)))
            for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
                mine[index][:, slots] = theirs[index][:, slots]

    def contents(self, length: int) -> dict[str, np.ndarray]:
        return self._used(length)

    def restore(self, contents: Mapping[str, np.ndarray], length: int) -> None:
        for name, mine in self._used(length).items():
            mine[...] = contents[name]

    def _used(self, length: int) -> dict[str, np.ndarray]:
        """Views of the slots that `length` tokens may have filled."""
        named = {f"{index}.keys": keys for index, keys in enumerate(self.keys)}
        named |= {f"{index}.values": values for index, values in enumerate(self.values)}
        return {name: array[:, : min(length, array.shape[1])] for name, array in named.items()}


def host_bytes(config: ModelConfig, layout: RingLayout, kv_dtype: str) -> int:
    """Bytes that the ring of one sequence takes in host memory."""
    return sum(_aligned(_size(shape, HOST_DTYPES[kv_dtype])) for shape in _shapes(config, layout))


def _shapes(config: ModelConfig, layout: RingLayout) -> Iterator[tuple[int, int, int]]:
    """Of each layer's keys, then its values."""
    for layer in layout.layers:
        for width in (config.d_k, config.d_v):
            yield config.n_kv_heads, layer.slots, width


def _size(shape: tuple[int, int, int], dtype: np.dtype) -> int:
    heads, slots, width = shape
    return heads * slots * width * dtype.itemsize


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
