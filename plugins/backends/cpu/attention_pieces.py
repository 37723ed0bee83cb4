"""Attention over one piece of a ring: the keys and values of a group, read once for all its heads.

Where a head fills whole vectors they are read straight from the ring, for three heads at a time; else
they are unpacked to float32 rows first, padded with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.plugins.backends.cpu import vector_math
from ringlet.plugins.backends.cpu.attention_places import head_bytes, padded_bytes, run_of_slots, slot_of
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import (
    job_at,
    load_f32,
    load_f32s,
    model_at,
    prefetch,
    ring_layer_at,
    store,
    store_f32,
)
from ringlet.plugins.backends.cpu.product import ROWS, multiply_unpacked
from ringlet.plugins.backends.cpu.records import PADDING, SEGMENT, VALUE_ROWS
from ringlet.plugins.backends.cpu.simd import first_lane, fma, max_lanes, splat, sum_lanes, sums_of_four
from ringlet.plugins.backends.cpu.target import LANES

CACHE_LINE = 64
AHEAD = 24  # keys that are asked for before they are needed
BYTES_AHEAD = 4096  # values likewise
ZERO, MINUS_INFINITY = np.float32(0), np.float32(-np.inf)


def piece_kernel(unpack: Any, load: Any, number_bytes: int, has_scales: bool = False) -> Any:
    """The kernel that attends over a piece of a ring whose keys and values are numbers of number_bytes, which `unpack`
    brings to float32 a row, and `load` a vector at a time; has_scales: each key and value is to be multiplied with the
    ring's scale for it, which is done to its score and to its weight:

    attend_piece(job, layer of the ring, token, group, piece, start, stop, memory, state), addresses and numbers, writes
    the state of each head of a group over the positions from start to stop.
    """
    score, mix_rows = _score_kernel(load, number_bytes), _mix_kernel(load, number_bytes)

    @kernel
    def attend_piece(job_address, place_address, token, group, piece, start, stop, memory, state):
        job, place = job_at(job_address, 0), ring_layer_at(place_address, 0)
        model = model_at(job.model, 0)
        heads, width, value_width = model.n_heads // model.n_kv_heads, padded_bytes(model.d_k), padded_bytes(model.d_v)
        q = (job.q_sinks if piece == 0 else job.q_ring) + (token * model.n_heads + group * heads) * width
        rows, scores = memory + job.thread_rows, memory + job.thread_scores
        at = start
        while at < stop:
            slot, n = run_of_slots(place, at, stop, SEGMENT)
            key, out = place.keys + (group * place.slots + slot) * place.key_bytes, scores + 4 * (at - start)
            if model.d_k % PADDING == 0:  # then queries stand without padding
                score(key, place.key_bytes, n, q, model.d_k, heads, out)
            else:
                for first in range(0, n, ROWS):
                    some = min(ROWS, n - first)
                    for r in range(some):
                        unpack(key + (first + r) * place.key_bytes, model.d_k, rows + r * width)
                    multiply_unpacked(rows, some, width // 4, q, width, heads, out + 4 * first, 4 * SEGMENT)
            if has_scales:
                multiply_each(out, place.key_scales + 4 * (group * place.slots + slot), n, heads)
            at += n
        first_value = place.values + (group * place.slots + slot_of(place, start)) * place.value_bytes
        for line in range(first_value, first_value + BYTES_AHEAD, CACHE_LINE):
            prefetch(line)
        for h in range(heads):
            head = state + h * head_bytes(model)
            weigh(model, scores + 4 * SEGMENT * h, stop - start, head + value_width)
            for i in range(0, value_width, 4 * LANES):
                store(head + i, splat(ZERO))
        at = start
        while at < stop:
            slot, n = run_of_slots(place, at, stop, SEGMENT)
            value, weights = place.values + (group * place.slots + slot) * place.value_bytes, scores + 4 * (at - start)
            if has_scales:
                multiply_each(weights, place.value_scales + 4 * (group * place.slots + slot), n, heads)
            if model.d_v % LANES == 0:
                mix_rows(weights, value, place.value_bytes, n, model.d_v, heads, state, head_bytes(model))
            else:
                for first in range(0, n, VALUE_ROWS):
                    some = min(VALUE_ROWS, n - first)
                    for r in range(some):
                        unpack(value + (first + r) * place.value_bytes, model.d_v, rows + r * value_width)
                    for h in range(heads):
                        head = state + h * head_bytes(model)
                        mix(weights + 4 * (SEGMENT * h + first), rows, some, value_width, head)
            at += n

    return attend_piece


@kernel
def multiply_each(rows, scales, n, heads):
    """The first n numbers of each head's row of scores or weights, times the scales."""
    whole = n // LANES * LANES
    for h in range(heads):
        row = rows + 4 * SEGMENT * h
        for i in range(0, whole, LANES):
            store(row + 4 * i, load_f32s(row + 4 * i) * load_f32s(scales + 4 * i))
        for i in range(whole, n):
            store_f32(row + 4 * i, load_f32(row + 4 * i) * load_f32(scales + 4 * i))


def _score_kernel(load: Any, number_bytes: int) -> Any:
    """scores[h, p] = q[h]·k[p] for n keys that follow each other and all heads of a group."""

    @kernel
    def three_heads(key, key_bytes, q, d_k, out):
        """Four keys."""
        a0 = a1 = a2 = a3 = splat(ZERO)
        b0 = b1 = b2 = b3 = splat(ZERO)
        c0 = c1 = c2 = c3 = splat(ZERO)
        for i in range(0, d_k, LANES):
            a, b, c = load_f32s(q + 4 * i), load_f32s(q + 4 * (d_k + i)), load_f32s(q + 4 * (2 * d_k + i))
            k = load(key + number_bytes * i)
            a0, b0, c0 = fma(a, k, a0), fma(b, k, b0), fma(c, k, c0)
            k = load(key + key_bytes + number_bytes * i)
            a1, b1, c1 = fma(a, k, a1), fma(b, k, b1), fma(c, k, c1)
            k = load(key + 2 * key_bytes + number_bytes * i)
            a2, b2, c2 = fma(a, k, a2), fma(b, k, b2), fma(c, k, c2)
            k = load(key + 3 * key_bytes + number_bytes * i)
            a3, b3, c3 = fma(a, k, a3), fma(b, k, b3), fma(c, k, c3)
        store(out, sums_of_four(a0, a1, a2, a3))
        store(out + 4 * SEGMENT, sums_of_four(b0, b1, b2, b3))
        store(out + 8 * SEGMENT, sums_of_four(c0, c1, c2, c3))

    @kernel
    def one_head(key, key_bytes, q, d_k, out):
        """Four keys."""
        a0 = a1 = a2 = a3 = splat(ZERO)
        for i in range(0, d_k, LANES):
            a, k = load_f32s(q + 4 * i), key + number_bytes * i
            a0, a1 = fma(a, load(k), a0), fma(a, load(k + key_bytes), a1)
            a2, a3 = fma(a, load(k + 2 * key_bytes), a2), fma(a, load(k + 3 * key_bytes), a3)
        store(out, sums_of_four(a0, a1, a2, a3))

    @kernel
    def score(key, key_bytes, n, q, d_k, heads, out):
        whole, threes = n // 4 * 4, heads // 3 * 3
        for line in range(key, key + AHEAD * key_bytes, CACHE_LINE):
            prefetch(line)
        for p in range(0, whole, 4):
            for line in range(key + (p + AHEAD) * key_bytes, key + (p + AHEAD + 4) * key_bytes, CACHE_LINE):
                prefetch(line)
            for h in range(0, threes, 3):
                three_heads(key + p * key_bytes, key_bytes, q + 4 * h * d_k, d_k, out + 4 * (SEGMENT * h + p))
            for h in range(threes, heads):
                one_head(key + p * key_bytes, key_bytes, q + 4 * h * d_k, d_k, out + 4 * (SEGMENT * h + p))
        for p in range(whole, n):
            for h in range(heads):
                total = splat(ZERO)
                for i in range(0, d_k, LANES):
                    total = fma(load_f32s(q + 4 * (h * d_k + i)), load(key + p * key_bytes + number_bytes * i), total)
                store_f32(out + 4 * (SEGMENT * h + p), first_sum(total))

    return score


@kernel
def first_sum(vector):
    """The vector's sum, added as `sums_of_four` adds it."""
    return first_lane(sums_of_four(vector, vector, vector, vector))


@kernel
def weigh(model, scores, n, m_and_l):
    """Scores to eˢ⁻ᵐ in place; writes m and l."""
    for i in range(0, n, LANES):
        s = load_f32s(scores + 4 * i) * model.score_scale
        if model.score_soft_cap != ZERO:
            s = vector_math.soft_cap(s, model.score_soft_cap)
        store(scores + 4 * i, s)
    for i in range(n, -(-n // LANES) * LANES):
        store_f32(scores + 4 * i, MINUS_INFINITY)
    largest = splat(MINUS_INFINITY)
    for i in range(0, n, LANES):
        largest = vector_math.larger(largest, load_f32s(scores + 4 * i))
    m, total = max_lanes(largest), splat(ZERO)
    for i in range(0, n, LANES):
        e = vector_math.exp(load_f32s(scores + 4 * i) - m)
        store(scores + 4 * i, e)
        total = total + e
    store_f32(m_and_l, m)
    store_f32(m_and_l + 4, sum_lanes(total))


def _mix_kernel(load: Any, number_bytes: int) -> Any:
    """state[h] += Σ weights[h, p]·v[p] for n values that follow each other and all heads of a group."""
    vector, four = number_bytes * LANES, 4 * number_bytes * LANES  # bytes

    @kernel
    def three_heads(weights, value, value_bytes, n, out, head):
        """Four vectors of the values."""
        second, third = out + head, out + 2 * head
        a0, a1, a2, a3 = four_vectors(out)
        b0, b1, b2, b3 = four_vectors(second)
        c0, c1, c2, c3 = four_vectors(third)
        for p in range(n):
            at, w = value + p * value_bytes, weights + 4 * p
            for line in range(at + BYTES_AHEAD, at + BYTES_AHEAD + four, CACHE_LINE):
                prefetch(line)
            a, b, c = splat(load_f32(w)), splat(load_f32(w + 4 * SEGMENT)), splat(load_f32(w + 8 * SEGMENT))
            v = load(at)
            a0, b0, c0 = fma(a, v, a0), fma(b, v, b0), fma(c, v, c0)
            v = load(at + vector)
            a1, b1, c1 = fma(a, v, a1), fma(b, v, b1), fma(c, v, c1)
            v = load(at + 2 * vector)
            a2, b2, c2 = fma(a, v, a2), fma(b, v, b2), fma(c, v, c2)
            v = load(at + 3 * vector)
            a3, b3, c3 = fma(a, v, a3), fma(b, v, b3), fma(c, v, c3)
        store_four(a0, a1, a2, a3, out)
        store_four(b0, b1, b2, b3, second)
        store_four(c0, c1, c2, c3, third)

    @kernel
    def one_head(weights, value, value_bytes, n, out):
        """Four vectors of the values."""
        a0, a1, a2, a3 = four_vectors(out)
        for p in range(n):
            at, a = value + p * value_bytes, splat(load_f32(weights + 4 * p))
            for line in range(at + BYTES_AHEAD, at + BYTES_AHEAD + four, CACHE_LINE):
                prefetch(line)
            a0, a1 = fma(a, load(at), a0), fma(a, load(at + vector), a1)
            a2, a3 = fma(a, load(at + 2 * vector), a2), fma(a, load(at + 3 * vector), a3)
        store_four(a0, a1, a2, a3, out)

    @kernel
    def one_vector(weights, value, value_bytes, n, out):
        a = load_f32s(out)
        for p in range(n):
            a = fma(splat(load_f32(weights + 4 * p)), load(value + p * value_bytes), a)
        store(out, a)

    @kernel
    def mix_rows(weights, value, value_bytes, n, d_v, heads, state, head):
        fours, threes = d_v // (4 * LANES) * 4 * LANES, heads // 3 * 3
        for i in range(0, fours, 4 * LANES):
            for h in range(0, threes, 3):
                w, out = weights + 4 * SEGMENT * h, state + h * head + 4 * i
                three_heads(w, value + number_bytes * i, value_bytes, n, out, head)
            for h in range(threes, heads):
                w, out = weights + 4 * SEGMENT * h, state + h * head + 4 * i
                one_head(w, value + number_bytes * i, value_bytes, n, out)
        for i in range(fours, d_v, LANES):
            for h in range(heads):
                w, out = weights + 4 * SEGMENT * h, state + h * head + 4 * i
                one_vector(w, value + number_bytes * i, value_bytes, n, out)

    return mix_rows


@kernel
def four_vectors(address):
    step = 4 * LANES
    return load_f32s(address), load_f32s(address + step), load_f32s(address + 2 * step), load_f32s(address + 3 * step)


@kernel
def store_four(a, b, c, d, address):
    store(address, a)
    store(address + 4 * LANES, b)
    store(address + 8 * LANES, c)
    store(address + 12 * LANES, d)


@kernel
def mix(weights, rows, n, row_bytes, out):
    """out += Σ weights[r]·rows[r] for n rows of row_bytes; four vectors of a row at a time where there are so many."""
    wide = row_bytes // (16 * LANES) * (16 * LANES)
    for i in range(0, wide, 16 * LANES):
        a, b = load_f32s(out + i), load_f32s(out + i + 4 * LANES)
        c, d = load_f32s(out + i + 8 * LANES), load_f32s(out + i + 12 * LANES)
        for r in range(n):
            w, row = splat(load_f32(weights + 4 * r)), rows + r * row_bytes + i
            a, b = fma(w, load_f32s(row), a), fma(w, load_f32s(row + 4 * LANES), b)
            c, d = fma(w, load_f32s(row + 8 * LANES), c), fma(w, load_f32s(row + 12 * LANES), d)
        store(out + i, a)
        store(out + i + 4 * LANES, b)
        store(out + i + 8 * LANES, c)
        store(out + i + 12 * LANES, d)
    for i in range(wide, row_bytes, 4 * LANES):
        a = load_f32s(out + i)
        for r in range(n):
            a = fma(splat(load_f32(weights + 4 * r)), load_f32s(rows + r * row_bytes + i), a)
        store(out + i, a)
