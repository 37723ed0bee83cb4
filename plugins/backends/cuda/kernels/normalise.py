"""The residual stream between the products: add what a part of the block returned, and norm for the next part."""

from __future__ import annotations

import math

import numpy as np
from numba import cuda, float32

from ringlet.plugins.backends.cuda.kernels.block import block_sum
from ringlet.plugins.backends.cuda.kernels.declare import Bytes, Float, Floats, Int, Ints, Shorts, kernel
from ringlet.plugins.backends.cuda.kernels.rows import write_column
from ringlet.plugins.backends.cuda.planes import ROW_PADDING
from ringlet.plugins.backends.cuda.shapes import ADD, CHOSEN, LAYER_NORM, NORM_BIAS, POST_NORM, ROW_THREADS

ZERO, ONE = np.float32(0), np.float32(1)


@kernel("normalise", ROW_THREADS)
def normalise(
    x: Floats,  # (n, width padded): the residual stream
    added: Floats,  # the same shape: what is added to it
    post_weight: Floats,  # (width,): of the norm of what is added
    weight: Floats,  # (width,)
    bias: Floats,
    chosen: Ints,  # which row of x the block has, where flags say so; else its own
    floats: Floats,  # the normed row, in the forms wanted: see `rows.write_column`
    bytes: Bytes,
    scales: Floats,
    sums: Floats,
    bfloats: Shorts,
    width: Int,
    epsilon: Float,
    flags: Int,
    forms: Int,
) -> None:
    """x/√(mean(x²) + ε)·weight (Zhang and Sennrich 2019, eq. 4) or LayerNorm (Ba et al. 2016, eq. 4), a block a row."""
    shared = cuda.shared.array(32, float32)
    thread, threads, row = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    stride = (width + ROW_PADDING - 1) // ROW_PADDING * ROW_PADDING
    source = chosen[row] * stride if flags & CHOSEN else row * stride
    inverse_width = ONE / np.float32(width)
    if flags & ADD:
        post_factor, post_mean = ONE, ZERO
        if flags & POST_NORM:
            if flags & LAYER_NORM:
                total = ZERO
                for column in range(thread, width, threads):
                    total += added[source + column]
                post_mean = block_sum(total, shared) * inverse_width
            total = ZERO
            for column in range(thread, width, threads):
                centred = added[source + column] - post_mean
                total += centred * centred
            post_factor = ONE / np.float32(math.sqrt(block_sum(total, shared) * inverse_width + epsilon))
        for column in range(thread, width, threads):
            value = added[source + column]
            if flags & POST_NORM:
                value = (value - post_mean) * post_factor * post_weight[column]
            x[source + column] += value
    mean = ZERO  # each thread reads what it wrote itself
    if flags & LAYER_NORM:
        total = ZERO
        for column in range(thread, width, threads):
            total += x[source + column]
        mean = block_sum(total, shared) * inverse_width
    total = ZERO
    for column in range(thread, width, threads):
        centred = x[source + column] - mean
        total += centred * centred
    factor = ONE / np.float32(math.sqrt(block_sum(total, shared) * inverse_width + epsilon))
    for column in range(thread, stride, threads):
        value = ZERO
        if column < width:
            value = (x[source + column] - mean) * factor * weight[column]
            if flags & NORM_BIAS:
                value += bias[column]
        write_column(value, row * stride + column, column < width, floats, bytes, scales, sums, bfloats, forms)
