"""The formats that store plain numbers: F32, F16 and BF16, one at a time or 16 bytes at once; and bytes as numbers."""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cuda.kernels.declare import device
from ringlet.plugins.backends.cuda.kernels.functions import (
    float_of,
    half_of,
    load_short,
    load_word,
    load_words4,
    permute_bytes,
)

SIGNS = 0x80808080  # makes a signed byte an unsigned one, 128 more
EXPONENT = 0x4B000000  # with a byte below it, the float32 2²³ + byte
OFFSET = np.float32(2**23 + 128)


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


@device
def byte_as_float(word, index):
    """float32 of a signed byte; cheaper than a conversion, of which a GPU does few at a time."""
    return float_of(permute_bytes(word ^ SIGNS, EXPONENT, 0x7440 | index)) - OFFSET


FLOAT_AT = {"F32": f32_at, "F16": f16_at, "BF16": bf16_at}
FLOATS_AT_ONCE = {"F32": (f32_numbers, 4), "F16": (f16_numbers, 8), "BF16": (bf16_numbers, 8)}
