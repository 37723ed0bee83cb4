"""Products of quantised weights with activations in bytes: integers inside a run, float32 between the runs.

Weights lie in panels of PANEL_ROWS rows (see `interleaving`), of which a vector holds the same columns of LANES rows. A
few tokens meet the bytes as they come out of a panel; many meet them in memory, where they are unpacked once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.plugins.backends.cpu.byte_rows import byte_row_bytes
from ringlet.plugins.backends.cpu.byte_vectors import dot, load_i8s, load_u8s, repeat_four, zeros_i32s
from ringlet.plugins.backends.cpu.byte_weights import ByteFormat
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f32, load_f32s, prefetch, store, store_f32
from ringlet.plugins.backends.cpu.records import HALF_SUMS_BYTES, PANEL_ROWS, RUN, SCALES_BYTES, SUM_BYTES
from ringlet.plugins.backends.cpu.simd import fma, splat, to_f32
from ringlet.plugins.backends.cpu.target import LANES
from ringlet.plugins.backends.cpu.tuples import for_each, same

ZERO = np.float32(0)
AHEAD = 4096  # bytes: CPUs look ahead by themselves, but not across pages of memory, and not far enough
LINE = 64  # bytes
MANY = 8 if LANES == 16 else 4  # tokens whose sums fit the CPU's registers


def multiplier(format: ByteFormat) -> Any:
    """The kernel that multiplies interleaved rows of the format:

    multiply(address, row_bytes, n_columns, start, stop, x, n_tokens, memory, out, out_bytes) writes
    out[t, r] = x[t]·matrix[r] for the rows from start, a multiple of PANEL_ROWS, to stop; x are byte rows, one after
    the other. memory: `records.panel_bytes(n_columns)` bytes.
    """
    one, many = _from_panel(format, 1), _from_panel(format, MANY)
    fill, from_memory = _fill_kernel(format), _from_memory(format, MANY)

    @kernel
    def multiply(address, row_bytes, n_columns, start, stop, x, n_tokens, memory, out, out_bytes):
        for r in range(start, stop if n_tokens > 0 else start, LANES):
            first, n, to = r % PANEL_ROWS, min(LANES, stop - r), out + 4 * r
            panel = address + (r - first) * row_bytes
            if n_tokens == 1:
                one(panel, first, n_columns, x, n_tokens, memory, to, out_bytes, n)
            elif n_tokens <= MANY:
                many(panel, first, n_columns, x, n_tokens, memory, to, out_bytes, n)
            else:
                fill(panel, first, n_columns, memory)
                from_memory(n_columns, x, n_tokens, memory, to, out_bytes, n)

    return multiply


@kernel
def prefetch_block(start, n_bytes):
    """Ask for a block of a panel that is needed soon."""
    for at in range(0, n_bytes, LINE):
        prefetch(start + at)


@kernel
def place_of(start, step, n_tokens, token):
    """Where a token's row is; tokens beyond the last stand for the last."""
    return start + min(token, n_tokens - 1) * step


@kernel
def add_dots(weights, offset, total, row):
    return dot(total, weights, repeat_four(row + offset))


@kernel
def store_rows(n, memory, vector, out):
    """The first n lanes; memory for a vector."""
    if n == LANES:
        store(out, vector)
    else:
        store(memory, vector)
        for lane in range(n):
            store_f32(out + 4 * lane, load_f32(memory + 4 * lane))


def _from_panel(format: ByteFormat, tokens: int) -> Any:
    """The kernel by which so many tokens, or fewer, meet LANES rows of a panel, of which n are wanted."""
    column, scales, block_bytes, word_bytes = format.column, format.scales, format.block_bytes, format.word_bytes
    runs_a_block, numbers = format.runs_a_block, tuple(range(tokens))
    places, dots, finish, put = (
        for_each(function, tokens, shared)
        for function, shared in ((place_of, 3), (add_dots, 2), (_scaled(format), 3), (store_rows, 2))
    )
    sums, totals = same(zeros_i32s, tokens), same(zeros_f32s, tokens)

    @kernel
    def meet(panel, first_row, n_columns, x, n_tokens, memory, out, out_bytes, n):
        rows, total = places(x, byte_row_bytes(n_columns), n_tokens, numbers), totals()
        for run in range(n_columns // RUN):
            block, inner = panel + run // runs_a_block * block_bytes, run % runs_a_block
            words, halves = block + 4 * first_row, block + word_bytes + 2 * first_row
            if inner == 0 and first_row == 0:
                prefetch_block(block + AHEAD, block_bytes)
            first, second, at = sums(), sums(), RUN * run
            for j in range(4):
                first = dots(column(words, inner, j), at + 4 * j, first, rows)
            for j in range(4, 8):
                second = dots(column(words, inner, j), at + 4 * j, second, rows)
            total = finish(scales(words, halves, inner), n_columns, run, total, first, second, rows)
        put(n, memory, total, places(out, out_bytes, n_tokens, numbers))

    return meet


def _from_memory(format: ByteFormat, tokens: int) -> Any:
    """The kernel by which many tokens meet what `fill` has written, some meet it twice."""
    load, load_scales = load_u8s if format.is_unsigned else load_i8s, _load_scales(format)
    numbers, run_bytes = tuple(range(tokens)), (8 + scale_vectors(format)) * 4 * LANES
    places, dots, finish, put = (
        for_each(function, tokens, shared)
        for function, shared in ((place_of, 3), (add_dots, 2), (_scaled(format), 3), (store_rows, 2))
    )
    sums, totals = same(zeros_i32s, tokens), same(zeros_f32s, tokens)

    @kernel
    def meet(n_columns, x, n_tokens, memory, out, out_bytes, n):
        x_bytes, spare = byte_row_bytes(n_columns), memory + run_bytes * (n_columns // RUN)
        for token in range(0, n_tokens, tokens):
            here = min(token, n_tokens - tokens)
            rows, total = places(x + here * x_bytes, x_bytes, tokens, numbers), totals()
            for run in range(n_columns // RUN):
                first, second, at, bytes = sums(), sums(), RUN * run, memory + run_bytes * run
                for j in range(4):
                    first = dots(load(bytes + 4 * LANES * j), at + 4 * j, first, rows)
                for j in range(4, 8):
                    second = dots(load(bytes + 4 * LANES * j), at + 4 * j, second, rows)
                total = finish(load_scales(bytes + 32 * LANES), n_columns, run, total, first, second, rows)
            put(n, spare, total, places(out + here * out_bytes, out_bytes, tokens, numbers))

    return meet


@kernel
def zeros_f32s():
    return splat(ZERO)


def _fill_kernel(format: ByteFormat) -> Any:
    """LANES rows unpacked into memory: for each run its 8 vectors of bytes, then d and m, or those of the first and of
    the second half."""
    column, scales, block_bytes, word_bytes = format.column, format.scales, format.block_bytes, format.word_bytes
    runs_a_block, has_halves, scale_bytes = format.runs_a_block, format.has_halves, scale_vectors(format) * 4 * LANES

    @kernel
    def fill(panel, first_row, n_columns, memory):
        at = memory
        for run in range(n_columns // RUN):
            block, inner = panel + run // runs_a_block * block_bytes, run % runs_a_block
            words, halves = block + 4 * first_row, block + word_bytes + 2 * first_row
            if inner == 0 and first_row == 0:
                prefetch_block(block + AHEAD, block_bytes)
            for j in range(8):
                store(at + 4 * LANES * j, column(words, inner, j))
            found, to = scales(words, halves, inner), at + 32 * LANES
            store(to, found[0])
            store(to + 4 * LANES, found[1])
            if has_halves:
                store(to + 8 * LANES, found[2])
                store(to + 12 * LANES, found[3])
            at = to + scale_bytes

    return fill


def scale_vectors(format: ByteFormat) -> int:
    return 4 if format.has_halves else 2


def _load_scales(format: ByteFormat) -> Any:
    """The kernel that loads what `fill` has stored of a run's scales."""
    if format.has_halves:

        @kernel
        def load(at):
            return load_f32s(at), load_f32s(at + 4 * LANES), load_f32s(at + 8 * LANES), load_f32s(at + 12 * LANES)

    else:

        @kernel
        def load(at):
            return load_f32s(at), load_f32s(at + 4 * LANES)

    return load


def _scaled(format: ByteFormat) -> Any:
    """The kernel that adds a run to a token's sums, from the integers of its halves and the scales of both sides."""
    has_halves = format.has_halves

    @kernel
    def scaled(weight_scales, n_columns, run, total, first, second, row):
        scales = row + n_columns + SCALES_BYTES * run
        sums = row + n_columns + n_columns // RUN * SCALES_BYTES
        a, b = to_f32(first) * load_f32(scales), to_f32(second)
        if has_halves:
            half_sums = sums + n_columns // RUN * SUM_BYTES + HALF_SUMS_BYTES * run
            d, m, e, n = weight_scales
            added = fma(a, d, fma(b * load_f32(scales + 16), e, m * load_f32(half_sums)))
            return total + fma(n, splat(load_f32(half_sums + 4)), added)
        d, m = weight_scales
        both = fma(b, splat(load_f32(scales + 16)), a)
        return total + fma(both, d, m * load_f32(sums + SUM_BYTES * run))

    return scaled
