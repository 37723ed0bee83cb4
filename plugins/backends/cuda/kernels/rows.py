"""Activations in the forms that products take: float32, bytes for integer dot products, bfloat16 for tensor cores.

In bytes, each 16 columns of a row are signed bytes q with x ≈ d·q, d = max|x|/127; d and d·Σq stand beside them. The
sums serve formats whose weights have an offset. These are the numbers of the cpu backend's byte rows.
"""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cuda.kernels.declare import device
from ringlet.plugins.backends.cuda.kernels.functions import bits_of, nearest
from ringlet.plugins.backends.cuda.kernels.warp import run_max, run_sum
from ringlet.plugins.backends.cuda.shapes import BFLOATS, BYTES, FLOATS

ZERO, LARGEST, SMALLEST = np.float32(0), np.float32(127), np.float32(1e-30)  # what is smaller counts as 0


@device
def write_column(value, at, inside, floats, bytes, scales, sums, bfloats, forms):
    """Write a value at the place `at` in all forms wanted. Lane i of a warp writes the place of lane 0, a multiple of
    32, plus i. inside: False in a row's padding, which stays 0."""
    if not inside:
        value = ZERO
    if forms & FLOATS and inside:
        floats[at] = value
    if forms & BFLOATS:
        bfloats[at] = bfloat_bits(value)
    if forms & BYTES:
        largest = run_max(abs(value))
        if largest < SMALLEST:
            largest = ZERO
        d = largest / LARGEST
        q = nearest(value * (LARGEST / largest)) if largest > ZERO else np.int32(0)
        total = run_sum(q)
        bytes[at] = q
        if at & 15 == 0:
            scales[at >> 4] = d
            sums[at >> 4] = d * np.float32(total)


@device
def bfloat_bits(value):
    """The nearest bfloat16, ties to even, as the lower 16 bits of a number."""
    bits = bits_of(value)
    if value != value:
        return np.int64(0x7FFF)
    return (np.int64(bits) + 0x7FFF + (np.int64(bits) >> 16 & 1)) >> 16
