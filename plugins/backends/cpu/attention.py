"""Attention over the rings: S = QKᵀ·scale, α = softmax(S), O_head = αV, piece by piece of the positions a query sees.

Piece 0 are the sinks, the others are cut at the multiples of SEGMENT. Each piece gives, for each head that shares a
K/V head, Σ eˢ⁻ᵐ·v, m = max s and l = Σ eˢ⁻ᵐ; two pieces merge by bringing both to the larger m (Milakov and Gimelshein
2018, Online normalizer calculation for softmax). Pieces merge in order, whoever computed them, so that threads change
no bit.
"""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cpu import vector_math
from ringlet.plugins.backends.cpu.attention_places import (
    count_pieces,
    head_bytes,
    padded_bytes,
    piece_range,
    slot_of,
)
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.elementwise import copy, rms_norm, rotate, scale
from ringlet.plugins.backends.cpu.memory import (
    job_at,
    load_f32,
    load_f32s,
    load_i64,
    ring_at,
    ring_layer_address,
    ring_layer_at,
    rope_at,
    run_code,
    store,
    store_f32,
)
from ringlet.plugins.backends.cpu.records import WORK_BYTES
from ringlet.plugins.backends.cpu.ring_rows import pack_row
from ringlet.plugins.backends.cpu.simd import first_lane, splat
from ringlet.plugins.backends.cpu.target import LANES
from ringlet.plugins.backends.cpu.work import finish, take, wait

ZERO, MINUS_INFINITY = np.float32(0), np.float32(-np.inf)


@kernel
def place_token(job, model, layer, index, token, head):
    """Norm and rotate a token's queries and keys, and write keys and values into its ring. head: memory for one head.

    K is stored rotated at its position. The query meets sinks rotated at min(position, capacity - 1).
    """
    ring = ring_at(job.rings, load_i64(job.sequence + 8 * token))
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
        row = g * place.slots + slot
        pack_row(place.kind, head, d_k, place.keys + row * place.key_bytes, place.key_scales + 4 * row)
        v = job.v + token * padded_bytes(n_kv_heads * model.d_v) + 4 * g * model.d_v
        pack_row(place.kind, v, model.d_v, place.values + row * place.value_bytes, place.value_scales + 4 * row)


@kernel
def turn(job, model, layer, row, x):
    """Rotate a head by an angle row, where the layer has a rope."""
    if layer.rope >= 0:
        cos = job.angles + row * 2 * job.angle_width * 4
        rotate(x, rope_at(model.ropes, layer.rope), cos, cos + job.angle_width * 4)


@kernel
def attend(job_address, model, index, memory, work):
    """O_head of every token and head, shared out by token, K/V head and, where they are few, by piece.

    Returns where the next piece of work is.
    """
    job, n_groups = job_at(job_address, 0), model.n_kv_heads
    n_pairs = job.n_tokens * n_groups
    if job.pieces == 0:
        pair = take(work)
        while pair < n_pairs:
            attend_in_order(job_address, model, index, pair // n_groups, pair % n_groups, memory)
            finish(work)
            pair = take(work)
        wait(job, work, n_pairs)
        return work + WORK_BYTES
    share = take(work)
    while share < n_pairs * job.pieces:
        attend_one_piece(job_address, model, index, share // job.pieces, share % job.pieces, memory)
        finish(work)
        share = take(work)
    wait(job, work, n_pairs * job.pieces)
    work += WORK_BYTES
    pair = take(work)
    while pair < n_pairs:
        merge_partials(job, model, index, pair // n_groups, pair % n_groups, memory)
        finish(work)
        pair = take(work)
    wait(job, work, n_pairs)
    return work + WORK_BYTES


@kernel
def attend_one_piece(job_address, model, index, pair, piece, memory):
    """One piece of what a token's K/V head sees, if it has so many."""
    job = job_at(job_address, 0)
    token, group = pair // model.n_kv_heads, pair % model.n_kv_heads
    place_address, position = ring_layer_address(layers_of(job, token), index), position_of(job, token)
    place = ring_layer_at(place_address, 0)
    start, stop = piece_range(place, position, piece)
    if piece < count_pieces(place, position) and start < stop:
        state = partial(job, model, pair, piece)
        run_code(place.code, (job_address, place_address, token, group, piece, start, stop, memory, state))


@kernel
def layers_of(job, token):
    """Address of the layers of the token's ring."""
    return ring_at(job.rings, load_i64(job.sequence + 8 * token)).layers


@kernel
def position_of(job, token):
    return load_i64(job.positions + 8 * token)


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
