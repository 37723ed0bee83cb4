"""Quantised weights as bytes: q, vectors of bytes out of interleaved blocks, and the scales, of d·q + m.

A run is 32 columns, its vector j the columns 4j to 4j + 3 of LANES rows. q is unsigned, but for formats of eight bits
on targets that multiply signed bytes only: they take the bytes as they are, with m = 0. The layouts of blocks are
described in `ringlet.core.quantization`, how they are interleaved in `interleaving`; words and halves are counted in
their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ringlet.core.quantization import BLOCK_FORMATS, IQ4_VALUES
from ringlet.plugins.backends.cpu.byte_vectors import (
    TAKES_WIDE_UNSIGNED,
    bits,
    bits_of_words,
    byte_table,
    flip_top_bits,
    load_i8s,
    load_i32s,
    load_u8s,
    load_u16s,
    spread_bits,
)
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.interleaving import BLOCK_PARTS
from ringlet.plugins.backends.cpu.memory import load_f16s
from ringlet.plugins.backends.cpu.records import PANEL_ROWS, RUN
from ringlet.plugins.backends.cpu.simd import to_f32

EIGHT_BITS_OFFSET = np.float32(128 if TAKES_WIDE_UNSIGNED else 0)
WORD = 4 * PANEL_ROWS  # bytes from a block's word to the next

iq4_values = byte_table(IQ4_VALUES, EIGHT_BITS_OFFSET)


class ByteFormat(NamedTuple):
    """How a block format gives its weights; `words` and `halves` are addresses in an interleaved block, `run` is a run
    of it.

    column(words, run, j): the run's vector j. scales(words, halves, run): float32 d and m of LANES rows; where the two
    halves of a run have scales of their own, d and m of the first, then of the second.
    """

    column: Callable[..., Any]
    scales: Callable[..., Any]
    block_bytes: int  # of PANEL_ROWS rows
    word_bytes: int  # where a block's halves begin
    runs_a_block: int
    has_halves: bool
    is_unsigned: bool


@kernel
def word(words, index):
    """A word's bytes."""
    return load_u8s(words + WORD * index)


@kernel
def word_bits(words, index, shift, mask):
    """Some bits of a word, as numbers of 32 bits."""
    return bits_of_words(load_i32s(words + WORD * index), shift, mask)


@kernel
def half(halves, index):
    """A half as float32."""
    return load_f16s(halves + 2 * PANEL_ROWS * index)


@kernel
def eight_bits(words, index):
    """A word of signed bytes, as the target takes them."""
    return flip_top_bits(word(words, index)) if TAKES_WIDE_UNSIGNED else load_i8s(words + WORD * index)


@kernel
def four_bits(words, first, j):
    """A run in four words: the lower four bits of their bytes are the first half of the columns."""
    return bits(word(words, first + (j & 3)), (j >> 2) * 4, 15)


@kernel
def q4_column(words, run, j):
    return four_bits(words, 0, j)


@kernel
def q5_column(words, run, j):
    return four_bits(words, 1, j) | spread_bits(load_i32s(words), j * 4, 4)


@kernel
def q8_column(words, run, j):
    return eight_bits(words, j)


@kernel
def iq4_nl_column(words, run, j):
    return iq4_values(four_bits(words, 0, j))


@kernel
def iq4_xs_column(words, run, j):
    return iq4_values(four_bits(words, 1 + 4 * run, j))


@kernel
def q2_k_column(words, run, j):
    return bits(word(words, 4 + (run >> 2) * 8 + j), (run & 3) * 2, 3)


@kernel
def q3_k_column(words, run, j):
    third = bits(word(words, j), run, 1) << 2
    return bits(word(words, 8 + (run >> 2) * 8 + j), (run & 3) * 2, 3) | third


@kernel
def q4_k_column(words, run, j):
    return bits(word(words, 3 + (run >> 1) * 8 + j), (run & 1) * 4, 15)


@kernel
def q5_k_column(words, run, j):
    fifth = bits(word(words, 3 + j), run, 1) << 4
    return bits(word(words, 11 + (run >> 1) * 8 + j), (run & 1) * 4, 15) | fifth


@kernel
def q6_k_column(words, run, j):
    part, place = run >> 2, run & 3
    high = bits(word(words, 32 + part * 8 + j), place * 2, 3) << 4
    return bits(word(words, part * 16 + (place & 1) * 8 + j), (place >> 1) * 4, 15) | high


def offset_scales(offset: float) -> Any:
    """The scales of weights d·(q - offset)."""
    m_of_d = np.float32(-offset)

    @kernel
    def scales(words, halves, run):
        d = half(halves, 0)
        return d, d * m_of_d

    return scales


@kernel
def minimum_scales(words, halves, run):
    """The scales of weights d·q + m."""
    return half(halves, 0), half(halves, 1)


@kernel
def six_bit_scales(words, halves, run):
    """The scales of Q4_K and Q5_K: d·s·q - e·t, the numbers s and t of six bits packed in three words."""
    place = (run & 3) * 8
    if run < 4:
        s, t = word_bits(words, 0, place, 63), word_bits(words, 1, place, 63)
    else:
        s = word_bits(words, 2, place, 15) | word_bits(words, 0, place + 6, 3) << 4
        t = word_bits(words, 2, place + 4, 15) | word_bits(words, 1, place + 6, 3) << 4
    return half(halves, 0) * to_f32(s), half(halves, 1) * to_f32(0 - t)


@kernel
def q2_k_scales(words, halves, run):
    index, place, d, e = run >> 1, (run & 1) * 16, half(halves, 0), half(halves, 1)
    s, t = word_bits(words, index, place, 15), word_bits(words, index, place + 4, 15)
    u, v = word_bits(words, index, place + 8, 15), word_bits(words, index, place + 12, 15)
    return d * to_f32(s), e * to_f32(0 - t), d * to_f32(u), e * to_f32(0 - v)


@kernel
def q3_k_scale(words, half_run):
    """s - 32 of a run of 16 weights: four bits in the first two words, two in the third."""
    low = word_bits(words, 24 + (half_run >> 2 & 1), (half_run & 3) * 8 + (half_run >> 3) * 4, 15)
    return (low | word_bits(words, 26, (half_run & 3) * 8 + (half_run >> 2) * 2, 3) << 4) - 32


@kernel
def q3_k_scales(words, halves, run):
    d = half(halves, 0)
    first, second = d * to_f32(q3_k_scale(words, 2 * run)), d * to_f32(q3_k_scale(words, 2 * run + 1))
    return first, first * np.float32(-4), second, second * np.float32(-4)


@kernel
def q6_k_scale(words, half_run):
    """A signed byte of the words from 48 on."""
    return (word_bits(words, 48 + (half_run >> 2), (half_run & 3) * 8, 255) ^ 128) - 128


@kernel
def q6_k_scales(words, halves, run):
    d = half(halves, 0)
    first, second = d * to_f32(q6_k_scale(words, 2 * run)), d * to_f32(q6_k_scale(words, 2 * run + 1))
    return first, first * np.float32(-32), second, second * np.float32(-32)


@kernel
def iq4_xs_scales(words, halves, run):
    """d·(s - 32): four bits of s in the first word, two in the second half."""
    high = bits_of_words(load_u16s(halves + 2 * PANEL_ROWS), 2 * run, 3)
    d = half(halves, 0) * to_f32((word_bits(words, 0, 4 * run, 15) | high << 4) - 32)
    return d, d * -EIGHT_BITS_OFFSET


def _format(name: str, column: Any, scales: Any, has_halves: bool = False, is_unsigned: bool = True) -> ByteFormat:
    block, word_bytes = BLOCK_FORMATS[name], WORD * len(BLOCK_PARTS[name].words)
    return ByteFormat(
        column, scales, PANEL_ROWS * block.n_bytes, word_bytes, block.n_weights // RUN, has_halves, is_unsigned
    )


eight_bit_scales = offset_scales(EIGHT_BITS_OFFSET)

BYTE_FORMATS = {
    "Q4_0": _format("Q4_0", q4_column, offset_scales(8)),
    "Q4_1": _format("Q4_1", q4_column, minimum_scales),
    "Q5_0": _format("Q5_0", q5_column, offset_scales(16)),
    "Q5_1": _format("Q5_1", q5_column, minimum_scales),
    "Q8_0": _format("Q8_0", q8_column, eight_bit_scales, is_unsigned=TAKES_WIDE_UNSIGNED),
    "IQ4_NL": _format("IQ4_NL", iq4_nl_column, eight_bit_scales, is_unsigned=TAKES_WIDE_UNSIGNED),
    "Q2_K": _format("Q2_K", q2_k_column, q2_k_scales, has_halves=True),
    "Q3_K": _format("Q3_K", q3_k_column, q3_k_scales, has_halves=True),
    "Q4_K": _format("Q4_K", q4_k_column, six_bit_scales),
    "Q5_K": _format("Q5_K", q5_k_column, six_bit_scales),
    "Q6_K": _format("Q6_K", q6_k_column, q6_k_scales, has_halves=True),
    "IQ4_XS": _format("IQ4_XS", iq4_xs_column, iq4_xs_scales, is_unsigned=TAKES_WIDE_UNSIGNED),
}
