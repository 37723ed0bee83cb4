"""The feed-forward part between its products: activation(gate)·up, or activation(up)."""

from __future__ import annotations

import math

import numpy as np
from numba import cuda

from ringlet.plugins.backends.cuda.kernels.declare import Bytes, Floats, Int, Shorts, device, kernel
from ringlet.plugins.backends.cuda.kernels.rows import write_column
from ringlet.plugins.backends.cuda.planes import ROW_PADDING
from ringlet.plugins.backends.cuda.shapes import ACTIVATIONS, COLUMN_THREADS

SILU, GELU, GELU_TANH = (ACTIVATIONS.index(name) for name in ("silu", "gelu", "gelu_tanh"))
ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
ROOT_HALF, ROOT_TWO_OVER_PI, CUBIC = (np.float32(v) for v in (math.sqrt(0.5), math.sqrt(2 / math.pi), 0.044715))
LOWEST = np.float32(-700)  # e^700 is infinite as a float32, and still a number for Python


@device
def activate(x, kind):
    """silu: x·σ(x); gelu: x·Φ(x) (Hendrycks and Gimpel 2016), also by its tanh formula; relu: max(x, 0)."""
    if kind == SILU:
        return x / (ONE + np.float32(math.exp(-x if x > LOWEST or x != x else -LOWEST)))
    if kind == GELU:
        return HALF * x * (ONE + np.float32(math.erf(x * ROOT_HALF)))
    if kind == GELU_TANH:
        return HALF * x * (ONE + np.float32(math.tanh(ROOT_TWO_OVER_PI * (x + CUBIC * x * x * x))))
    return x if x > ZERO or x != x else ZERO


@kernel("hidden", COLUMN_THREADS)
def hidden(
    x: Floats,  # (n, stride): x·W_up, then x·W_gate where the recipe has it
    floats: Floats,  # (n, d_ff padded), in the forms wanted: see `rows.write_column`
    bytes: Bytes,
    scales: Floats,
    sums: Floats,
    bfloats: Shorts,
    d_ff: Int,
    stride: Int,
    kind: Int,  # index into ACTIVATIONS
    gated: Int,
    forms: Int,
) -> None:
    """activation(x·W_gate)·(x·W_up) or activation(x·W_up) (Shazeer 2020, GLU Variants, eq. 5)."""
    column, token = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, cuda.blockIdx.y
    width = (d_ff + ROW_PADDING - 1) // ROW_PADDING * ROW_PADDING
    if column >= width:  # whole warps, since width is a multiple of 32
        return
    value = ZERO
    if column < d_ff:
        value = x[token * stride + column]
        if gated:
            value *= activate(x[token * stride + d_ff + column], kind)
        else:
            value = activate(value, kind)
    write_column(value, token * width + column, column < d_ff, floats, bytes, scales, sums, bfloats, forms)
