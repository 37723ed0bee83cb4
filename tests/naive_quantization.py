"""Plain twins of the quantisers of 256 weights: one weight after the other, in float32, as ggml's reference does it."""

from __future__ import annotations

import numpy as np

f32 = np.float32


def nearest(x: np.float32, low: int, high: int) -> int:
    """To the nearest whole number, halves to even, held between the two."""
    return int(min(max(np.rint(x), low), high))


def scale_and_minimum(x: np.ndarray) -> tuple[np.float32, np.float32, list[int]]:
    """ggml's make_qkx2_quants(32, 15, …, -1, 0.1, 20): scale, minimum and q of 32 weights."""
    squares = f32(0)
    for v in x:
        squares += v * v
    mean = np.sqrt(squares / f32(32))
    weight = [mean + abs(v) for v in x]
    low, high, sum_w, sum_x = x[0], x[0], f32(0), f32(0)
    for v, w in zip(x, weight, strict=True):
        low, high, sum_w, sum_x = min(low, v), max(high, v), sum_w + w, sum_x + w * v
    low = min(low, f32(0))
    if low == high:
        return f32(0), -low, [0] * 32
    inverse = f32(15) / (high - low)
    scale = f32(1) / inverse
    best = [nearest(inverse * (v - low), 0, 15) for v in x]
    least = f32(0)
    for v, w, q in zip(x, weight, best, strict=True):
        miss = scale * f32(q) + low - v
        least += w * (miss * miss)
    for trial in range(21):
        inverse = (f32(-1) + f32(0.1) * f32(trial) + f32(15)) / (high - low)
        found = [nearest(inverse * (v - low), 0, 15) for v in x]
        sum_q, sum_qq, sum_qx = f32(0), f32(0), f32(0)
        for v, w, q in zip(x, weight, found, strict=True):
            sum_q, sum_qq, sum_qx = sum_q + w * f32(q), sum_qq + w * f32(q) * f32(q), sum_qx + w * f32(q) * v
        determinant = sum_w * sum_qq - sum_q * sum_q
        if not determinant > 0:
            continue
        new_scale = (sum_w * sum_qx - sum_x * sum_q) / determinant
        new_low = (sum_qq * sum_x - sum_q * sum_qx) / determinant
        if new_low > 0:
            new_low, new_scale = f32(0), sum_qx / sum_qq
        error = f32(0)
        for v, w, q in zip(x, weight, found, strict=True):
            miss = new_scale * f32(q) + new_low - v
            error += w * (miss * miss)
        if error < least:
            least, scale, low, best = error, new_scale, new_low, found
    return scale, -low, best


def q4_k(block: np.ndarray) -> np.ndarray:
    """256 weights → 144 bytes."""
    runs = block.reshape(8, 32)
    scales, minima, q = zip(*(scale_and_minimum(run) for run in runs), strict=True)
    d, s = six_bits(scales)
    m, t = six_bits(minima)
    levels = []
    for run, a, b, first in zip(runs, s, t, q, strict=True):
        scale, minimum = f32(d) * f32(a), f32(m) * f32(b)
        levels.append([nearest((v + minimum) / scale, 0, 15) for v in run] if scale else first)
    packed = [s[j] | s[j + 4] >> 4 << 6 for j in range(4)] + [t[j] | t[j + 4] >> 4 << 6 for j in range(4)]
    packed += [s[j + 4] & 15 | (t[j + 4] & 15) << 4 for j in range(4)]
    for pair in range(4):
        packed += [levels[2 * pair][i] | levels[2 * pair + 1][i] << 4 for i in range(32)]
    return np.frombuffer(np.array([d, m]).tobytes() + bytes(packed), np.uint8)


def six_bits(numbers: tuple[np.float32, ...]) -> tuple[np.float16, list[int]]:
    largest = max([f32(0), *numbers])
    inverse = f32(63) / largest if largest > 0 else f32(0)
    return np.float16(largest / f32(63)), [nearest(inverse * number, 0, 63) for number in numbers]


def scale_of_16(x: np.ndarray) -> tuple[np.float32, list[int]]:
    """ggml's make_qx_quants(16, 32, …, 1, NULL): scale and q, from 0 to 63, of 16 weights."""
    farthest = f32(0)
    for v in x:
        if abs(v) > abs(farthest):
            farthest = v
    if abs(farthest) < f32(1e-15):
        return f32(0), [0] * 16
    scale = goodness = f32(0)
    best = [0] * 16
    for step in (0, *range(-9, 0), *range(1, 10)):
        inverse = -(f32(32) + f32(0.1) * f32(step)) / farthest
        found = [nearest(inverse * v, -32, 31) for v in x]
        sum_qx, sum_qq = f32(0), f32(0)
        for v, q in zip(x, found, strict=True):
            sum_qx, sum_qq = sum_qx + v * v * v * f32(q), sum_qq + v * v * f32(q) * f32(q)
        if step == 0 or (sum_qq > 0 and sum_qx * sum_qx > goodness * sum_qq):
            scale = sum_qx / sum_qq if sum_qq else f32(0)
            goodness, best = scale * sum_qx, [q + 32 for q in found]
    return scale, best


def q6_k(block: np.ndarray) -> np.ndarray:
    """256 weights → 210 bytes."""
    runs = block.reshape(16, 16)
    scales, levels = zip(*(scale_of_16(run) for run in runs), strict=True)
    largest = f32(0)
    for scale in scales:
        if abs(scale) > abs(largest):
            largest = scale
    if abs(largest) < f32(1e-15):
        return np.zeros(210, np.uint8)
    inverse = f32(-128) / largest
    d, s = np.float16(f32(1) / inverse), [nearest(inverse * scale, -128, 127) for scale in scales]
    q = []
    for run, a, first in zip(runs, s, levels, strict=True):
        scale = f32(d) * f32(a)
        q += [nearest(v / scale, -32, 31) + 32 for v in run] if scale else first
    low, high = [], []
    for half in (q[:128], q[128:]):
        low += [half[i] & 15 | (half[i + 64] & 15) << 4 for i in range(64)]
        high += [
            half[i] >> 4 | half[i + 32] >> 4 << 2 | half[i + 64] >> 4 << 4 | half[i + 96] >> 4 << 6 for i in range(32)
        ]
    return np.frombuffer(bytes([*low, *high]) + np.array(s, np.int8).tobytes() + d.tobytes(), np.uint8)
