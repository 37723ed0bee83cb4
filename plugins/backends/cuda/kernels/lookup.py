"""Rows of a matrix in float32: a token's embedding, or a learned position's."""

from __future__ import annotations

import numpy as np
from numba import cuda, float32, uint32

from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.plugins.backends.cuda.kernels.declare import Bytes, Float, Floats, Int, Ints, Kernel, kernel
from ringlet.plugins.backends.cuda.kernels.floats import FLOAT_AT
from ringlet.plugins.backends.cuda.kernels.formats import UNPACK
from ringlet.plugins.backends.cuda.kernels.functions import signed_byte
from ringlet.plugins.backends.cuda.planes import LAYOUTS, is_quantised
from ringlet.plugins.backends.cuda.shapes import ACCUMULATE, COLUMN_THREADS


def lookup(format: str) -> Kernel:
    """The kernel for a format: out[t] = scale·row[indices[t]], or out[t] += …, a block a token.

    Its arguments: the planes; indices (n,); out, float32 (n, width padded); n_blocks of a row, or, where a block is one
    number, of a row with its padding; width; scale; flags.
    """
    return _lookup_blocks(format) if is_quantised(format) else _lookup_floats(format)


def _lookup_blocks(format: str) -> Kernel:
    unpack, column_of = UNPACK[format]
    CHUNKS, HALVES, WEIGHTS = LAYOUTS[format].chunks, LAYOUTS[format].halves, BLOCK_FORMATS[format].n_weights
    WORDS = 4 * HALVES

    @kernel(f"lookup-{format}", COLUMN_THREADS)
    def look_up(
        quants: Bytes,
        high: Bytes,
        scales: Bytes,
        head: Bytes,
        indices: Ints,
        out: Floats,
        n_blocks: Int,
        width: Int,
        scale: Float,
        flags: Int,
    ) -> None:
        q, d, m = cuda.local.array(WORDS, uint32), cuda.local.array(HALVES, float32), cuda.local.array(HALVES, float32)
        token = cuda.blockIdx.x
        row = indices[token]
        for chunk in range(cuda.threadIdx.x, n_blocks * CHUNKS, cuda.blockDim.x):
            block, part = chunk // CHUNKS, chunk % CHUNKS
            unpack(quants, high, scales, head, row * n_blocks + block, part, q, d, m)
            for half in range(HALVES):
                at = token * width + block * WEIGHTS + column_of(part, half)  # width is a multiple of a block
                for i in range(16):
                    number = np.float32(signed_byte(q[4 * half + (i >> 2)], i & 3))
                    value = (d[half] * number + m[half]) * scale
                    out[at + i] = out[at + i] + value if flags & ACCUMULATE else value

    return look_up


def _lookup_floats(format: str) -> Kernel:
    float_at = FLOAT_AT[format]

    @kernel(f"lookup-{format}", COLUMN_THREADS)
    def look_up(
        numbers: Bytes,
        high: Bytes,
        scales: Bytes,
        head: Bytes,
        indices: Ints,
        out: Floats,
        n_blocks: Int,
        width: Int,
        scale: Float,
        flags: Int,
    ) -> None:
        token = cuda.blockIdx.x
        row = indices[token]
        for column in range(cuda.threadIdx.x, width, cuda.blockDim.x):
            at, value = token * n_blocks + column, float_at(numbers, row * n_blocks + column) * scale
            out[at] = out[at] + value if flags & ACCUMULATE else value

    return look_up
