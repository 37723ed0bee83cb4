"""Products of quantised weights with activations in bytes: integers inside a run, float32 between the runs.

A few tokens meet rows of weights one by one. Many tokens meet panels: LANES rows, their bytes brought side by side so
that a vector holds four columns of every row, each panel made once and multiplied with all tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.plugins.backends.cpu.byte_rows import byte_row_bytes
from ringlet.plugins.backends.cpu.byte_vectors import (
    columns_of_signed,
    columns_of_unsigned,
    dot,
    load_i8s,
    load_u8s,
    repeat_four,
    zeros_i32s,
)
from ringlet.plugins.backends.cpu.byte_weights import ByteFormat
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f32, load_f32s, store, store_f32
from ringlet.plugins.backends.cpu.records import HALF_SUMS_BYTES, RUN, SCALES_BYTES, SUM_BYTES
from ringlet.plugins.backends.cpu.simd import (
    first_lane,
    fma,
    fourth_lane,
    second_lane,
    splat,
    third_lane,
    to_f32,
)
from ringlet.plugins.backends.cpu.target import LANES

ZERO = np.float32(0)
PANEL_TOKENS = 4  # tokens from which on panels pay
TOKENS = 4  # tokens that a panel meets at a time


def multiplier(format: ByteFormat) -> Any:
    """The kernel that multiplies rows of the format:

    multiply(address, row_bytes, n_columns, start, stop, x, n_tokens, panel, out, out_bytes) writes
    out[t, r] = x[t]·matrix[r] for the rows from start to stop; x are byte rows, one after the other.
    """
    rows, panels = _rows_kernel(format), _panels_kernel(format)

    @kernel
    def multiply(address, row_bytes, n_columns, start, stop, x, n_tokens, panel, out, out_bytes):
        x_bytes = byte_row_bytes(n_columns)
        if n_tokens < PANEL_TOKENS:
            for t in range(n_tokens):
                rows(address, row_bytes, n_columns, start, stop, x + t * x_bytes, out + t * out_bytes)
            return
        whole = start + (stop - start) // LANES * LANES
        panels(address, row_bytes, n_columns, start, whole, x, n_tokens, panel, out, out_bytes)
        for t in range(n_tokens):
            rows(address, row_bytes, n_columns, whole, stop, x + t * x_bytes, out + t * out_bytes)

    return multiply


def _rows_kernel(format: ByteFormat) -> Any:
    """Rows of weights times one byte row."""
    row_sum = format.row_sum

    @kernel
    def rows(address, row_bytes, n_columns, start, stop, x, out):
        for r in range(start, stop):
            store_f32(out + 4 * r, row_sum(address + r * row_bytes, n_columns, x))

    return rows


def _panels_kernel(format: ByteFormat) -> Any:
    fill, meet_tokens, meet_token = _fill_kernel(format), _tokens_kernel(format), _token_kernel(format)

    @kernel
    def panels(address, row_bytes, n_columns, start, stop, x, n_tokens, panel, out, out_bytes):
        x_bytes, whole = byte_row_bytes(n_columns), n_tokens // TOKENS * TOKENS
        for r in range(start, stop, LANES):
            fill(address + r * row_bytes, row_bytes, n_columns, panel)
            for t in range(0, whole, TOKENS):
                meet_tokens(panel, n_columns, x + t * x_bytes, x_bytes, out + t * out_bytes + 4 * r, out_bytes)
            for t in range(whole, n_tokens):
                meet_token(panel, n_columns, x + t * x_bytes, out + t * out_bytes + 4 * r)

    return panels


def _fill_kernel(format: ByteFormat) -> Any:
    """A panel's memory (`records.panel_bytes`): for each run its 8 vectors of bytes; then for each run d of all rows,
    or those of the first and the second halves; then m likewise."""
    q, scales, parts = format.q, format.scales, 2 if format.has_halves else 1
    columns_of_rows = columns_of_unsigned if format.is_unsigned else columns_of_signed

    @kernel
    def eight_rows(row, row_bytes, run):
        return (
            q(row, run), q(row + row_bytes, run), q(row + 2 * row_bytes, run),
            q(row + 3 * row_bytes, run), q(row + 4 * row_bytes, run), q(row + 5 * row_bytes, run),
            q(row + 6 * row_bytes, run), q(row + 7 * row_bytes, run),
        )  # fmt: skip

    @kernel
    def all_rows(row, row_bytes, run):
        if LANES == 16:
            return eight_rows(row, row_bytes, run) + eight_rows(row + 8 * row_bytes, row_bytes, run)
        return eight_rows(row, row_bytes, run)

    @kernel
    def fill(row, row_bytes, n_columns, panel):
        runs = n_columns // RUN
        d, m = panel + LANES * n_columns, panel + LANES * (n_columns + 4 * parts * runs)
        for run in range(runs):
            columns = columns_of_rows(all_rows(row, row_bytes, run))
            for j in range(8):
                store(panel + (8 * run + j) * 4 * LANES, columns[j])
            for r in range(LANES):
                scale, at = scales(row + r * row_bytes, run), 4 * (parts * run * LANES + r)
                store_f32(d + at, first_lane(scale))
                store_f32(m + at, second_lane(scale))
                if parts == 2:
                    store_f32(d + at + 4 * LANES, third_lane(scale))
                    store_f32(m + at + 4 * LANES, fourth_lane(scale))

    return fill


def _scale_kernel(format: ByteFormat) -> Any:
    """The kernel that adds a run to a token's sums, from the integers of its halves and the scales of both sides."""
    has_halves = format.has_halves

    @kernel
    def scaled(total, first, second, d, m, x, n_columns, run):
        scales = x + n_columns + SCALES_BYTES * run
        sums = x + n_columns + n_columns // RUN * SCALES_BYTES
        a, b = to_f32(first) * load_f32(scales), to_f32(second)
        if has_halves:
            half_sums = sums + n_columns // RUN * SUM_BYTES + HALF_SUMS_BYTES * run
            total = fma(a, load_f32s(d), fma(b * load_f32(scales + 16), load_f32s(d + 4 * LANES), total))
            total = fma(load_f32s(m), splat(load_f32(half_sums)), total)
            return fma(load_f32s(m + 4 * LANES), splat(load_f32(half_sums + 4)), total)
        both = fma(b, splat(load_f32(scales + 16)), a)
        return fma(both, load_f32s(d), fma(load_f32s(m), splat(load_f32(sums + SUM_BYTES * run)), total))

    return scaled


def _tokens_kernel(format: ByteFormat) -> Any:
    """TOKENS tokens meet a panel."""
    parts, load, scaled = (
        2 if format.has_halves else 1,
        load_u8s if format.is_unsigned else load_i8s,
        _scale_kernel(format),
    )

    @kernel
    def meet_tokens(panel, n_columns, x, x_bytes, out, out_bytes):
        runs = n_columns // RUN
        d, m = panel + LANES * n_columns, panel + LANES * (n_columns + 4 * parts * runs)
        a = b = c = e = splat(ZERO)
        for run in range(runs):
            a0 = b0 = c0 = e0 = a1 = b1 = c1 = e1 = zeros_i32s()
            bytes, at = x + RUN * run, panel + 32 * LANES * run
            for j in range(0, 16, 4):
                w, y = load(at + LANES * j), bytes + j
                a0, b0 = dot(a0, w, repeat_four(y)), dot(b0, w, repeat_four(y + x_bytes))
                c0, e0 = dot(c0, w, repeat_four(y + 2 * x_bytes)), dot(e0, w, repeat_four(y + 3 * x_bytes))
            for j in range(16, 32, 4):
                w, y = load(at + LANES * j), bytes + j
                a1, b1 = dot(a1, w, repeat_four(y)), dot(b1, w, repeat_four(y + x_bytes))
                c1, e1 = dot(c1, w, repeat_four(y + 2 * x_bytes)), dot(e1, w, repeat_four(y + 3 * x_bytes))
            dd, mm = d + 4 * LANES * parts * run, m + 4 * LANES * parts * run
            a = scaled(a, a0, a1, dd, mm, x, n_columns, run)
            b = scaled(b, b0, b1, dd, mm, x + x_bytes, n_columns, run)
            c = scaled(c, c0, c1, dd, mm, x + 2 * x_bytes, n_columns, run)
            e = scaled(e, e0, e1, dd, mm, x + 3 * x_bytes, n_columns, run)
        store(out, a)
        store(out + out_bytes, b)
        store(out + 2 * out_bytes, c)
        store(out + 3 * out_bytes, e)

    return meet_tokens


def _token_kernel(format: ByteFormat) -> Any:
    """One token meets a panel."""
    parts, load, scaled = (
        2 if format.has_halves else 1,
        load_u8s if format.is_unsigned else load_i8s,
        _scale_kernel(format),
    )

    @kernel
    def meet_token(panel, n_columns, x, out):
        runs = n_columns // RUN
        d, m = panel + LANES * n_columns, panel + LANES * (n_columns + 4 * parts * runs)
        total = splat(ZERO)
        for run in range(runs):
            first = second = zeros_i32s()
            at, bytes = panel + 32 * LANES * run, x + RUN * run
            for j in range(0, 16, 4):
                first = dot(first, load(at + LANES * j), repeat_four(bytes + j))
            for j in range(16, 32, 4):
                second = dot(second, load(at + LANES * j), repeat_four(bytes + j))
            dd, mm = d + 4 * LANES * parts * run, m + 4 * LANES * parts * run
            total = scaled(total, first, second, dd, mm, x, n_columns, run)
        store(out, total)

    return meet_token
