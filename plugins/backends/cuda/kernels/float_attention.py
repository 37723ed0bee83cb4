"""Attention over rings of float32, plainly: a warp a head of a token over one piece of the context, a key a lane."""

from __future__ import annotations

import math

import numpy as np
from numba import cuda, float32

from ringlet.plugins.backends.cuda.kernels.attention import capped, finite
from ringlet.plugins.backends.cuda.kernels.attention_places import piece_start, piece_stop, slot_of
from ringlet.plugins.backends.cuda.kernels.declare import Float, Floats, Int, Ints, Kernel, Longs, kernel
from ringlet.plugins.backends.cuda.kernels.functions import floats_at, longs_at
from ringlet.plugins.backends.cuda.kernels.warp import larger, sync_warp, warp_max, warp_sum
from ringlet.plugins.backends.cuda.shapes import (
    FLOAT_RING,
    PLACE_WARPS,
    RING_KEY_WIDTH,
    RING_KEYS,
    RING_KIND,
    RING_RECORD,
    RING_SLOTS,
    RING_VALUE_WIDTH,
    RING_VALUES,
)

ZERO, MINUS_INFINITY = np.float32(0), np.float32(-np.inf)


def float_attention(d_k: int, d_v: int) -> Kernel:
    """The kernel for heads of d_k and d_v; what it writes is what `attention` does."""
    WARPS, WEIGHTS, COLUMNS = PLACE_WARPS, 32 * PLACE_WARPS, -(-d_v // 32)

    @kernel(f"float_attention-{d_k}-{d_v}", 32 * WARPS)
    def attend(
        q_ring: Floats,  # (n, n_heads, d_k), rotated at the token's position
        q_sinks: Floats,  # the same, rotated for the sinks
        partials: Floats,  # (n, n_heads, n_pieces, d_v)
        states: Floats,  # (n, n_heads, n_pieces, 2): m and l
        rings: Longs,  # (n,): the address of each token's ring
        positions: Ints,  # (n,)
        layer: Int,
        group: Int,  # heads that share a K/V head
        n_pieces: Int,
        sink_pieces: Int,
        length: Int,
        score_scale: Float,
        score_cap: Float,  # 0: none
    ) -> None:
        weights = cuda.shared.array(WEIGHTS, float32)
        lane, warp = cuda.threadIdx.x & 31, cuda.threadIdx.x >> 5
        piece, head, token = cuda.blockIdx.x * WARPS + warp, cuda.blockIdx.y, cuda.blockIdx.z
        if piece >= n_pieces:
            return
        ring, position = longs_at(rings[token] + layer * RING_RECORD * 8), positions[token]
        if ring[RING_KIND] != FLOAT_RING:
            return
        n_heads, is_sinks = cuda.gridDim.y, piece < sink_pieces
        lo = piece_start(ring, position, piece, sink_pieces, length)
        hi = piece_stop(ring, position, position, piece, sink_pieces, length)
        keys, values = floats_at(ring[RING_KEYS]), floats_at(ring[RING_VALUES])
        first_slot, query = head // group * ring[RING_SLOTS], (token * n_heads + head) * d_k
        m, total = MINUS_INFINITY, ZERO
        sums = cuda.local.array(COLUMNS, float32)
        for i in range(COLUMNS):
            sums[i] = ZERO
        for at in range(lo, hi, 32):
            s = MINUS_INFINITY
            if at + lane < hi:
                key, s = (first_slot + slot_of(ring, at + lane)) * ring[RING_KEY_WIDTH], ZERO
                for i in range(d_k):
                    s += (q_sinks[query + i] if is_sinks else q_ring[query + i]) * keys[key + i]
                s = capped(s * score_scale, score_cap)
            most = larger(m, warp_max(s))
            factor, weight = np.float32(math.exp(m - finite(most))), np.float32(math.exp(s - finite(most)))
            m, total = most, total * factor + warp_sum(weight)
            weights[32 * warp + lane] = weight
            sync_warp()
            for i in range(COLUMNS):
                sums[i] *= factor
            for k in range(min(32, hi - at)):
                value = (first_slot + slot_of(ring, at + k)) * ring[RING_VALUE_WIDTH]
                for i in range(COLUMNS):
                    if lane + 32 * i < d_v:
                        sums[i] += weights[32 * warp + k] * values[value + lane + 32 * i]
            sync_warp()
        state = (token * n_heads + head) * n_pieces + piece
        if lane == 0:
            states[2 * state] = m
            states[2 * state + 1] = total
        for i in range(COLUMNS):
            if lane + 32 * i < d_v and lo < hi:
                partials[state * d_v + lane + 32 * i] = sums[i]

    return attend
