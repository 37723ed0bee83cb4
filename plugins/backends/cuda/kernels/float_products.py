"""Products with matrices of F32, F16 and BF16 in float32, for one token or a few: a warp a row or two.

What is read from memory is the matrix, once for every `tokens` tokens.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

from ringlet.plugins.backends.cuda.kernels.declare import Bytes, Floats, Int, Kernel, kernel
from ringlet.plugins.backends.cuda.kernels.floats import FLOATS_AT_ONCE
from ringlet.plugins.backends.cuda.kernels.functions import load_floats4
from ringlet.plugins.backends.cuda.kernels.warp import warp_sums
from ringlet.plugins.backends.cuda.shapes import ACCUMULATE, BIAS, product_rows, product_warps


def float_product(format: str, tokens: int) -> Kernel:
    """The kernel for a format that multiplies so many tokens at once."""
    load_numbers, N = FLOATS_AT_ONCE[format]
    WARPS, ROWS, TOKENS, QUARTERS = product_warps(format, tokens), product_rows(tokens), tokens, N // 4
    TOTALS = ROWS * TOKENS

    @kernel(f"float_product-{format}-{tokens}", 32 * WARPS)
    def multiply(
        numbers: Bytes,  # (n_rows, n_columns)
        x: Floats,  # (n_tokens, n_columns)
        bias: Floats,  # (n_rows,), if flags say so
        out: Floats,  # out[token·out_stride + row]
        n_rows: Int,
        n_columns: Int,  # with their padding
        n_tokens: Int,
        out_stride: Int,
        flags: Int,
    ) -> None:
        lane = cuda.threadIdx.x & 31
        first_row = (cuda.blockIdx.x * WARPS + (cuda.threadIdx.x >> 5)) * ROWS
        first_token = cuda.blockIdx.y * TOKENS
        w, totals = cuda.local.array(N, float32), cuda.local.array(TOTALS, float32)
        for i in range(TOTALS):
            totals[i] = np.float32(0)
        for column in range(N * lane, n_columns, 32 * N):
            for r in range(ROWS):
                load_numbers(numbers, min(first_row + r, n_rows - 1) * n_columns + column, w)
                for t in range(TOKENS):
                    at = min(first_token + t, n_tokens - 1) * n_columns + column
                    for quarter in range(QUARTERS):
                        values = load_floats4(x, 4 * (at + 4 * quarter))
                        for i in range(4):
                            totals[r * TOKENS + t] += w[4 * quarter + i] * values[i]
        warp_sums(totals, TOTALS)
        for r in range(ROWS):
            for t in range(TOKENS):
                total, row, token = totals[r * TOKENS + t], first_row + r, first_token + t
                if lane == 0 and row < n_rows and token < n_tokens:
                    at = token * out_stride + row
                    if flags & BIAS:
                        total += bias[row]
                    if flags & ACCUMULATE:
                        total += out[at]
                    out[at] = total

    return multiply
