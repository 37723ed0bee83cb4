"""The pieces of attention put together, and the logits' soft cap."""

from __future__ import annotations

import math

import numpy as np
from numba import cuda

from ringlet.plugins.backends.cuda.kernels.declare import Bytes, Float, Floats, Int, Shorts, kernel
from ringlet.plugins.backends.cuda.kernels.rows import write_column
from ringlet.plugins.backends.cuda.kernels.warp import larger
from ringlet.plugins.backends.cuda.planes import ROW_PADDING
from ringlet.plugins.backends.cuda.shapes import COLUMN_THREADS

ZERO, MINUS_INFINITY = np.float32(0), np.float32(-np.inf)


@kernel("merge", COLUMN_THREADS)
def merge(
    partials: Floats,  # (n, n_heads, n_pieces, d_v): Σ eˢ⁻ᵐ·v over each piece
    states: Floats,  # (n, n_heads, n_pieces, 2): m = max s, -∞ where a piece is empty, and l = Σ eˢ⁻ᵐ
    floats: Floats,  # (n, n_heads·d_v padded), in the forms wanted: see `rows.write_column`
    bytes: Bytes,
    scales: Floats,
    sums: Floats,
    bfloats: Shorts,
    n_heads: Int,
    d_v: Int,
    n_pieces: Int,
    forms: Int,
) -> None:
    """O_head = Σ eˢ⁻ᵐ·v / Σ eˢ⁻ᵐ over all pieces, brought to one m (Milakov and Gimelshein 2018, section 3.1)."""
    column, token = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, cuda.blockIdx.y
    heads_width = n_heads * d_v
    width = (heads_width + ROW_PADDING - 1) // ROW_PADDING * ROW_PADDING
    if column >= width:
        return
    value = ZERO
    if column < heads_width:
        first = (token * n_heads + column // d_v) * n_pieces
        most = MINUS_INFINITY
        for piece in range(n_pieces):
            most = larger(most, states[2 * (first + piece)])
        total = ZERO
        for piece in range(n_pieces):
            if states[2 * (first + piece)] != MINUS_INFINITY:
                factor = np.float32(math.exp(states[2 * (first + piece)] - most))
                total += factor * states[2 * (first + piece) + 1]
                value += factor * partials[(first + piece) * d_v + column % d_v]
        value = value / total
    write_column(value, token * width + column, column < heads_width, floats, bytes, scales, sums, bfloats, forms)


@kernel("soft_cap", COLUMN_THREADS)
def soft_cap(x: Floats, n: Int, cap: Float) -> None:
    """x = cap·tanh(x/cap) (Gemma 2 report, section 2)."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        x[i] = cap * np.float32(math.tanh(x[i] / cap))
