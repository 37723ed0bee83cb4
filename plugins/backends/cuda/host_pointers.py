"""Memory of the simulated GPU: host memory, found by address, with every access checked.

An address is that of the host's memory. Whatever asks for memory outside an allocation gets an IndexError.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any

import numpy as np

DTYPES: dict[str, np.dtype] = {
    "Bytes": np.dtype(np.uint8),
    "SignedBytes": np.dtype(np.int8),
    "Shorts": np.dtype(np.uint16),
    "Halves": np.dtype(np.float16),
    "Ints": np.dtype(np.int32),
    "Words": np.dtype(np.uint32),
    "Longs": np.dtype(np.int64),
    "Floats": np.dtype(np.float32),
    "Doubles": np.dtype(np.float64),
}

_allocations: dict[int, np.ndarray] = {}  # by address
_addresses: list[int] = []  # sorted


class Pointer:
    """What a kernel indexes: the values from an address to the end of its allocation."""

    __slots__ = ("_bytes", "_counts", "_values")

    def __init__(self, memory: np.ndarray, dtype: np.dtype) -> None:
        self._bytes = memory
        self._values = memory[: len(memory) // dtype.itemsize * dtype.itemsize].view(dtype)
        self._counts = dtype.kind in "iu" and dtype != np.uint32  # Numba's integers have 64 bits; words stay words

    def __getitem__(self, index: Any) -> Any:
        if index < 0:
            raise IndexError(f"{index} lies before the pointer")
        value = self._values[index]
        return int(value) if self._counts else value

    def __setitem__(self, index: Any, value: Any) -> None:
        if index < 0:
            raise IndexError(f"{index} lies before the pointer")
        self._values[index] = value

    def part(self, offset: Any, size: int, dtype: Any) -> np.ndarray:
        """Some bytes from the offset on, which has to be a multiple of their number, as values of another type."""
        offset = int(offset)
        if offset < 0 or offset + size > len(self._bytes) or (self._bytes.ctypes.data + offset) % size:
            raise IndexError(f"{size} bytes at {offset} of {len(self._bytes)}")
        return self._bytes[offset : offset + size].view(dtype)


def allocate(n_bytes: int) -> int:
    """Zeroed memory; its address, a multiple of 256."""
    memory = np.zeros(n_bytes + 256, np.uint8)
    skipped = -memory.ctypes.data % 256
    address = memory.ctypes.data + skipped
    _allocations[address] = memory[skipped : skipped + n_bytes]
    insort(_addresses, address)
    return address


def free(address: int) -> None:
    del _allocations[address]
    _addresses.remove(address)


def memory_at(address: int) -> np.ndarray:
    """uint8 view from the address to the end of its allocation."""
    index = bisect_right(_addresses, address) - 1
    start = _addresses[index] if index >= 0 else 0
    if index < 0 or address > start + len(_allocations[start]):
        raise IndexError(f"{address:#x} is no address of the simulated GPU")
    return _allocations[start][address - start :]


def pointer_at(address: int, kind: str) -> Pointer | None:
    """A kernel's pointer argument; None for the address 0, which no kernel may read."""
    return None if address == 0 else Pointer(memory_at(address), DTYPES[kind])
