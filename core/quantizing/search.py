"""The searches of ggml for the scale of a run of weights: `make_qkx2_quants` and `make_qx_quants` in `ggml-quants.c`.

Importing this module imports Numba. Arrays are float32 (weights of a run, runs): loops go over runs side by side, which
become vectors, and sums go from a run's first weight to its last, as in ggml, so that the bits are the same.
"""

from __future__ import annotations

import numba
import numpy as np

f32 = np.float32
ZERO = f32(0)
SMALLEST = f32(1e-15)  # what is below it counts as zero

# The scales that are tried: the run's extent over each of these numbers of levels.
LEVELS_Q4_K = f32(-1) + f32(0.1) * np.arange(21, dtype=np.float32) + f32(15)
LEVELS_Q6_K = f32(32) + f32(0.1) * np.array([0, *range(-9, 0), *range(1, 10)], np.float32)


@np.errstate(all="ignore")
def scales_and_minima(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For x ≈ scale·q - minimum, q from 0 to 15, minimum ≥ 0: scale and minimum of each run, and q (as float32).

    21 scales are tried around (max - min)/15. With the q of each, scale and minimum are the least squares of the errors
    weighted by √(mean x²) + |x|; the first with the least error is taken.
    """
    weight = np.sqrt(np.add.reduce(x * x, axis=0) / f32(len(x))) + np.abs(x)
    sums = np.stack([np.add.reduce(weight, axis=0), np.add.reduce(weight * x, axis=0)])
    low, high = np.minimum(x.min(axis=0), ZERO), x.max(axis=0)
    inverse = f32(15) / (high - low)
    found = np.stack([f32(1) / inverse, inverse, low])
    q = np.clip(np.rint(inverse * (x - low)), 0, 15)
    error = found[0] * q + low - x
    least = np.add.reduce(weight * (error * error), axis=0)
    memory = np.empty((5, x.shape[1]), np.float32)
    _try_scales_and_minima(LEVELS_Q4_K, x, weight, sums, low, high, least, found, q, memory)
    scale, inverse, first_low = found
    q = np.clip(np.rint(inverse * (x - first_low)), 0, 15)
    flat = high == np.minimum(x.min(axis=0), ZERO)
    return np.where(flat, ZERO, scale), -low, np.where(flat, ZERO, q)


@numba.njit(error_model="numpy", nogil=True)
def _try_scales_and_minima(
    levels: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    sums: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    least: np.ndarray,
    found: np.ndarray,
    q: np.ndarray,
    memory: np.ndarray,
) -> None:
    """Where a trial's error is below `least`: that, `low`, and in `found` the scale, and what q came from."""
    n_weights, n = x.shape
    inverse, sum_q, sum_qq, sum_qx, error = memory[0], memory[1], memory[2], memory[3], memory[4]
    for level in levels:
        for j in range(n):
            inverse[j] = level / (high[j] - low[j])
        sum_q[:], sum_qq[:], sum_qx[:], error[:] = ZERO, ZERO, ZERO, ZERO
        for i in range(n_weights):
            for j in range(n):
                q[i, j] = min(max(np.rint(inverse[j] * (x[i, j] - low[j])), ZERO), f32(15))
            for j in range(n):  # a loop for each sum: with more of them the compiler makes no vectors
                sum_q[j] += weight[i, j] * q[i, j]
            for j in range(n):
                sum_qq[j] += weight[i, j] * q[i, j] * q[i, j]
            for j in range(n):
                sum_qx[j] += weight[i, j] * q[i, j] * x[i, j]
        scale, minimum = sum_qx, sum_q
        for j in range(n):
            q1, qq, qx, w, wx = sum_q[j], sum_qq[j], sum_qx[j], sums[0, j], sums[1, j]
            determinant = w * qq - q1 * q1
            best_minimum = (qq * wx - q1 * qx) / determinant
            positive = best_minimum > ZERO
            scale[j] = qx / qq if positive else (w * qx - wx * q1) / determinant
            minimum[j] = ZERO if positive else best_minimum
            sum_qq[j] = determinant
        for i in range(n_weights):
            for j in range(n):
                miss = scale[j] * q[i, j] + minimum[j] - x[i, j]
                error[j] += weight[i, j] * (miss * miss)
        for j in range(n):
            if sum_qq[j] > ZERO and error[j] < least[j]:
                least[j] = error[j]
                found[0, j], found[1, j], found[2, j] = scale[j], inverse[j], low[j]
                low[j] = minimum[j]


@np.errstate(all="ignore")
def scales(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For x ≈ scale·q, q from -32 to 31: the scale of each run, and q (as float32).

    19 scales are tried around the one that makes the x farthest from zero -32. With the q of each, the scale is the
    least squares of the errors weighted by x²; the first with the least error is taken.
    """
    farthest = np.take_along_axis(x, np.abs(x).argmax(axis=0)[None], axis=0)[0]
    weight = x * x
    found = np.stack([np.zeros_like(farthest), np.full_like(farthest, -1), -LEVELS_Q6_K[0] / farthest])
    _try_scales(LEVELS_Q6_K, x, weight, weight * x, farthest, found, np.empty((4, x.shape[1]), np.float32))
    scale, _, inverse = found
    empty = np.abs(farthest) < SMALLEST
    q = np.clip(np.rint(inverse * x), -32, 31)
    return np.where(empty, ZERO, scale), np.where(empty, f32(-32), q)


@numba.njit(error_model="numpy", nogil=True)
def _try_scales(
    levels: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    weight_x: np.ndarray,
    farthest: np.ndarray,
    found: np.ndarray,
    memory: np.ndarray,
) -> None:
    """found: the scale, scale·Σ w·x·q, which is larger the less error there is, and what q came from."""
    n_weights, n = x.shape
    inverse, q, sum_qx, sum_qq = memory[0], memory[1], memory[2], memory[3]
    for level in levels:
        for j in range(n):
            inverse[j] = -level / farthest[j]
        sum_qx[:], sum_qq[:] = ZERO, ZERO
        for i in range(n_weights):
            for j in range(n):
                q[j] = min(max(np.rint(inverse[j] * x[i, j]), f32(-32)), f32(31))
            for j in range(n):
                sum_qx[j] += weight_x[i, j] * q[j]
            for j in range(n):
                sum_qq[j] += weight[i, j] * q[j] * q[j]
        for j in range(n):
            qx, qq = sum_qx[j], sum_qq[j]
            if qq > ZERO and qx * qx > found[1, j] * qq:
                found[0, j] = qx / qq
                found[1, j] = found[0, j] * qx
                found[2, j] = inverse[j]
