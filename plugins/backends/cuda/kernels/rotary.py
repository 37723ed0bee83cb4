"""From the projections to attention: head norms, RoPE, and the way of keys and values into the rings."""

from __future__ import annotations

import math

import numpy as np
from numba import cuda

from ringlet.plugins.backends.cuda.kernels.attention_places import slot_of
from ringlet.plugins.backends.cuda.kernels.declare import Doubles, Float, Floats, Int, Ints, Longs, device, kernel
from ringlet.plugins.backends.cuda.kernels.functions import floats_at, longs_at, pack_halves, shorts_at
from ringlet.plugins.backends.cuda.kernels.warp import warp_sum
from ringlet.plugins.backends.cuda.shapes import (
    ADJACENT,
    COLUMN_THREADS,
    FLOAT_RING,
    HALF_RING,
    PLACE_WARPS,
    QK_NORM,
    RING_KEY_WIDTH,
    RING_KEYS,
    RING_KIND,
    RING_RECORD,
    RING_SLOTS,
    RING_VALUE_WIDTH,
    RING_VALUES,
    SINKS,
)

ZERO, ONE = np.float32(0), np.float32(1)


@kernel("angles", COLUMN_THREADS)
def angles(
    positions: Ints,  # (n_rows,)
    frequencies: Doubles,  # (n_ropes, n_pairs); what a rope lacks is 0
    magnitudes: Doubles,  # (n_ropes,)
    out: Floats,  # (n_ropes, n_rows, 2, n_pairs): cos and sin times the magnitude
    n_pairs: Int,
) -> None:
    """cos and sin of position·frequency (RoFormer, eq. 34), angles in float64. A block a row of a rope."""
    row, rope = cuda.blockIdx.x, cuda.blockIdx.y
    at = (rope * cuda.gridDim.x + row) * 2 * n_pairs
    for pair in range(cuda.threadIdx.x, n_pairs, cuda.blockDim.x):
        angle = np.float64(positions[row]) * frequencies[rope * n_pairs + pair]
        out[at + pair] = np.float32(math.cos(angle) * magnitudes[rope])
        out[at + n_pairs + pair] = np.float32(math.sin(angle) * magnitudes[rope])


@device
def normed(x, at, index, factor, weight, flags):
    """One part of a head after its norm."""
    return x[at + index] * factor * weight[index] if flags & QK_NORM else x[at + index]


@device
def write(value, address, at, kind, qkv, source):
    """Into a ring's keys or values; what goes to a ring of bytes waits where it came from, for `place_bytes`."""
    if kind == HALF_RING:
        shorts_at(address)[at] = pack_halves(value, ZERO) & 0xFFFF
    elif kind == FLOAT_RING:
        floats_at(address)[at] = value
    else:
        qkv[source] = value


@kernel("place", 32 * PLACE_WARPS)
def place(
    qkv: Floats,  # (n, stride): of each token its queries, then its keys, then its values
    q_norm: Floats,  # (d_k,)
    k_norm: Floats,
    angles: Floats,  # (2·n, 2, n_pairs): at each token's position, then at its position among the sinks
    rings: Longs,  # (n,): the address of each token's ring
    positions: Ints,  # (n,)
    q_ring: Floats,  # (n, n_heads, d_k): queries, normed and rotated
    q_sinks: Floats,  # the same, rotated for the sinks
    layer: Int,
    n_heads: Int,
    n_kv_heads: Int,
    d_k: Int,
    d_v: Int,
    stride: Int,
    n_pairs: Int,  # of the angles; the layer's own RoPE may turn fewer
    turned: Int,  # pairs that the layer's RoPE turns
    epsilon: Float,
    flags: Int,
) -> None:
    """Norm and rotate a token's queries and keys; write keys and values into its ring. A warp a head.

    K is stored rotated at its own position. The query meets sinks rotated at min(position, capacity - 1).
    """
    token, lane = cuda.blockIdx.y, cuda.threadIdx.x & 31
    head = cuda.blockIdx.x * PLACE_WARPS + (cuda.threadIdx.x >> 5)
    if head >= n_heads + 2 * n_kv_heads:
        return
    ring = longs_at(rings[token] + layer * RING_RECORD * 8)
    slot, slots, kind = slot_of(ring, positions[token]), ring[RING_SLOTS], ring[RING_KIND]
    if head >= n_heads + n_kv_heads:
        group = head - n_heads - n_kv_heads
        source = token * stride + (n_heads + n_kv_heads) * d_k + group * d_v
        target = (group * slots + slot) * ring[RING_VALUE_WIDTH]
        for i in range(lane, d_v, 32):
            write(qkv[source + i], ring[RING_VALUES], target + i, kind, qkv, source + i)
        return
    x, is_query = token * stride + head * d_k, head < n_heads
    weight = q_norm if is_query else k_norm
    factor = ONE
    if flags & QK_NORM:
        total = ZERO
        for i in range(lane, d_k, 32):
            total += qkv[x + i] * qkv[x + i]
        factor = ONE / np.float32(math.sqrt(warp_sum(total) / np.float32(d_k) + epsilon))
    key = ((head - n_heads) * slots + slot) * ring[RING_KEY_WIDTH]
    query = (token * n_heads + head) * d_k
    first, sink = token * 2 * n_pairs, (cuda.gridDim.y + token) * 2 * n_pairs
    for pair in range(lane, turned, 32):
        i = 2 * pair if flags & ADJACENT else pair
        j = i + 1 if flags & ADJACENT else i + turned
        a, b = normed(qkv, x, i, factor, weight, flags), normed(qkv, x, j, factor, weight, flags)
        cos, sin = angles[first + pair], angles[first + n_pairs + pair]
        a_turned, b_turned = a * cos - b * sin, a * sin + b * cos
        if is_query:
            q_ring[query + i] = a_turned
            q_ring[query + j] = b_turned
            if flags & SINKS:
                cos, sin = angles[sink + pair], angles[sink + n_pairs + pair]
                q_sinks[query + i] = a * cos - b * sin
                q_sinks[query + j] = a * sin + b * cos
        else:
            write(a_turned, ring[RING_KEYS], key + i, kind, qkv, x + i)
            write(b_turned, ring[RING_KEYS], key + j, kind, qkv, x + j)
    for i in range(2 * turned + lane, d_k, 32):
        value = normed(qkv, x, i, factor, weight, flags)
        if is_query:
            q_ring[query + i] = value
            if flags & SINKS:
                q_sinks[query + i] = value
        else:
            write(value, ring[RING_KEYS], key + i, kind, qkv, x + i)
