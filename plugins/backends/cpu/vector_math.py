"""Functions of vectors, from their series; errors are a few units in the last place, and NaN stays NaN."""

from __future__ import annotations

import math

import numpy as np

from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.simd import absolute, fma, nearest, power_of_two, select, splat

f = np.float32
LOG2_E, LN2_HIGH, LN2_LOW = f(1 / math.log(2)), f(0.693359375), f(math.log(2) - 0.693359375)
EXP_LOWEST, EXP_HIGHEST = f(-87.0), f(88.0)
EXP = tuple(f(x) for x in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5))
TANH = tuple(
    f(x) for x in (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
)
ERF = tuple(f(x) for x in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
ERF_P = f(0.3275911)
SQRT_HALF, GELU_A, GELU_B = f(math.sqrt(0.5)), f(math.sqrt(2 / math.pi)), f(0.044715)
ONE, HALF, TWO, ZERO = f(1), f(0.5), f(2), f(0)


@kernel
def exp(x):
    """eˣ = 2ⁿ·eʳ with r = x - n·ln 2 (Cephes, expf); 0 below -87, e⁸⁸ above 88."""
    y = select(x < EXP_LOWEST, EXP_LOWEST, select(x > EXP_HIGHEST, EXP_HIGHEST, x))
    n = nearest(y * LOG2_E)
    r = fma(n, splat(-LN2_LOW), fma(n, splat(-LN2_HIGH), y))
    p = fma(splat(EXP[0]), r, splat(EXP[1]))
    p = fma(p, r, splat(EXP[2]))
    p = fma(p, r, splat(EXP[3]))
    p = fma(p, r, splat(EXP[4]))
    p = fma(p, r, splat(EXP[5]))
    p = fma(p, r * r, r + ONE)
    return select(x < EXP_LOWEST, ZERO, p * power_of_two(n))


@kernel
def tanh(x):
    """1 - 2/(e²ˣ + 1), and by its series near 0 (Cephes, tanhf)."""
    a = absolute(x)
    far = ONE - TWO / (exp(a * TWO) + ONE)
    z = x * x
    p = fma(splat(TANH[0]), z, splat(TANH[1]))
    p = fma(p, z, splat(TANH[2]))
    p = fma(p, z, splat(TANH[3]))
    p = fma(p, z, splat(TANH[4]))
    near = fma(p * z, x, x)
    return select(a < f(0.625), near, select(x < ZERO, ZERO - far, far))


@kernel
def erf(x):
    """The error function (Abramowitz and Stegun 7.1.26, error below 1.5e-7)."""
    z = absolute(x)
    t = ONE / fma(splat(ERF_P), z, splat(ONE))
    p = fma(splat(ERF[0]), t, splat(ERF[1]))
    p = fma(p, t, splat(ERF[2]))
    p = fma(p, t, splat(ERF[3]))
    p = fma(p, t, splat(ERF[4]))
    y = ONE - p * t * exp(ZERO - z * z)
    return select(x < ZERO, ZERO - y, y)


@kernel
def larger(x, y):
    return select(x < y, y, x)


@kernel
def silu(x):
    """x·σ(x)."""
    return x / (exp(ZERO - x) + ONE)


@kernel
def gelu(x):
    """x·Φ(x) (Hendrycks and Gimpel 2016)."""
    return x * HALF * (erf(x * SQRT_HALF) + ONE)


@kernel
def gelu_tanh(x):
    """x·Φ(x) by the tanh formula of the same paper."""
    return x * HALF * (tanh(fma(x * x * x, splat(GELU_B), x) * GELU_A) + ONE)


@kernel
def relu(x):
    return select(x < ZERO, ZERO, x)


@kernel
def soft_cap(x, cap):
    """cap·tanh(x/cap) (Gemma 2 report, section 2)."""
    return tanh(x / cap) * cap
