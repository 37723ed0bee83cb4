"""Block formats: from a chunk's bytes to words of four signed bytes q, and for each 16 of them a scale and an offset.

A weight is d·q + m. `core/quantization.py` says what the bytes mean; `planes` where they are. Each function here is
unpack(quants, high, scales, head, block, part, q, d, m): of the chunk `part` of a block it fills q, four words for each
half (16 weights), and d and m, one float32 each. d·q + m in one rounding is the reference's value to the last bit.
Half h of chunk `part` holds the columns from `column_of_half` on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ringlet.plugins.backends.cuda.kernels.declare import device
from ringlet.plugins.backends.cuda.kernels.functions import (
    half_of,
    load_short,
    load_word,
    load_words2,
    load_words4,
    permute_bytes,
)

LOW = 0x0F0F0F0F  # the lower half of each byte
TWO_BITS, ONE_BIT = 0x03030303, 0x01010101
SPREAD = 0x00204081  # times four bits, masked with ONE_BIT: each in a byte of its own
ZERO = np.float32(0)


@device
def column_in_run(part, half):
    """Blocks of 32 weights: the halves follow each other."""
    return 16 * half


@device
def column_of_32(part, half):
    """Q4_K, Q5_K: of each 32 bytes the low halves are 32 weights, the high halves the next 32; a chunk is 16 bytes."""
    return (part >> 1) * 64 + (part & 1) * 16 + 32 * half


@device
def column_of_64(part, half):
    """Q6_K: of each 64 bytes the low halves are 64 weights, the high halves the next 64."""
    return (part >> 2) * 128 + (part & 3) * 16 + 64 * half


@device
def column_of_quarters(part, half):
    """Q2_K, Q3_K: of each 32 bytes the lowest two bits are 32 weights, the next the next 32."""
    return (part >> 1) * 128 + (part & 1) * 16 + 32 * half


@device
def column_of_runs(part, half):
    """IQ4_XS: a chunk is a run of 32 weights."""
    return 32 * part + 16 * half


@device
def nibbles(words, q):
    """The low halves of 16 bytes, then the high ones."""
    for i in range(4):
        q[i] = words[i] & LOW
        q[4 + i] = words[i] >> 4 & LOW


@device
def both(d, m, value, offset):
    """The same scale and offset for both halves of a chunk."""
    d[0] = value
    d[1] = value
    m[0] = offset
    m[1] = offset


@device
def q4_0(quants, high, scales, head, block, part, q, d, m):
    nibbles(load_words4(quants, 16 * block), q)
    scale = half_of(load_short(head, 2 * block))
    both(d, m, scale, np.float32(-8) * scale)


@device
def q4_1(quants, high, scales, head, block, part, q, d, m):
    nibbles(load_words4(quants, 16 * block), q)
    pair = load_word(head, 4 * block)
    both(d, m, half_of(pair), half_of(pair >> 16))


@device
def fifth_bits(bits, q):
    """Set the fifth bit of each of 32 numbers."""
    for i in range(8):
        q[i] |= ((bits >> (4 * i) & 15) * SPREAD & ONE_BIT) << 4


@device
def q5_0(quants, high, scales, head, block, part, q, d, m):
    nibbles(load_words4(quants, 16 * block), q)
    fifth_bits(load_word(high, 4 * block), q)
    scale = half_of(load_short(head, 2 * block))
    both(d, m, scale, np.float32(-16) * scale)


@device
def q5_1(quants, high, scales, head, block, part, q, d, m):
    nibbles(load_words4(quants, 16 * block), q)
    fifth_bits(load_word(high, 4 * block), q)
    pair = load_word(head, 4 * block)
    both(d, m, half_of(pair), half_of(pair >> 16))


@device
def q8_0(quants, high, scales, head, block, part, q, d, m):
    first, second = load_words4(quants, 32 * block), load_words4(quants, 32 * block + 16)
    for i in range(4):
        q[i] = first[i]
        q[4 + i] = second[i]
    both(d, m, half_of(load_short(head, 2 * block)), ZERO)


# IQ4_VALUES of core/quantization.py as bytes, four to a word, the first lowest.
VALUES_0, VALUES_4, VALUES_8, VALUES_12 = 0xBFAD9881, 0xF6EADDCF, 0x26190D01, 0x71594535


@device
def four_values(selector):
    """IQ4_VALUES of the four lowest nibbles, a byte each."""
    lower = permute_bytes(VALUES_0, VALUES_4, selector & 0x7777)
    upper = permute_bytes(VALUES_8, VALUES_12, selector & 0x7777)
    return permute_bytes(lower, upper, 0x3210 | (selector & 0x8888) >> 1)


@device
def iq4_values(words, q):
    """The values that 32 nibbles stand for, in the order of `nibbles`."""
    for i in range(4):
        first, second = four_values(words[i]), four_values(words[i] >> 16)  # low and high halves take turns
        q[i] = permute_bytes(first, second, 0x6420)
        q[4 + i] = permute_bytes(first, second, 0x7531)


@device
def iq4_nl(quants, high, scales, head, block, part, q, d, m):
    iq4_values(load_words4(quants, 16 * block), q)
    both(d, m, half_of(load_short(head, 2 * block)), ZERO)


@device
def iq4_xs(quants, high, scales, head, block, part, q, d, m):
    iq4_values(load_words4(quants, 128 * block + 16 * part), q)
    first, low = load_words2(head, 8 * block)
    s = (low >> (4 * part) & 15) | (first >> (16 + 2 * part) & 3) << 4
    both(d, m, half_of(first) * (np.float32(s) - np.float32(32)), ZERO)


@device
def two_bits(words, q):
    """Four numbers of each byte: the lowest of 16 bytes, then the next."""
    for half in range(4):
        for i in range(4):
            q[4 * half + i] = words[i] >> (2 * half) & TWO_BITS


@device
def byte_at(words, index):
    """A byte of four words."""
    chosen = words[0] if index < 4 else words[1] if index < 8 else words[2] if index < 12 else words[3]
    return chosen >> (8 * (index & 3)) & 255


@device
def q2_k(quants, high, scales, head, block, part, q, d, m):
    two_bits(load_words4(quants, 64 * block + 16 * part), q)
    pair, both_scales = load_word(head, 4 * block), load_words4(scales, 16 * block)
    scale, minimum = half_of(pair), half_of(pair >> 16)
    for half in range(4):
        s = byte_at(both_scales, (part >> 1) * 8 + 2 * half + (part & 1))
        d[half] = scale * np.float32(s & 15)
        m[half] = -(minimum * np.float32(s >> 4))


@device
def q3_k(quants, high, scales, head, block, part, q, d, m):
    two_bits(load_words4(quants, 64 * block + 16 * part), q)
    third = load_words4(high, 32 * block + 16 * (part & 1))
    scale = half_of(load_short(head, 2 * block))
    s0, s1, s2 = load_word(scales, 12 * block), load_word(scales, 12 * block + 4), load_word(scales, 12 * block + 8)
    for half in range(4):
        bit = (part >> 1) * 4 + half
        for i in range(4):
            q[4 * half + i] |= (third[i] >> bit & ONE_BIT) << 2
        run = 2 * bit + (part & 1)  # of the 16 that have scales
        low = (s0 if run & 7 < 4 else s1) >> (8 * (run & 3) + 4 * (run >> 3)) & 15
        upper = s2 >> (8 * (run & 3) + 2 * (run >> 2)) & 3
        d[half] = scale * (np.float32(low | upper << 4) - np.float32(32))
        m[half] = np.float32(-4) * d[half]


@device
def six_bit_scales(head, block, part, d, m):
    """Of the two runs that a chunk of Q4_K or Q5_K has a half of."""
    words = load_words4(head, 16 * block)
    scale, minimum = half_of(words[0]), half_of(words[0] >> 16)
    for half in range(2):
        run = (part >> 1) * 2 + half
        shift = 8 * (run & 3)
        s, t, rest = words[1] >> shift & 255, words[2] >> shift & 255, words[3] >> shift & 255
        upper_s, upper_t = rest & 15 | s >> 6 << 4, rest >> 4 | t >> 6 << 4
        d[half] = scale * np.float32(s & 63 if run < 4 else upper_s)
        m[half] = -(minimum * np.float32(t & 63 if run < 4 else upper_t))


@device
def q4_k(quants, high, scales, head, block, part, q, d, m):
    nibbles(load_words4(quants, 128 * block + 16 * part), q)
    six_bit_scales(head, block, part, d, m)


@device
def q5_k(quants, high, scales, head, block, part, q, d, m):
    nibbles(load_words4(quants, 128 * block + 16 * part), q)
    fifth, run = load_words4(high, 32 * block + 16 * (part & 1)), (part >> 1) * 2
    for i in range(4):
        q[i] |= (fifth[i] >> run & ONE_BIT) << 4
        q[4 + i] |= (fifth[i] >> (run + 1) & ONE_BIT) << 4
    six_bit_scales(head, block, part, d, m)


@device
def q6_k(quants, high, scales, head, block, part, q, d, m):
    nibbles(load_words4(quants, 128 * block + 16 * part), q)
    upper, shift = load_words4(high, 64 * block + 32 * (part >> 2) + 16 * (part & 1)), part & 2
    for i in range(4):
        q[i] |= (upper[i] >> shift & TWO_BITS) << 4
        q[4 + i] |= (upper[i] >> (shift + 4) & TWO_BITS) << 4
    scale = half_of(load_short(head, 2 * block))
    for half in range(2):
        run = (part >> 2) * 8 + (part & 3) + 4 * half
        d[half] = scale * np.float32(signed(scales[16 * block + run]))
        m[half] = np.float32(-32) * d[half]


@device
def signed(byte):
    """An int8 that was read as an uint8."""
    return np.int32(byte) - 256 if byte > 127 else np.int32(byte)


UNPACK: dict[str, tuple[Callable[..., None], Any]] = {
    "Q4_0": (q4_0, column_in_run),
    "Q4_1": (q4_1, column_in_run),
    "Q5_0": (q5_0, column_in_run),
    "Q5_1": (q5_1, column_in_run),
    "Q8_0": (q8_0, column_in_run),
    "IQ4_NL": (iq4_nl, column_in_run),
    "Q2_K": (q2_k, column_of_quarters),
    "Q3_K": (q3_k, column_of_quarters),
    "Q4_K": (q4_k, column_of_32),
    "Q5_K": (q5_k, column_of_32),
    "Q6_K": (q6_k, column_of_64),
    "IQ4_XS": (iq4_xs, column_of_runs),
}
