"""Products of quantised rows with activations in bytes, for one token or a few: integer dot products, d·q + m.

A warp has ROWS rows and goes along them, a chunk of weights a lane; each chunk is unpacked once for all of its tokens.
What is read from memory is the matrix, once for every `tokens` tokens; activations come from the caches.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32, uint32

from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.plugins.backends.cuda.kernels.declare import Bytes, Floats, Int, Kernel, kernel
from ringlet.plugins.backends.cuda.kernels.formats import UNPACK
from ringlet.plugins.backends.cuda.kernels.functions import dot4, load_words4
from ringlet.plugins.backends.cuda.kernels.warp import warp_sums
from ringlet.plugins.backends.cuda.planes import LAYOUTS
from ringlet.plugins.backends.cuda.shapes import ACCUMULATE, BIAS, PRODUCT_BLOCKS, product_rows, product_warps


def byte_product(format: str, tokens: int) -> Kernel:
    """The kernel for a block format that multiplies so many tokens at once."""
    unpack, column_of = UNPACK[format]
    CHUNKS, HALVES = LAYOUTS[format].chunks, LAYOUTS[format].halves
    WEIGHTS, WORDS = BLOCK_FORMATS[format].n_weights, 4 * LAYOUTS[format].halves
    WARPS, ROWS, TOKENS = product_warps(format, tokens), product_rows(tokens), tokens
    TOTALS = ROWS * TOKENS

    @kernel(f"byte_product-{format}-{tokens}", 32 * WARPS, PRODUCT_BLOCKS.get((format, tokens), 0))
    def multiply(
        quants: Bytes,
        high: Bytes,
        scales: Bytes,
        head: Bytes,
        x: Bytes,  # (n_tokens, n_blocks·WEIGHTS) bytes, and for each 16 a scale and a sum: see `rows.write_column`
        x_scales: Floats,
        x_sums: Floats,
        bias: Floats,  # (n_rows,), if flags say so
        out: Floats,  # out[token·out_stride + row]
        n_rows: Int,
        n_blocks: Int,  # of a row
        n_tokens: Int,
        out_stride: Int,
        flags: Int,
    ) -> None:
        lane = cuda.threadIdx.x & 31
        first_row = (cuda.blockIdx.x * WARPS + (cuda.threadIdx.x >> 5)) * ROWS
        first_token = cuda.blockIdx.y * TOKENS
        q, d, m = cuda.local.array(WORDS, uint32), cuda.local.array(HALVES, float32), cuda.local.array(HALVES, float32)
        totals = cuda.local.array(TOTALS, float32)
        for i in range(TOTALS):
            totals[i] = np.float32(0)
        for chunk in range(lane, n_blocks * CHUNKS, 32):
            block, part = chunk // CHUNKS, chunk % CHUNKS
            for r in range(ROWS):
                row = min(first_row + r, n_rows - 1)
                unpack(quants, high, scales, head, row * n_blocks + block, part, q, d, m)
                for half in range(HALVES):
                    column = block * WEIGHTS + column_of(part, half)
                    for t in range(TOKENS):
                        at = min(first_token + t, n_tokens - 1) * n_blocks * WEIGHTS + column
                        words, dot = load_words4(x, at), np.int32(0)
                        for i in range(4):
                            dot = dot4(q[4 * half + i], words[i], dot)
                        run = at >> 4
                        totals[r * TOKENS + t] += d[half] * (x_scales[run] * np.float32(dot)) + m[half] * x_sums[run]
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
