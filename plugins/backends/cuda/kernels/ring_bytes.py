"""Keys and values into rings of bytes: signed bytes q and a scale d of each, as `core/host_memory.py` has them."""

from __future__ import annotations

import numpy as np
from numba import cuda

from ringlet.plugins.backends.cuda.kernels.attention_places import slot_of
from ringlet.plugins.backends.cuda.kernels.declare import Floats, Int, Ints, Longs, kernel
from ringlet.plugins.backends.cuda.kernels.functions import bytes_at, floats_at, longs_at, nearest
from ringlet.plugins.backends.cuda.kernels.rows import LARGEST, SMALLEST
from ringlet.plugins.backends.cuda.kernels.warp import larger, warp_max
from ringlet.plugins.backends.cuda.shapes import (
    BYTE_RING,
    PLACE_WARPS,
    RING_KEY_SCALES,
    RING_KEY_WIDTH,
    RING_KEYS,
    RING_KIND,
    RING_RECORD,
    RING_SLOTS,
    RING_VALUE_SCALES,
    RING_VALUE_WIDTH,
    RING_VALUES,
)

ZERO = np.float32(0)


@kernel("place_bytes", 32 * PLACE_WARPS)
def place_bytes(
    qkv: Floats,  # (n, stride): of each token its queries, then its keys, normed and rotated, then its values
    rings: Longs,  # (n,): the address of each token's ring
    positions: Ints,  # (n,)
    layer: Int,
    n_heads: Int,
    n_kv_heads: Int,
    d_k: Int,
    d_v: Int,
    stride: Int,
) -> None:
    """x ≈ d·q, d = max|x|/127 of each key and each value, a warp one of them. Other rings have theirs already."""
    token, lane = cuda.blockIdx.y, cuda.threadIdx.x & 31
    row = cuda.blockIdx.x * PLACE_WARPS + (cuda.threadIdx.x >> 5)
    ring = longs_at(rings[token] + layer * RING_RECORD * 8)
    if row >= 2 * n_kv_heads or ring[RING_KIND] != BYTE_RING:
        return
    is_key = row < n_kv_heads
    head, width = row if is_key else row - n_kv_heads, d_k if is_key else d_v
    place = head * ring[RING_SLOTS] + slot_of(ring, positions[token])
    source = token * stride + (n_heads + head) * d_k
    if not is_key:
        source = token * stride + (n_heads + n_kv_heads) * d_k + head * d_v
    largest = ZERO
    for i in range(lane, width, 32):
        largest = larger(largest, abs(qkv[source + i]))
    largest = warp_max(largest)
    if largest < SMALLEST:
        largest = ZERO
    factor = LARGEST / largest if largest > ZERO else ZERO
    target = bytes_at(ring[RING_KEYS] if is_key else ring[RING_VALUES])
    at = place * (ring[RING_KEY_WIDTH] if is_key else ring[RING_VALUE_WIDTH])
    for i in range(lane, width, 32):
        target[at + i] = nearest(qkv[source + i] * factor)
    if lane == 0:
        floats_at(ring[RING_KEY_SCALES] if is_key else ring[RING_VALUE_SCALES])[place] = largest / LARGEST
