"""A ring's keys and values in host memory, in one allocation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.ring_cache import RingLayout, RingMemory

HOST_DTYPES: dict[str, np.dtype] = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "q8": np.dtype(np.int8)}
LARGEST = np.float32(127)
SMALLEST = np.float32(1e-30)  # what is smaller counts as 0: its inverse might overflow
ALIGNMENT = 64  # bytes: a cache line, and the widest vector load


class HostMemory(RingMemory):
    """keys[layer]: (n_kv_heads, slots, d_k), values[layer]: (n_kv_heads, slots, d_v), in float32, float16 or int8.

    In int8 ("q8") each key and each value has a scale d beside it, as `quantize_rows` makes it: key_scales[layer] and
    value_scales[layer], float32 (n_kv_heads, slots); they are empty lists otherwise.

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
        self.arrays: list[np.ndarray] = []  # all that it holds: (n_kv_heads, slots) or (n_kv_heads, slots, width)
        for shape, kind in _shapes(config, layout, dtype):
            size = prod(shape) * kind.itemsize
            self.arrays.append(self._memory[at : at + size].view(kind).reshape(shape))
            at += _aligned(size)
        rows = [array for array in self.arrays if array.ndim == 3]
        scales = [array for array in self.arrays if array.ndim == 2]
        self.keys, self.values, self.key_scales, self.value_scales = rows[::2], rows[1::2], scales[::2], scales[1::2]
        self._layers = layout.layers

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def copy_from(self, other: HostMemory, length: int) -> None:
        for mine, theirs in zip(self.arrays, other.arrays, strict=True):
            used = min(length, mine.shape[1])
            mine[:, :used] = theirs[:, :used]

    def copy_since(self, other: HostMemory, shared: int, length: int) -> None:
        per_layer = len(self.arrays) // len(self._layers)
        for index, (mine, theirs) in enumerate(zip(self.arrays, other.arrays, strict=True)):
            slots = np.unique(self._layers[index // per_layer].slot(np.arange(shared, length)))
            mine[:, slots] = theirs[:, slots]

    def contents(self, length: int) -> dict[str, np.ndarray]:
        return self._used(length)

    def restore(self, contents: Mapping[str, np.ndarray], length: int) -> None:
        for name, mine in self._used(length).items():
            mine[...] = contents[name]

    def _used(self, length: int) -> dict[str, np.ndarray]:
        """Views of the slots that `length` tokens may have filled."""
        named = {f"{index}.keys": keys for index, keys in enumerate(self.keys)}
        named |= {f"{index}.values": values for index, values in enumerate(self.values)}
        named |= {f"{index}.key_scales": scales for index, scales in enumerate(self.key_scales)}
        named |= {f"{index}.value_scales": scales for index, scales in enumerate(self.value_scales)}
        return {name: array[:, : min(length, array.shape[1])] for name, array in named.items()}

    def write(self, layer: int, slots: np.ndarray, K: np.ndarray, V: np.ndarray) -> None:
        """Put keys (n_kv_heads, n, d_k) and values (n_kv_heads, n, d_v), float32, into the slots (n,) of a layer."""
        for rows, scales, X in ((self.keys, self.key_scales, K), (self.values, self.value_scales, V)):
            if scales:
                rows[layer][:, slots], scales[layer][:, slots] = quantize_rows(X)
            else:
                rows[layer][:, slots] = X

    def read(self, layer: int, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The keys and values in the slots, float32, as `write` takes them."""
        K, V = (rows[layer][:, slots].astype(np.float32) for rows in (self.keys, self.values))
        if self.key_scales:
            K *= self.key_scales[layer][:, slots, None]
            V *= self.value_scales[layer][:, slots, None]
        return K, V


def quantize_rows(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 q and float32 d with X ≈ d·q, d = max|x|/127 of each row; halves are rounded to even."""
    largest = np.abs(X).max(axis=-1)
    largest = np.where(largest < SMALLEST, np.float32(0), largest)
    inverse = np.divide(LARGEST, largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(X * inverse[..., None]).astype(np.int8), largest / LARGEST


def host_bytes(config: ModelConfig, layout: RingLayout, kv_dtype: str) -> int:
    """Bytes that the ring of one sequence takes in host memory."""
    shapes = _shapes(config, layout, HOST_DTYPES[kv_dtype])
    return sum(_aligned(prod(shape) * kind.itemsize) for shape, kind in shapes)


def _shapes(config: ModelConfig, layout: RingLayout, dtype: np.dtype) -> Iterator[tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of each layer's keys, then its values, and of the scales of either after it."""
    for layer in layout.layers:
        for width in (config.d_k, config.d_v):
            yield (config.n_kv_heads, layer.slots, width), dtype
            if dtype == np.int8:
                yield (config.n_kv_heads, layer.slots), np.dtype(np.float32)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
