"""Attention over the rings: S = QKᵀ·scale, α = softmax(S), O_head = αV, piece by piece of the positions a query sees.

Piece 0 are the sinks, the others are cut at the multiples of SEGMENT. Each piece gives, for each head that shares a
K/V head, Σ eˢ⁻ᵐ·v, m = max s and l = Σ eˢ⁻ᵐ; two pieces merge by bringing both to the larger m (Milakov and Gimelshein
2018, Online normalizer calculation for softmax). Pieces merge in order, whoever computed them, so that threads change
no bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.plugins.backends.cpu import vector_math
from ringlet.plugins.backends.cpu.barrier import meet
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.elementwise import copy, rms_norm, rotate, scale
from ringlet.plugins.backends.cpu.memory import (
    job_at,
    load_f32,
    load_f32s,
    load_i32,
    load_i64,
    model_at,
    ring_at,
    ring_layer_address,
    ring_layer_at,
    rope_at,
    run_code,
    store,
    store_f32,
)
from ringlet.plugins.backends.cpu.product import ROWS, multiply_unpacked
from ringlet.plugins.backends.cpu.records import PADDING, SEGMENT, VALUE_ROWS
from ringlet.plugins.backends.cpu.simd import first_lane, fma, max_lanes, splat, sum_lanes
from ringlet.plugins.backends.cpu.target import LANES
from ringlet.plugins.backends.cpu.unpack import pack_row

ZERO, MINUS_INFINITY = np.float32(0), np.float32(-np.inf)


@kernel
def padded_bytes(n):
    """Bytes of n float32 values with their padding."""
    return -(-n // PADDING) * PADDING * 4


@kernel
def place_token(job, model, layer, index, token, head):
    """Norm and rotate a token's queries and keys, and write keys and values into its ring. head: memory for one head.

    K is stored rotated at its position. The query meets sinks rotated at min(position, capacity - 1).
    """
    ring = ring_at(job.rings, load_i32(job.sequence + 4 * token))
    place = ring_layer_at(ring.layers, index)
    position = position_of(job, token)
    angles = layer.rope * job.n_tokens + token
    sink_angles = angles if position < place.capacity else ring.angle_row + place.sink_angles
    d_k, n_heads, n_kv_heads, width = model.d_k, model.n_heads, model.n_kv_heads, padded_bytes(model.d_k)
    for h in range(n_heads):
        q = job.q_ring + (token * n_heads + h) * width
        copy(job.q + token * padded_bytes(n_heads * d_k) + 4 * h * d_k, d_k, q)
        if layer.q_norm != 0:
            rms_norm(q, layer.q_norm, d_k, model.norm_epsilon, q)
        if place.sinks > 0:
            q_sinks = job.q_sinks + (token * n_heads + h) * width
            copy(q, d_k, q_sinks)
            turn(job, model, layer, sink_angles, q_sinks)
        turn(job, model, layer, angles, q)
    slot = slot_of(place, position)
    for g in range(n_kv_heads):
        copy(job.k + token * padded_bytes(n_kv_heads * d_k) + 4 * g * d_k, d_k, head)
        if layer.k_norm != 0:
            rms_norm(head, layer.k_norm, d_k, model.norm_epsilon, head)
        turn(job, model, layer, angles, head)
        pack_row(place.is_half, head, d_k, place.keys + (g * place.slots + slot) * place.key_bytes)
        v = job.v + token * padded_bytes(n_kv_heads * model.d_v) + 4 * g * model.d_v
        pack_row(place.is_half, v, model.d_v, place.values + (g * place.slots + slot) * place.value_bytes)


@kernel
def turn(job, model, layer, row, x):
    """Rotate a head by an angle row, where the layer has a rope."""
    if layer.rope >= 0:
        cos = job.angles + row * 2 * job.angle_width * 4
        rotate(x, rope_at(model.ropes, layer.rope), cos, cos + job.angle_width * 4)


@kernel
def slot_of(place, position):
    """The slot of a position: see `ringlet.core.ring_cache.LayerLayout.slot`."""
    if position < place.sinks:
        return position
    return place.sinks + (position - place.sinks) % (place.slots - place.sinks)


@kernel
def first_visible(place, position):
    """The first position, sinks apart, that the query sees."""
    return max(place.sinks, position - (place.capacity - place.sinks) + 1)


@kernel
def count_pieces(place, position):
    first = first_visible(place, position)
    return 1 if first > position else 2 + position // SEGMENT - first // SEGMENT


@kernel
def piece_range(place, position, piece):
    """Positions of a piece: from, to; empty for piece 0 where there are no sinks."""
    if piece == 0:
        return 0, min(place.sinks, position + 1)
    first = first_visible(place, position)
    segment = first // SEGMENT + piece - 1
    return max(first, segment * SEGMENT), min(position + 1, (segment + 1) * SEGMENT)


@kernel
def attend(job_address, model, index, thread, memory):
    """O_head of every token and head, the work shared out by token, K/V head and, where they are few, by piece."""
    job, n_groups = job_at(job_address, 0), model.n_kv_heads
    if job.pieces == 0:
        for work in range(thread, job.n_tokens * n_groups, job.n_threads):
            attend_in_order(job_address, model, index, work // n_groups, work % n_groups, memory)
        return
    for work in range(thread, job.n_tokens * n_groups * job.pieces, job.n_threads):
        pair, piece = work // job.pieces, work % job.pieces
        token, group = pair // n_groups, pair % n_groups
        place_address, position = ring_layer_address(layers_of(job, token), index), position_of(job, token)
        place = ring_layer_at(place_address, 0)
        start, stop = piece_range(place, position, piece)
        if piece < count_pieces(place, position) and start < stop:
            state = partial(job, model, pair, piece)
            run_code(place.code, (job_address, place_address, token, group, piece, start, stop, memory, state))
    meet(job.barrier, job.n_threads)
    for work in range(thread, job.n_tokens * n_groups, job.n_threads):
        merge_partials(job, model, index, work // n_groups, work % n_groups, memory)


@kernel
def layers_of(job, token):
    """Address of the layers of the token's ring."""
    return ring_at(job.rings, load_i32(job.sequence + 4 * token)).layers


@kernel
def position_of(job, token):
    return load_i64(job.positions + 8 * token)


@kernel
def head_bytes(model):
    """Of one head's state: the sums, padded, then m and l."""
    return padded_bytes(model.d_v) + 4 * PADDING


@kernel
def partial(job, model, pair, piece):
    """Address of the states of a token's K/V head for a piece."""
    return job.partials + (pair * job.pieces + piece) * (model.n_heads // model.n_kv_heads) * head_bytes(model)


@kernel
def attend_in_order(job_address, model, index, token, group, memory):
    """A token's heads of one group, its pieces one after the other."""
    job = job_at(job_address, 0)
    place_address, position = ring_layer_address(layers_of(job, token), index), position_of(job, token)
    place = ring_layer_at(place_address, 0)
    total, piece_state = memory + job.thread_state, memory + job.thread_piece
    empty(model, total)
    for piece in range(count_pieces(place, position)):
        start, stop = piece_range(place, position, piece)
        if start < stop:
            run_code(place.code, (job_address, place_address, token, group, piece, start, stop, memory, piece_state))
            merge(model, total, piece_state)
    store_heads(job, model, token, group, total)


@kernel
def merge_partials(job, model, index, token, group, memory):
    """The same from pieces that are computed already."""
    place, position = ring_layer_at(layers_of(job, token), index), position_of(job, token)
    total = memory + job.thread_state
    empty(model, total)
    for piece in range(count_pieces(place, position)):
        start, stop = piece_range(place, position, piece)
        if start < stop:
            merge(model, total, partial(job, model, token * model.n_kv_heads + group, piece))
    store_heads(job, model, token, group, total)


def piece_kernel(unpack: Any) -> Any:
    """The kernel that attends over a piece of a ring whose keys and values `unpack` brings to float32:

    attend_piece(job, layer of the ring, token, group, piece, start, stop, memory, state), addresses and numbers, writes
    the state of each head of a group over the positions from start to stop; K and V are read once for them all.
    """

    @kernel
    def attend_piece(job_address, place_address, token, group, piece, start, stop, memory, state):
        job, place = job_at(job_address, 0), ring_layer_at(place_address, 0)
        model = model_at(job.model, 0)
        heads, width, value_width = model.n_heads // model.n_kv_heads, padded_bytes(model.d_k), padded_bytes(model.d_v)
        q = (job.q_sinks if piece == 0 else job.q_ring) + (token * model.n_heads + group * heads) * width
        rows, scores = memory + job.thread_rows, memory + job.thread_scores
        at = start
        while at < stop:
            slot, n = run_of_slots(place, at, stop, ROWS)
            for r in range(n):
                key = place.keys + (group * place.slots + slot + r) * place.key_bytes
                unpack(key, model.d_k, rows + r * width)
            multiply_unpacked(rows, n, width // 4, q, width, heads, scores + 4 * (at - start), 4 * SEGMENT)
            at += n
        for h in range(heads):
            head = state + h * head_bytes(model)
            weigh(model, scores + 4 * SEGMENT * h, stop - start, head + value_width)
            for i in range(0, value_width, 4 * LANES):
                store(head + i, splat(ZERO))
        at = start
        while at < stop:
            slot, n = run_of_slots(place, at, stop, VALUE_ROWS)
            for r in range(n):
                value = place.values + (group * place.slots + slot + r) * place.value_bytes
                unpack(value, model.d_v, rows + r * value_width)
            for h in range(heads):
                weights = scores + 4 * (SEGMENT * h + at - start)
                mix(weights, rows, n, value_width, state + h * head_bytes(model))
            at += n

    return attend_piece


@kernel
def run_of_slots(place, position, stop, most):
    """The slot of a position, and how many positions from there on stand in slots that follow each other, at most."""
    slot = slot_of(place, position)
    end = place.sinks if position < place.sinks else place.slots
    return slot, min(most, stop - position, end - slot)


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


@kernel
def empty(model, state):
    """The state of no positions at all."""
    for h in range(model.n_heads // model.n_kv_heads):
        head = state + h * head_bytes(model)
        for i in range(0, padded_bytes(model.d_v), 4 * LANES):
            store(head + i, splat(ZERO))
        store_f32(head + padded_bytes(model.d_v), MINUS_INFINITY)
        store_f32(head + padded_bytes(model.d_v) + 4, ZERO)


@kernel
def merge(model, total, piece):
    """Take a piece's states into the total."""
    width = padded_bytes(model.d_v)
    for h in range(model.n_heads // model.n_kv_heads):
        a, b = total + h * head_bytes(model), piece + h * head_bytes(model)
        m_a, m_b = load_f32(a + width), load_f32(b + width)
        m = max(m_a, m_b)
        scale_a, scale_b = vector_math.exp(splat(m_a - m)), vector_math.exp(splat(m_b - m))
        for i in range(0, width, 4 * LANES):
            store(a + i, load_f32s(a + i) * scale_a + load_f32s(b + i) * scale_b)
        l_a, l_b = load_f32(a + width + 4), load_f32(b + width + 4)
        store_f32(a + width, m)
        store_f32(a + width + 4, l_a * first_lane(scale_a) + l_b * first_lane(scale_b))


@kernel
def store_heads(job, model, token, group, state):
    """O_head = Σ eˢ⁻ᵐ·v / l, beside the other heads' in the token's row."""
    heads = model.n_heads // model.n_kv_heads
    row = job.heads + token * padded_bytes(model.n_heads * model.d_v)
    for h in range(heads):
        head = state + h * head_bytes(model)
        scale(head, model.d_v, np.float32(1) / load_f32(head + padded_bytes(model.d_v) + 4))
        copy(head, model.d_v, row + 4 * (group * heads + h) * model.d_v)
