"""What happens to one token's activations between the products: norms, rotation, activation, sums.

Arguments x, y, out, weight … are addresses of float32 rows. Rows that are padded may be handled a vector at a time; the
padding holds zeros and keeps them.
"""

from __future__ import annotations

import math

import numpy as np

from ringlet.plugins.backends.cpu import vector_math
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f32, load_f32s, load_f64, store, store_f32
from ringlet.plugins.backends.cpu.records import ACTIVATIONS
from ringlet.plugins.backends.cpu.simd import first_lane, fma, splat, sum_lanes
from ringlet.plugins.backends.cpu.target import LANES

SILU, GELU, GELU_TANH, RELU = (ACTIVATIONS.index(name) for name in ("silu", "gelu", "gelu_tanh", "relu"))
ZERO = np.float32(0)


@kernel
def scale(x, n, factor):
    """x *= factor, padded."""
    for i in range(0, n, LANES):
        store(x + 4 * i, load_f32s(x + 4 * i) * factor)


@kernel
def add(x, y, n):
    """x += y, padded."""
    for i in range(0, n, LANES):
        store(x + 4 * i, load_f32s(x + 4 * i) + load_f32s(y + 4 * i))


@kernel
def add_exactly(x, y, n):
    """x += y, and nothing beyond n."""
    whole = n // LANES * LANES
    add(x, y, whole)
    for i in range(whole, n):
        store_f32(x + 4 * i, load_f32(x + 4 * i) + load_f32(y + 4 * i))


@kernel
def copy(x, n, out):
    whole = n // LANES * LANES
    for i in range(0, whole, LANES):
        store(out + 4 * i, load_f32s(x + 4 * i))
    for i in range(whole, n):
        store_f32(out + 4 * i, load_f32(x + 4 * i))


@kernel
def sum_of_squares(x, n, mean):
    """Σ (xᵢ - mean)²."""
    total, whole = splat(ZERO), n // LANES * LANES
    for i in range(0, whole, LANES):
        d = load_f32s(x + 4 * i) - mean
        total = fma(d, d, total)
    rest = ZERO
    for i in range(whole, n):
        d = load_f32(x + 4 * i) - mean
        rest += d * d
    return sum_lanes(total) + rest


@kernel
def rms_norm(x, weight, n, epsilon, out):
    """x/√(mean(x²) + ε)·weight (Zhang and Sennrich 2019, eq. 4); all padded, out may be x."""
    factor = np.float32(1) / np.float32(math.sqrt(sum_of_squares(x, n, ZERO) / np.float32(n) + epsilon))
    for i in range(0, n, LANES):
        store(out + 4 * i, load_f32s(x + 4 * i) * factor * load_f32s(weight + 4 * i))


@kernel
def layer_norm(x, weight, bias, n, epsilon, out):
    """(x - mean)/√(variance + ε)·weight + bias (Ba et al. 2016, eq. 4); all padded, out may be x; bias may be 0."""
    total = splat(ZERO)
    for i in range(0, n, LANES):
        total = total + load_f32s(x + 4 * i)
    mean = sum_lanes(total) / np.float32(n)
    factor = np.float32(1) / np.float32(math.sqrt(sum_of_squares(x, n, mean) / np.float32(n) + epsilon))
    for i in range(0, n, LANES):
        y = (load_f32s(x + 4 * i) - mean) * factor * load_f32s(weight + 4 * i)
        if bias != 0:
            y = y + load_f32s(bias + 4 * i)
        store(out + 4 * i, y)


@kernel
def norm(model, weights, x, out):
    """The model's norm of a token's d_model activations."""
    if model.layer_norm:
        layer_norm(x, weights.weight, weights.bias, model.d_model, model.norm_epsilon, out)
    else:
        rms_norm(x, weights.weight, model.d_model, model.norm_epsilon, out)


@kernel
def fill_angles(rope, position, cos, sin):
    """cos and sin of position·frequency, one a pair, in float64 and then rounded; the magnitude multiplies both."""
    for pair in range(rope.n_pairs):
        angle = position * load_f64(rope.frequencies + 8 * pair)
        store_f32(cos + 4 * pair, np.float32(math.cos(angle) * rope.magnitude))
        store_f32(sin + 4 * pair, np.float32(math.sin(angle) * rope.magnitude))


@kernel
def rotate(x, rope, cos, sin):
    """The pairs of a head, rotated in place (Su et al. 2021, RoFormer, eq. 34)."""
    step, apart = (2, 1) if rope.adjacent else (1, rope.n_pairs)
    for pair in range(rope.n_pairs):
        first = x + 4 * step * pair
        second = first + 4 * apart
        a, b, c, s = load_f32(first), load_f32(second), load_f32(cos + 4 * pair), load_f32(sin + 4 * pair)
        store_f32(first, a * c - b * s)
        store_f32(second, a * s + b * c)


@kernel
def activate(kind, x, n):
    """The activation function on x, in place, padded."""
    if kind == SILU:
        for i in range(0, n, LANES):
            store(x + 4 * i, vector_math.silu(load_f32s(x + 4 * i)))
    elif kind == GELU:
        for i in range(0, n, LANES):
            store(x + 4 * i, vector_math.gelu(load_f32s(x + 4 * i)))
    elif kind == GELU_TANH:
        for i in range(0, n, LANES):
            store(x + 4 * i, vector_math.gelu_tanh(load_f32s(x + 4 * i)))
    else:
        for i in range(0, n, LANES):
            store(x + 4 * i, vector_math.relu(load_f32s(x + 4 * i)))


@kernel
def multiply(x, y, n):
    """x *= y, padded."""
    for i in range(0, n, LANES):
        store(x + 4 * i, load_f32s(x + 4 * i) * load_f32s(y + 4 * i))


@kernel
def soft_cap(x, n, cap):
    """cap·tanh(x/cap) on a row that need not be padded, in place."""
    whole = n // LANES * LANES
    for i in range(0, whole, LANES):
        store(x + 4 * i, vector_math.soft_cap(load_f32s(x + 4 * i), cap))
    for i in range(whole, n):
        store_f32(x + 4 * i, first_lane(vector_math.soft_cap(splat(load_f32(x + 4 * i)), cap)))
