"""Products of quantised weights with activations in bytes: integers inside a run of 32, float32 between the runs.

A few tokens meet rows of weights one by one. Many tokens meet panels: LANES rows, their bytes brought side by side so
that a vector holds four columns of every row, each panel made once and multiplied with all tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.plugins.backends.cpu.byte_rows import RUN, byte_row_bytes
from ringlet.plugins.backends.cpu.byte_vectors import (
    columns_of_signed,
    columns_of_unsigned,
    dot,
    first_twice,
    load_f32x4,
    load_i8s,
    load_i8x32,
    load_u8s,
    repeat_four,
    spread_first,
    spread_two,
    zeros_f32x4,
    zeros_f32x8,
    zeros_i32s,
    zeros_i32x8,
)
from ringlet.plugins.backends.cpu.byte_weights import HALVES, ByteFormat
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_f32, load_f32s, store, store_f32
from ringlet.plugins.backends.cpu.simd import (
    first_lane,
    fma,
    fourth_lane,
    second_lane,
    splat,
    sum_lanes,
    third_lane,
    to_f32,
)
from ringlet.plugins.backends.cpu.target import LANES

ZERO = np.float32(0)
ROWS = 4  # rows that a token meets at a time
PANEL_TOKENS = 4  # tokens from which on panels pay
TOKENS = 4  # tokens that a panel meets at a time


def panel_bytes(n_columns: int) -> int:
    """Memory for a panel: the bytes, then float32 scales and minima, two of each a run at most."""
    return LANES * (n_columns + n_columns // RUN * 16)


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
    q, scales, halves = format.q, format.scales, format.parts == HALVES

    @kernel
    def add_run(row, run, bytes, x, sums, minima):
        products = to_f32(dot(zeros_i32x8(), q(row, run), bytes))
        if halves:
            scaled = scales(row, run) * first_twice(x)
            return fma(products, spread_two(scaled), sums), minima + scaled
        scaled = scales(row, run) * x
        return fma(products, spread_first(scaled), sums), minima + scaled

    @kernel
    def total(sums, minima):
        if halves:
            return sum_lanes(sums) + (third_lane(minima) + fourth_lane(minima))
        return sum_lanes(sums) + second_lane(minima)

    @kernel
    def rows(address, row_bytes, n_columns, start, stop, x, out):
        runs, x_scales = n_columns // RUN, x + n_columns
        whole = start + (stop - start) // ROWS * ROWS
        for r in range(start, whole, ROWS):
            a = address + r * row_bytes
            b, c, d = a + row_bytes, a + 2 * row_bytes, a + 3 * row_bytes
            sums_a = sums_b = sums_c = sums_d = zeros_f32x8()
            minima_a = minima_b = minima_c = minima_d = zeros_f32x4()
            for run in range(runs):
                bytes, scale = load_i8x32(x + RUN * run), load_f32x4(x_scales + 16 * run)
                sums_a, minima_a = add_run(a, run, bytes, scale, sums_a, minima_a)
                sums_b, minima_b = add_run(b, run, bytes, scale, sums_b, minima_b)
                sums_c, minima_c = add_run(c, run, bytes, scale, sums_c, minima_c)
                sums_d, minima_d = add_run(d, run, bytes, scale, sums_d, minima_d)
            store_f32(out + 4 * r, total(sums_a, minima_a))
            store_f32(out + 4 * r + 4, total(sums_b, minima_b))
            store_f32(out + 4 * r + 8, total(sums_c, minima_c))
            store_f32(out + 4 * r + 12, total(sums_d, minima_d))
        for r in range(whole, stop):
            sums, minima = zeros_f32x8(), zeros_f32x4()
            for run in range(runs):
                bytes, scale = load_i8x32(x + RUN * run), load_f32x4(x_scales + 16 * run)
                sums, minima = add_run(address + r * row_bytes, run, bytes, scale, sums, minima)
            store_f32(out + 4 * r, total(sums, minima))

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
    """A panel's memory: for each run its 8 vectors of bytes; then for each run the scales of all rows, or those of
    the first and the second halves; then the minima likewise."""
    q, scales, parts = format.q, format.scales, format.parts
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
                if parts == HALVES:
                    store_f32(d + at + 4 * LANES, second_lane(scale))
                    store_f32(m + at, third_lane(scale))
                    store_f32(m + at + 4 * LANES, fourth_lane(scale))
                else:
                    store_f32(m + at, second_lane(scale))

    return fill


def _tokens_kernel(format: ByteFormat) -> Any:
    """TOKENS tokens meet a panel."""
    parts, load = format.parts, load_u8s if format.is_unsigned else load_i8s
    columns, first_sum = 8 // parts, 2 if parts == HALVES else 1

    @kernel
    def scaled(total, products, d, m, x, part):
        return fma(to_f32(products), d * load_f32(x), fma(m, splat(load_f32(x + 4 * (first_sum + part))), total))

    @kernel
    def meet_tokens(panel, n_columns, x, x_bytes, out, out_bytes):
        runs = n_columns // RUN
        d, m = panel + LANES * n_columns, panel + LANES * (n_columns + 4 * parts * runs)
        a = b = c = e = splat(ZERO)
        for run in range(runs):
            for part in range(parts):
                pa = pb = pc = pe = zeros_i32s()
                for j in range(part * columns, (part + 1) * columns):
                    w, at = load(panel + (8 * run + j) * 4 * LANES), x + RUN * run + 4 * j
                    pa = dot(pa, w, repeat_four(at))
                    pb = dot(pb, w, repeat_four(at + x_bytes))
                    pc = dot(pc, w, repeat_four(at + 2 * x_bytes))
                    pe = dot(pe, w, repeat_four(at + 3 * x_bytes))
                at = 4 * LANES * (parts * run + part)
                dd, mm, scale = load_f32s(d + at), load_f32s(m + at), x + n_columns + 16 * run
                a = scaled(a, pa, dd, mm, scale, part)
                b = scaled(b, pb, dd, mm, scale + x_bytes, part)
                c = scaled(c, pc, dd, mm, scale + 2 * x_bytes, part)
                e = scaled(e, pe, dd, mm, scale + 3 * x_bytes, part)
        store(out, a)
        store(out + out_bytes, b)
        store(out + 2 * out_bytes, c)
        store(out + 3 * out_bytes, e)

    return meet_tokens


def _token_kernel(format: ByteFormat) -> Any:
    """One token meets a panel."""
    parts, load = format.parts, load_u8s if format.is_unsigned else load_i8s
    columns, first_sum = 8 // parts, 2 if parts == HALVES else 1

    @kernel
    def meet_token(panel, n_columns, x, out):
        runs = n_columns // RUN
        d, m = panel + LANES * n_columns, panel + LANES * (n_columns + 4 * parts * runs)
        total = splat(ZERO)
        for run in range(runs):
            for part in range(parts):
                products = zeros_i32s()
                for j in range(part * columns, (part + 1) * columns):
                    w = load(panel + (8 * run + j) * 4 * LANES)
                    products = dot(products, w, repeat_four(x + RUN * run + 4 * j))
                at, scale = 4 * LANES * (parts * run + part), x + n_columns + 16 * run
                total = fma(load_f32s(m + at), splat(load_f32(scale + 4 * (first_sum + part))), total)
                total = fma(to_f32(products), load_f32s(d + at) * load_f32(scale), total)
        store(out, total)

    return meet_token
