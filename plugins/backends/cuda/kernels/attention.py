"""Attention over rings of float16 or bytes, on tensor cores: prefill and decode are this one kernel.

S = QKᵀ·scale, α = softmax(S), O_head = αV. The queries that share a K/V head are rows of a matrix, a row for each head
of each token. A warp takes a tile of QUERY_ROWS of them over one piece of the context and up to VALUE_COLUMNS columns
of the values, KEYS_AT_ONCE keys at a time with the online softmax (Milakov and Gimelshein 2018, algorithm 3). It leaves
Σ eˢ⁻ᵐ·v, m = max s and l = Σ eˢ⁻ᵐ of each row; `merge` puts the pieces together.

Keys and values go from memory straight into the registers that the tensor cores take. No order of dimensions or keys
matters inside a sum, so each lane loads 16 bytes that follow each other. Queries and weights are halves twice,
x ≈ high + low with 22 bits, so that nothing is lost beside float32.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda, float32, int64, uint32

from ringlet.plugins.backends.cuda.kernels.attention_places import (
    first_visible,
    piece_start,
    piece_stop,
    slot_after,
    slot_of,
)
from ringlet.plugins.backends.cuda.kernels.declare import (
    Float,
    Floats,
    Int,
    Ints,
    Kernel,
    Longs,
    device,
    kernel,
    unrolled,
)
from ringlet.plugins.backends.cuda.kernels.functions import (
    half_of,
    load_shared4,
    longs_at,
    mma_halves,
    mma_halves_75,
    pack_halves,
    permute_bytes,
    shorts_at,
)
from ringlet.plugins.backends.cuda.kernels.ring_rows import READERS
from ringlet.plugins.backends.cuda.kernels.warp import larger, quad_max, quad_sum, sync_warp
from ringlet.plugins.backends.cuda.shapes import (
    KEYS_AT_ONCE,
    QUERY_ROWS,
    RING_KEY_SCALES,
    RING_KEY_WIDTH,
    RING_KEYS,
    RING_KIND,
    RING_KINDS,
    RING_RECORD,
    RING_SLOTS,
    RING_VALUE_SCALES,
    RING_VALUE_WIDTH,
    RING_VALUES,
    SHARED_ALIGNMENT,
    VALUE_COLUMNS,
    attention_warps,
)

ZERO, MINUS_INFINITY = np.float32(0), np.float32(-np.inf)
FIRST_OF_PAIR, SECOND_OF_PAIR = 0x5410, 0x7632  # selectors: the lower or the upper halves of two words


@device
def finite(m):
    """m, or 0 where no key has been seen, so that differences from it are no NaN."""
    return m if m != MINUS_INFINITY else ZERO


@device
def capped(s, cap):
    """cap·tanh(s/cap), or s where there is no cap."""
    return cap * np.float32(math.tanh(s / cap)) if cap > ZERO else s


def attention(d_k: int, d_v: int, instruction: str = "k16", kv_dtype: str = "f16") -> Kernel:
    """The kernel for heads of d_k and d_v. instruction: "k8" for GPUs of compute capability 7.5. kv_dtype: or "q8"."""
    (read, scale_of), KIND = READERS[kv_dtype], RING_KINDS[kv_dtype]
    mma = {"k16": mma_halves, "k8": mma_halves_75}[instruction]
    WARPS = attention_warps(d_k)
    K_STEPS = -(-d_k // 32)  # loads of 32 parts of a key
    V_BLOCKS = min(-(-d_v // 64), VALUE_COLUMNS // 64)  # loads of 64 parts of a value
    Q_WORDS = 16 * K_STEPS
    Q_STRIDE = Q_WORDS if Q_WORDS % 32 == 16 else Q_WORDS + 16  # rows side by side fall on other banks
    Q_LOW, Q_WARP = QUERY_ROWS * Q_STRIDE, 2 * QUERY_ROWS * Q_STRIDE
    SHARED, SUMS = WARPS * 2 * QUERY_ROWS * Q_STRIDE, 32 * V_BLOCKS
    TILES, SCORES = KEYS_AT_ONCE // 8, KEYS_AT_ONCE // 2

    @device
    def accumulate(sums, at, a0, a1, a2, a3, b0, b1):
        c = mma(sums[at], sums[at + 1], sums[at + 2], sums[at + 3], a0, a1, a2, a3, b0, b1)
        sums[at] = c[0]
        sums[at + 1] = c[1]
        sums[at + 2] = c[2]
        sums[at + 3] = c[3]

    @device
    def place_key(t, places, scales, ring, slot, quad, most, first_slot, key_width, offset):
        """Where the lane's part of its key in tile t is; keys beyond the piece are read again, and not seen."""
        row = first_slot + slot_after(ring, slot, min(8 * t + quad, most))
        places[t] = row * key_width + offset
        scales[t] = scale_of(ring[RING_KEY_SCALES], row)

    @device
    def score_keys(t, s, keys, places, scales, part, inside, high_a, high_b, low_a, low_b):
        """Add 32 parts of the dot products with eight keys."""
        k = read(keys, places[t] + part, inside, scales[t])
        accumulate(s, 4 * t, high_a[0], high_b[0], high_a[1], high_b[1], k[0], k[1])
        accumulate(s, 4 * t, high_a[2], high_b[2], high_a[3], high_b[3], k[2], k[3])
        accumulate(s, 4 * t, low_a[0], low_b[0], low_a[1], low_b[1], k[0], k[1])
        accumulate(s, 4 * t, low_a[2], low_b[2], low_a[3], low_b[3], k[2], k[3])

    @device
    def mask_score(i, s, at, hi, lo_a, lo_b, position_a, position_b, cap, most):
        """Score i of both rows: capped, or -∞ where the query does not see the key. most: the largest so far."""
        position, of_a = at + 8 * (i >> 1) + (i & 1), 4 * (i >> 1) + (i & 1)
        sees_a = position < hi and lo_a <= position and position <= position_a
        sees_b = position < hi and lo_b <= position and position <= position_b
        s[of_a] = capped(s[of_a], cap) if sees_a else MINUS_INFINITY
        s[of_a + 2] = capped(s[of_a + 2], cap) if sees_b else MINUS_INFINITY
        most[0], most[1] = larger(most[0], s[of_a]), larger(most[1], s[of_a + 2])

    @device
    def weigh(i, s, m, totals):
        """e^(s - m) of score i of both rows."""
        of_a = 4 * (i >> 1) + (i & 1)
        s[of_a] = np.float32(math.exp(s[of_a] - finite(m[0])))
        s[of_a + 2] = np.float32(math.exp(s[of_a + 2] - finite(m[1])))
        totals[0] += s[of_a]
        totals[1] += s[of_a + 2]

    @device
    def scale_sums(i, sums, factor_a, factor_b):
        sums[4 * i] *= factor_a
        sums[4 * i + 1] *= factor_a
        sums[4 * i + 2] *= factor_b
        sums[4 * i + 3] *= factor_b

    @device
    def add_columns(i, sums, block, v, a, rest):
        """Two columns of each eight of a block: Σ weight·value over 16 keys."""
        target = 4 * (8 * block + 2 * i)
        b0, b1 = permute_bytes(v[0][i], v[1][i], FIRST_OF_PAIR), permute_bytes(v[2][i], v[3][i], FIRST_OF_PAIR)
        accumulate(sums, target, a[0], a[1], a[2], a[3], b0, b1)
        accumulate(sums, target, rest[0], rest[1], rest[2], rest[3], b0, b1)
        b0, b1 = permute_bytes(v[0][i], v[1][i], SECOND_OF_PAIR), permute_bytes(v[2][i], v[3][i], SECOND_OF_PAIR)
        accumulate(sums, target + 4, a[0], a[1], a[2], a[3], b0, b1)
        accumulate(sums, target + 4, rest[0], rest[1], rest[2], rest[3], b0, b1)

    @device
    def add_block(block, sums, values, value_width, rows, scales, column, a, rest):
        """64 columns of the values of 16 keys."""
        column += 64 * block
        inside = column < value_width
        v = (
            read(values, rows[0] * value_width + column, inside, scales[0]),
            read(values, rows[1] * value_width + column, inside, scales[1]),
            read(values, rows[2] * value_width + column, inside, scales[2]),
            read(values, rows[3] * value_width + column, inside, scales[3]),
        )
        add_all_columns(sums, block, v, a, rest)

    @device
    def add_values(u, sums, s, ring, values, value_width, slot, first_slot, column, pair, most):
        """16 keys' values times their weights."""
        i, key = 8 * u, 16 * u + 2 * pair
        a = (
            pack_halves(s[i], s[i + 1]),
            pack_halves(s[i + 2], s[i + 3]),
            pack_halves(s[i + 4], s[i + 5]),
            pack_halves(s[i + 6], s[i + 7]),
        )
        rest = (
            pack_halves(s[i] - half_of(a[0]), s[i + 1] - half_of(a[0] >> 16)),
            pack_halves(s[i + 2] - half_of(a[1]), s[i + 3] - half_of(a[1] >> 16)),
            pack_halves(s[i + 4] - half_of(a[2]), s[i + 5] - half_of(a[2] >> 16)),
            pack_halves(s[i + 6] - half_of(a[3]), s[i + 7] - half_of(a[3] >> 16)),
        )
        rows = (
            first_slot + slot_after(ring, slot, min(key, most)),
            first_slot + slot_after(ring, slot, min(key + 1, most)),
            first_slot + slot_after(ring, slot, min(key + 8, most)),
            first_slot + slot_after(ring, slot, min(key + 9, most)),
        )
        scales = (
            scale_of(ring[RING_VALUE_SCALES], rows[0]),
            scale_of(ring[RING_VALUE_SCALES], rows[1]),
            scale_of(ring[RING_VALUE_SCALES], rows[2]),
            scale_of(ring[RING_VALUE_SCALES], rows[3]),
        )
        add_all_blocks(sums, values, value_width, rows, scales, column, a, rest)

    @device
    def write_sums(i, sums, partials, at_a, at_b, column, has_a, has_b):
        """Two columns of each row, eight apart."""
        first, value = column + 64 * (i >> 3) + (i & 7), 4 * i
        second = first + 8
        if first < d_v and has_a:
            partials[at_a + first] = sums[value]
        if second < d_v and has_a:
            partials[at_a + second] = sums[value + 1]
        if first < d_v and has_b:
            partials[at_b + first] = sums[value + 2]
        if second < d_v and has_b:
            partials[at_b + second] = sums[value + 3]

    place_keys, score_all_keys = unrolled(TILES, place_key), unrolled(TILES, score_keys)
    mask_scores, weigh_all = unrolled(2 * TILES, mask_score), unrolled(2 * TILES, weigh)
    scale_all_sums, write_all_sums = unrolled(8 * V_BLOCKS, scale_sums), unrolled(8 * V_BLOCKS, write_sums)
    add_all_columns, add_all_blocks = unrolled(4, add_columns), unrolled(V_BLOCKS, add_block)
    add_all_values = unrolled(KEYS_AT_ONCE // 16, add_values)

    @kernel(f"attention-{d_k}-{d_v}-{instruction}" + (f"-{kv_dtype}" if kv_dtype != "f16" else ""), 32 * WARPS)
    def attend(
        q_ring: Floats,  # (n, n_heads, d_k), rotated at the token's position
        q_sinks: Floats,  # the same, rotated for the sinks
        partials: Floats,  # (n, n_heads, n_pieces, d_v)
        states: Floats,  # (n, n_heads, n_pieces, 2): m and l
        tiles: Ints,  # (n_tiles, 3): a sequence's first token, its number of tokens, the tile's number in it
        rings: Longs,  # (n,): the address of each token's ring
        positions: Ints,  # (n,)
        layer: Int,
        group: Int,  # heads that share a K/V head
        n_tiles: Int,
        n_pieces: Int,  # of the context
        sink_pieces: Int,  # 1: piece 0 are the sinks, 0: no ring has any
        length: Int,  # of a piece, a multiple of PIECE
        score_scale: Float,
        score_cap: Float,  # 0: none
    ) -> None:
        shared = cuda.shared.array(SHARED, uint32, SHARED_ALIGNMENT)
        lane, warp = cuda.threadIdx.x & 31, cuda.threadIdx.x >> 5
        index, kv_head, n_heads = cuda.blockIdx.x * WARPS + warp, cuda.blockIdx.y, cuda.gridDim.y * group
        if index >= n_tiles * n_pieces:
            return
        tile, piece = index % n_tiles, index // n_tiles
        start, n_rows, first_row = tiles[3 * tile], tiles[3 * tile + 1] * group, tiles[3 * tile + 2] * QUERY_ROWS
        ring = longs_at(rings[start] + layer * RING_RECORD * 8)
        if ring[RING_KIND] != KIND:
            return
        last_row = min(first_row + QUERY_ROWS, n_rows) - 1
        first_position, last_position = positions[start + first_row // group], positions[start + last_row // group]
        lo = piece_start(ring, first_position, piece, sink_pieces, length)
        hi = piece_stop(ring, first_position, last_position, piece, sink_pieces, length)
        is_sinks, first_column = piece < sink_pieces, cuda.blockIdx.z * VALUE_COLUMNS

        # The two rows that this lane has numbers of, and what they see
        quad, pair = lane >> 2, lane & 3
        row_a, row_b = min(first_row + quad, last_row), min(first_row + quad + 8, last_row)
        position_a, position_b = positions[start + row_a // group], positions[start + row_b // group]
        lo_a = lo if is_sinks else first_visible(ring, position_a)
        lo_b = lo if is_sinks else first_visible(ring, position_b)
        m, totals = cuda.local.array(2, float32), cuda.local.array(2, float32)
        most = cuda.local.array(2, float32)
        m[0], m[1], totals[0], totals[1] = MINUS_INFINITY, MINUS_INFINITY, ZERO, ZERO
        sums = cuda.local.array(SUMS, float32)
        for i in range(SUMS):
            sums[i] = ZERO

        if lo < hi:
            base = warp * Q_WARP
            for i in range(lane, QUERY_ROWS * Q_WORDS, 32):
                row, part = i // Q_WORDS, 2 * (i % Q_WORDS)
                of_sequence = min(first_row + row, last_row)
                at = ((start + of_sequence // group) * n_heads + kv_head * group + of_sequence % group) * d_k
                x, y = ZERO, ZERO
                if part < d_k:
                    x = (q_sinks[at + part] if is_sinks else q_ring[at + part]) * score_scale
                if part + 1 < d_k:
                    y = (q_sinks[at + part + 1] if is_sinks else q_ring[at + part + 1]) * score_scale
                both = pack_halves(x, y)
                shared[base + row * Q_STRIDE + i % Q_WORDS] = both
                rest = pack_halves(x - half_of(both), y - half_of(both >> 16))
                shared[base + Q_LOW + row * Q_STRIDE + i % Q_WORDS] = rest
            sync_warp()

        keys, values = shorts_at(ring[RING_KEYS]), shorts_at(ring[RING_VALUES])
        key_width, value_width, column = ring[RING_KEY_WIDTH], ring[RING_VALUE_WIDTH], first_column + 8 * quad
        first_slot = kv_head * ring[RING_SLOTS]
        s, places = cuda.local.array(SCORES, float32), cuda.local.array(TILES, int64)
        scales = cuda.local.array(TILES, float32)
        for at in range(lo, hi, KEYS_AT_ONCE):
            slot = slot_of(ring, at)
            place_keys(places, scales, ring, slot, quad, hi - 1 - at, first_slot, key_width, 8 * pair)
            for i in range(SCORES):
                s[i] = ZERO
            for step in range(K_STEPS):
                inside = 32 * step + 8 * pair < key_width
                word = warp * Q_WARP + quad * Q_STRIDE + 16 * step + 4 * pair
                high_a, high_b = load_shared4(shared, word), load_shared4(shared, word + 8 * Q_STRIDE)
                low_a, low_b = load_shared4(shared, word + Q_LOW), load_shared4(shared, word + Q_LOW + 8 * Q_STRIDE)
                score_all_keys(s, keys, places, scales, 32 * step, inside, high_a, high_b, low_a, low_b)
            most[0], most[1] = m[0], m[1]
            mask_scores(s, at + 2 * pair, hi, lo_a, lo_b, position_a, position_b, score_cap, most)
            most[0], most[1] = quad_max(most[0]), quad_max(most[1])
            factor_a = np.float32(math.exp(m[0] - finite(most[0])))
            factor_b = np.float32(math.exp(m[1] - finite(most[1])))
            m[0], m[1], totals[0], totals[1] = most[0], most[1], totals[0] * factor_a, totals[1] * factor_b
            scale_all_sums(sums, factor_a, factor_b)
            weigh_all(s, m, totals)
            add_all_values(sums, s, ring, values, value_width, slot, first_slot, column, pair, hi - 1 - at)

        totals[0], totals[1] = quad_sum(totals[0]), quad_sum(totals[1])
        state_a = ((start + row_a // group) * n_heads + kv_head * group + row_a % group) * n_pieces + piece
        state_b = ((start + row_b // group) * n_heads + kv_head * group + row_b % group) * n_pieces + piece
        has_a, has_b = first_row + quad <= last_row, first_row + quad + 8 <= last_row
        writes_state = pair == 0 and first_column == 0
        if writes_state and has_a:
            states[2 * state_a] = m[0]
            states[2 * state_a + 1] = totals[0]
        if writes_state and has_b:
            states[2 * state_b] = m[1]
            states[2 * state_b + 1] = totals[1]
        if lo < hi:
            write_all_sums(sums, partials, state_a * d_v, state_b * d_v, first_column + 16 * pair, has_a, has_b)

    return attend
