"""The formats that store plain numbers: F32, F16 and BF16, one at a time or 16 bytes at once."""

from __future__ import annotations

from ringlet.plugins.backends.cuda.kernels.declare import device
from ringlet.plugins.backends.cuda.kernels.functions import float_of, half_of, load_short, load_word, load_words4


@device
def f32_at(numbers, index):
    return float_of(load_word(numbers, 4 * index))


@device
def f16_at(numbers, index):
    return half_of(load_short(numbers, 2 * index))


@device
def bf16_at(numbers, index):
    return float_of(load_short(numbers, 2 * index) << 16)


@device
def f32_numbers(numbers, index, values):
    """Four of them from the index on, a multiple of four."""
    words = load_words4(numbers, 4 * index)
    for i in range(4):
        values[i] = float_of(words[i])


@device
def f16_numbers(numbers, index, values):
    """Eight of them from the index on, a multiple of eight."""
    words = load_words4(numbers, 2 * index)
    for i in range(4):
        values[2 * i] = half_of(words[i])
        values[2 * i + 1] = half_of(words[i] >> 16)


@device
def bf16_numbers(numbers, index, values):
    words = load_words4(numbers, 2 * index)
    for i in range(4):
        values[2 * i] = float_of(words[i] << 16)
        values[2 * i + 1] = float_of(words[i] & 0xFFFF0000)


FLOAT_AT = {"F32": f32_at, "F16": f16_at, "BF16": bf16_at}
FLOATS_AT_ONCE = {"F32": (f32_numbers, 4), "F16": (f16_numbers, 8), "BF16": (bf16_numbers, 8)}
