"""What the machine can do at most, measured: bytes read from memory, and float32 multiply-adds in registers.

Importing this module imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from time import perf_counter

import numpy as np

from ringlet.core.backend import MachineLimits
from ringlet.plugins.backends.cpu.compiling import entry_point
from ringlet.plugins.backends.cpu.memory import load_f32s
from ringlet.plugins.backends.cpu.simd import fma, splat, sum_lanes
from ringlet.plugins.backends.cpu.target import LANES
from ringlet.plugins.backends.cpu.team import usable_cores

READ_BYTES = 1 << 28  # far more than caches hold
VECTOR = 4 * LANES  # bytes
ROUNDS = 3_000_000  # some milliseconds
SUMS = 10  # enough to keep two units busy that take four cycles each
PASSES = 3  # the best counts


@entry_point
def read(start, n_bytes):
    """The sum of the float32 at the address; n_bytes is a multiple of four vectors."""
    a = b = c = d = splat(np.float32(0))
    for at in range(start, start + n_bytes, 4 * VECTOR):
        a = a + load_f32s(at)
        b = b + load_f32s(at + VECTOR)
        c = c + load_f32s(at + 2 * VECTOR)
        d = d + load_f32s(at + 3 * VECTOR)
    return sum_lanes(a + b + (c + d))


@entry_point
def multiply_add(rounds, x, y):
    """SUMS vectors, each s = s·x + y `rounds` times, in registers. They start apart, or they would become one."""
    a, b, c, d, e = splat(y), splat(y + x), splat(y + 2 * x), splat(y + 3 * x), splat(y + 4 * x)
    f, g, h, i, j = splat(y - x), splat(y - 2 * x), splat(y - 3 * x), splat(y - 4 * x), splat(y - 5 * x)
    x, y = splat(x), splat(y)
    for _ in range(rounds):
        a, b, c, d, e = fma(a, x, y), fma(b, x, y), fma(c, x, y), fma(d, x, y), fma(e, x, y)
        f, g, h, i, j = fma(f, x, y), fma(g, x, y), fma(h, x, y), fma(i, x, y), fma(j, x, y)
    return sum_lanes(a + b + c + d + e + f + g + h + i + j)


def machine_limits(threads: int | None = None) -> MachineLimits:
    """Measured now, in a few tens of milliseconds after the first call. threads: None means the physical cores."""
    n_threads = usable_cores() if threads is None else threads
    start = address_to_read()
    share = READ_BYTES // n_threads // (4 * VECTOR) * (4 * VECTOR)
    half, one = np.float32(0.5), np.float32(1)
    read(start, 4 * VECTOR)  # compiled before the clock runs
    multiply_add(1, half, one)
    reading = shortest(n_threads, lambda thread: read(start + thread * share, share))
    multiplying = shortest(n_threads, lambda thread: multiply_add(ROUNDS, half, one))
    return MachineLimits(n_threads * share / reading, n_threads * ROUNDS * SUMS * LANES / multiplying)


@cache
def memory_to_read() -> np.ndarray:
    """Kept until the process ends, since making it takes longer than reading it."""
    return np.ones(READ_BYTES // 4 + 16, np.float32)  # zeros would all be one page of memory


def address_to_read() -> int:
    address = memory_to_read().ctypes.data
    return address + -address % 64


def shortest(n_threads: int, work: Callable[[int], object]) -> float:
    """Seconds that the threads take to do their work(thread) side by side, at best."""
    together = Barrier(n_threads)

    def run(thread: int) -> tuple[float, float]:
        together.wait()
        began = perf_counter()
        work(thread)
        return began, perf_counter()

    with ThreadPoolExecutor(n_threads) as pool:
        passes = [list(pool.map(run, range(n_threads))) for _ in range(PASSES)]
    return min(max(end for _, end in times) - min(began for began, _ in times) for times in passes)
