"""What the simulator runs in place of the GPU's instructions; see `intrinsics` for what each does.

What lanes of a warp do together begins with `exchange`, which gives each of them what all have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringlet.plugins.backends.cuda.host_pointers import Pointer, pointer_at


def exchange(value: Any, combine: Callable[[list[Any]], Any] = list) -> Any:
    """combine of what each lane of the warp calls this with, by lane. Every lane of the warp has to call it."""
    thread: Any = threading.current_thread()
    return thread.exchange(value, combine)


def lane_of() -> int:
    thread: Any = threading.current_thread()
    return thread.thread_id % 32


def _reduction(reduce: Any, lanes: int) -> Any:
    """Over so many lanes that follow each other."""

    def combine(values: list[Any]) -> np.ndarray:
        return reduce(np.array(values).reshape(-1, lanes), axis=1)

    def reduced(value: Any) -> Any:
        return exchange(value, combine)[lane_of() // lanes]

    return reduced


def _sum(values: np.ndarray, axis: int) -> np.ndarray:
    return np.sum(values, axis=axis, dtype=values.dtype)


quad_sum, run_sum, warp_sum = (_reduction(_sum, lanes) for lanes in (4, 16, 32))
quad_max, run_max, warp_max = (_reduction(np.max, lanes) for lanes in (4, 16, 32))  # NaN where one is


def warp_sums(values: np.ndarray, n: int) -> None:
    values[:n] = exchange(values[:n].copy(), lambda all_values: _sum(np.array(all_values), 0))


def sync_warp() -> None:
    exchange(None)


def load_words4(pointer: Pointer, offset: int) -> tuple[np.uint32, ...]:
    return tuple(pointer.part(offset, 16, np.uint32))


def load_words2(pointer: Pointer, offset: int) -> tuple[np.uint32, ...]:
    return tuple(pointer.part(offset, 8, np.uint32))


def load_floats4(pointer: Pointer, offset: int) -> tuple[np.float32, ...]:
    return tuple(pointer.part(offset, 16, np.float32))


def load_word(pointer: Pointer, offset: int) -> np.uint32:
    return pointer.part(offset, 4, np.uint32)[0]


def load_short(pointer: Pointer, offset: int) -> np.uint32:
    return np.uint32(pointer.part(offset, 2, np.uint16)[0])


def half_of(bits: Any) -> np.float32:
    return np.float32(np.uint16(int(bits) & 0xFFFF).view(np.float16))


def float_of(bits: Any) -> np.float32:
    return np.uint32(int(bits) & 0xFFFFFFFF).view(np.float32)


def bits_of(value: Any) -> np.uint32:
    return np.float32(value).view(np.uint32)


def nearest(value: Any) -> np.int32:
    return np.int32(0) if np.isnan(value) else np.int32(np.rint(value))


def signed_byte(bits: Any, index: int) -> np.int32:
    byte = int(bits) >> (8 * index) & 255
    return np.int32(byte - 256 if byte > 127 else byte)


def dot4(a: Any, b: Any, total: Any) -> np.int32:
    products = (signed_byte(a, i).item() * signed_byte(b, i).item() for i in range(4))
    return np.int32(int(total) + sum(products))


def permute_bytes(a: Any, b: Any, selector: Any) -> np.uint32:
    both = int(b) << 32 | int(a)
    taken = 0
    for i in range(4):
        nibble = int(selector) >> (4 * i) & 15
        byte = both >> (8 * (nibble & 7)) & 255
        if nibble & 8:  # the sign of the byte, eight times
            byte = 255 if byte & 128 else 0
        taken |= byte << (8 * i)
    return np.uint32(taken)


def pack_halves(low: Any, high: Any) -> np.uint32:
    with np.errstate(over="ignore"):
        return np.array([low, high], np.float32).astype(np.float16).view(np.uint32)[0]


def pack_bfloats(low: Any, high: Any) -> np.uint32:
    return np.uint32(_bfloat(low) | _bfloat(high) << 16)


def _bfloat(value: Any) -> int:
    """The nearest bfloat16, ties to even, as its bits."""
    bits = int(bits_of(value))
    if bits & 0x7FFFFFFF > 0x7F800000:  # NaN
        return 0x7FFF
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _halves(words: Sequence[Any]) -> np.ndarray:
    """float32, two of each word."""
    return np.array(words, np.uint32).view(np.float16).astype(np.float32)


def _bfloats(words: Sequence[Any]) -> np.ndarray:
    shorts = np.array(words, np.uint32).view(np.uint16)
    return (shorts.astype(np.uint32) << 16).view(np.float32)


LANES = np.arange(32)
GROUP, PAIR = LANES // 4, 2 * (LANES % 4)


def _mma(numbers: Any) -> Any:
    def product(parts: list[Any]) -> np.ndarray:
        """The four numbers of each lane, float32 (32, 4)."""
        A, B = np.empty((16, 16), np.float32), np.empty((16, 8), np.float32)
        values = numbers(parts).reshape(32, 6, 2)
        for i in range(2):
            A[GROUP, PAIR + i], A[GROUP + 8, PAIR + i] = values[:, 0, i], values[:, 1, i]
            A[GROUP, PAIR + 8 + i], A[GROUP + 8, PAIR + 8 + i] = values[:, 2, i], values[:, 3, i]
            B[PAIR + i, GROUP], B[PAIR + 8 + i, GROUP] = values[:, 4, i], values[:, 5, i]
        D = A @ B
        return np.stack([D[GROUP, PAIR], D[GROUP, PAIR + 1], D[GROUP + 8, PAIR], D[GROUP + 8, PAIR + 1]], axis=1)

    def mma(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
        d0, d1, d2, d3 = exchange((a0, a1, a2, a3, b0, b1), product)[lane_of()]
        return c0 + d0, c1 + d1, c2 + d2, c3 + d3

    return mma


mma_bfloats, mma_halves, mma_halves_75 = _mma(_bfloats), _mma(_halves), _mma(_halves)


def load_matrices4(array: np.ndarray, offset: int) -> tuple[np.uint32, ...]:
    offsets = exchange(int(offset))
    lane = lane_of()
    return tuple(array[offsets[8 * i + lane // 4] + lane % 4] for i in range(4))


def load_shared4(array: np.ndarray, offset: int) -> tuple[np.uint32, ...]:
    return tuple(array[offset : offset + 4])


def longs_at(address: Any) -> Any:
    return pointer_at(int(address), "Longs")


def shorts_at(address: Any) -> Any:
    return pointer_at(int(address), "Shorts")


def bytes_at(address: Any) -> Any:
    return pointer_at(int(address), "SignedBytes")


def floats_at(address: Any) -> Any:
    return pointer_at(int(address), "Floats")
