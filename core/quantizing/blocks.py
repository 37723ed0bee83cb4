"""float32 weights → blocks, for each format that a model may be quantised to: the reverse of `core.quantization`.

What comes of a block is, to the last bit, what the `gguf` package makes of it; of Q4_K and Q6_K, which it cannot make,
what ggml's `quantize_row_q4_K_ref` and `quantize_row_q6_K_ref` do, unless its scale is zero in float16. The layouts are
described in `core.quantization`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ringlet.core.quantization import BLOCK_FORMATS

ALMOST_HALF = np.float32(0.49999997)  # the number below a half: added before a cut, halves are rounded away from zero


@np.errstate(all="ignore")  # blocks of zeros are divided by their scale; a scale may be beyond float16
def quantize(values: np.ndarray, format: str) -> np.ndarray:
    """uint8 (n_rows, bytes of a row) from float32 (n_rows, n_columns); n_columns: whole blocks of the format."""
    block, (n_rows, n_columns) = BLOCK_FORMATS[format], values.shape
    blocks = np.ascontiguousarray(values, np.float32).reshape(-1, block.n_weights)
    return QUANTIZE[format](blocks).reshape(n_rows, n_columns // block.n_weights * block.n_bytes)


# Each of these takes float32 (n, weights of a block) and returns uint8 (n, bytes of a block).


def _q8_0(x: np.ndarray) -> np.ndarray:
    """d = max |x| / 127, q = x/d to the nearest, halves away from zero."""
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    scaled = x * _inverse(d)
    q = (scaled + np.copysign(ALMOST_HALF, scaled)).astype(np.int8)
    return np.concatenate([_f16(d), q.view(np.uint8)], axis=1)


def _q4_0(x: np.ndarray) -> np.ndarray:
    """The x farthest from zero becomes -8: d = x / -8, q = x/d + 8 to the nearest, at most 15."""
    d = _farthest(x) / np.float32(-8)
    q = _cut(x * _inverse(d) + np.float32(8.5), 15)
    return np.concatenate([_f16(d), _halves(q)], axis=1)


def _q4_1(x: np.ndarray) -> np.ndarray:
    """m = min x, d = (max x - m)/15, q = (x - m)/d to the nearest."""
    m = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - m) / np.float32(15)
    q = _cut((x - m) * _inverse(d) + np.float32(0.5), 15)
    return np.concatenate([_f16(d), _f16(m), _halves(q)], axis=1)


def _q5_0(x: np.ndarray) -> np.ndarray:
    """As Q4_0 with -16: d = x / -16, q = x/d + 16 to the nearest, at most 31."""
    d = _farthest(x) / np.float32(-16)
    q = _cut(x * _inverse(d) + np.float32(16.5), 31)
    fifth_bits = np.packbits(q >> 4, axis=1, bitorder="little")
    return np.concatenate([_f16(d), fifth_bits, _halves(q & 15)], axis=1)


def _q4_k(x: np.ndarray) -> np.ndarray:
    """Runs of 32: a scale and a minimum by search; both in 6 bits of the block's largest; then q to the nearest."""
    from ringlet.core.quantizing.search import scales_and_minima  # imports Numba

    n = len(x)
    runs = np.ascontiguousarray(x.reshape(8 * n, 32).T)
    scale, minimum, first_q = scales_and_minima(runs)
    d, s = _six_bits(scale.reshape(n, 8))
    m, t = _six_bits(minimum.reshape(n, 8))
    run_scale, run_minimum = _products(d, s), _products(m, t)
    q = np.clip(np.rint((runs + run_minimum) / run_scale), 0, 15)
    q = np.where(run_scale == 0, first_q, q).astype(np.uint8).T.reshape(n, 4, 2, 32)
    packed = [s[:, :4] | s[:, 4:] >> 4 << 6, t[:, :4] | t[:, 4:] >> 4 << 6, s[:, 4:] & 15 | t[:, 4:] << 4]
    return np.concatenate([_f16(d), _f16(m), *packed, (q[:, :, 0] | q[:, :, 1] << 4).reshape(n, 128)], axis=1)


def _q6_k(x: np.ndarray) -> np.ndarray:
    """Runs of 16: a scale by search, in 8 bits of the block's largest, which becomes -128; then q to the nearest."""
    from ringlet.core.quantizing.search import SMALLEST, scales  # imports Numba

    n = len(x)
    runs = np.ascontiguousarray(x.reshape(16 * n, 16).T)
    found, first_q = scales(runs)
    found = found.reshape(n, 16)
    largest = _farthest(found)
    empty = np.abs(largest) < SMALLEST
    inverse = np.float32(-128) / largest
    d = np.where(empty, np.float32(0), np.float32(1) / inverse)
    s = np.where(empty, np.float32(0), np.minimum(np.rint(inverse * found), 127)).astype(np.int8)
    run_scale = _products(d, s)
    q = np.clip(np.rint(runs / run_scale), -32, 31)
    q = (np.where(run_scale == 0, first_q, q) + 32).astype(np.uint8).T.reshape(n, 2, 4, 32)
    q[empty[:, 0]] = 0
    low = (q[:, :, :2] & 15 | q[:, :, 2:] << 4).reshape(n, 128)
    high = (q[:, :, 0] >> 4 | q[:, :, 1] >> 4 << 2 | q[:, :, 2] >> 4 << 4 | q[:, :, 3] >> 4 << 6).reshape(n, 64)
    return np.concatenate([low, high, s.view(np.uint8), _f16(d)], axis=1)


def _inverse(d: np.ndarray) -> np.ndarray:
    """1/d, and 0 for 0."""
    return np.where(d == 0, np.float32(0), np.float32(1) / d)


def _farthest(x: np.ndarray) -> np.ndarray:
    """(n, 1): of each row the number farthest from zero, of equals the first."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), axis=1)


def _cut(q: np.ndarray, most: int) -> np.ndarray:
    """uint8: without what is behind the point, and at most `most`."""
    return np.minimum(q.astype(np.uint8), np.uint8(most))


def _f16(numbers: np.ndarray) -> np.ndarray:
    """The bytes of (n, 1) numbers as float16."""
    return numbers.astype("<f2").view(np.uint8)


def _halves(q: np.ndarray) -> np.ndarray:
    """Two numbers of four bits a byte: the first half of a block low, the second high."""
    return q[:, :16] | q[:, 16:] << 4


def _six_bits(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of (n, 8) numbers from 0 on: d (n, 1), the largest over 63, and each number over d, uint8."""
    largest = np.maximum(numbers.max(axis=1, keepdims=True), 0) + np.float32(0)  # never -0
    inverse = np.where(largest > 0, np.float32(63) / largest, np.float32(0))
    return largest / np.float32(63), np.minimum(np.rint(inverse * numbers), 63).astype(np.uint8)


def _products(d: np.ndarray, s: np.ndarray) -> np.ndarray:
    """d·s of every run, in a row, d as it is stored."""
    return (d.astype(np.float16).astype(np.float32) * s.astype(np.float32)).reshape(-1)


QUANTIZE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q4_K": _q4_k,
    "Q6_K": _q6_k,
}
