"""The likeliest tokens of a row of logits, in order, as the step finds them while the logits are still in its caches.

The logits' blocks have maxima, and as many tokens as are listed are at least as large as the count-th of them. So only
blocks that reach so far are looked into, and what is found there is kept in a heap, the least of it on top.

A token's rank is one int64 that orders as `core.likeliest` says: by the logit, of equal ones the lower id, NaN first.
"""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import (
    load_f32,
    load_f32s,
    load_i32,
    load_i64,
    store_f32,
    store_i64,
    store_u32,
)
from ringlet.plugins.backends.cpu.records import LOGITS_A_BLOCK
from ringlet.plugins.backends.cpu.simd import max_number, select, splat, sum_lanes
from ringlet.plugins.backends.cpu.target import LANES

ZERO, ONE, HALF, INFINITY = np.float32(0), np.float32(1), np.float32(0.5), np.float32(np.inf)
SIGN, NAN, IDS = 1 << 31, 0x7F800001, (1 << 32) - 1
HALVINGS = 12  # of a range of maxima: what is left of it holds few


@kernel
def find_block_maxima(logits, start, stop, maxima):
    """The maxima of the blocks from start, a multiple of LOGITS_A_BLOCK, to stop; +inf of one that holds NaN."""
    for first in range(start, stop, LOGITS_A_BLOCK):
        last = min(stop, first + LOGITS_A_BLOCK)
        if last - first == LOGITS_A_BLOCK:
            largest = splat(-INFINITY)
            for i in range(first, last, LANES):
                x = load_f32s(logits + 4 * i)
                x = select(x == x, x, INFINITY)
                largest = select(x > largest, x, largest)
            found = max_number(largest)
        else:
            found = -INFINITY
            for i in range(first, last):
                x = load_f32(logits + 4 * i)
                found = found if x <= found else x if x == x else INFINITY
        store_f32(maxima + 4 * (first // LOGITS_A_BLOCK), found)


@kernel
def list_likeliest(logits, n_logits, maxima, count, heap, ids, values):
    """ids (count,), int32, and values (count,), float32, of the likeliest, 1 ≤ count ≤ n_logits.

    maxima: of the blocks, with room up to a whole vector. heap: for int64 (count,).
    """
    n_blocks = -(-n_logits // LOGITS_A_BLOCK)
    for block in range(n_blocks, -(-n_blocks // LANES) * LANES):
        store_f32(maxima + 4 * block, -INFINITY)
    border, n_held = border_of(maxima, n_blocks, count), 0
    for block in range(n_blocks):
        if not load_f32(maxima + 4 * block) < border:
            first = block * LOGITS_A_BLOCK
            for token_id in range(first, min(n_logits, first + LOGITS_A_BLOCK)):
                if not load_f32(logits + 4 * token_id) < border:
                    n_held = offer(heap, n_held, count, rank(logits, token_id))
    for left in range(count - 1, -1, -1):  # the least of what is left goes behind it
        least = load_i64(heap)
        put_down(heap, left, load_i64(heap + 8 * left))
        token_id = IDS - (least & IDS)
        store_u32(ids + 4 * left, token_id)
        store_f32(values + 4 * left, load_f32(logits + 4 * token_id))


@kernel
def border_of(maxima, n_blocks, count):
    """A number that `count` of the maxima reach, and not many more; −inf if there are no more blocks than that."""
    if n_blocks <= count:
        return -INFINITY
    low, high = lowest_and_highest(maxima, n_blocks)
    for _ in range(HALVINGS):
        middle = low + (high - low) * HALF
        if number_from(maxima, n_blocks, middle) >= count:
            low = middle
        else:
            high = middle
    return low


@kernel
def lowest_and_highest(maxima, n_blocks):
    """Of all but the last few."""
    low = high = load_f32s(maxima)
    for i in range(LANES, n_blocks - LANES + 1, LANES):
        x = load_f32s(maxima + 4 * i)
        low, high = select(x < low, x, low), select(x > high, x, high)
    return -max_number(low * -ONE), max_number(high)


@kernel
def number_from(maxima, n_blocks, border):
    """How many maxima are `border` or more; none where that is no number."""
    total = splat(ZERO)
    for i in range(0, n_blocks, LANES):
        x = load_f32s(maxima + 4 * i)
        total = total + select(x < border, splat(ZERO), select(x == x, splat(ONE), splat(ZERO)))
    return sum_lanes(total)


@kernel
def rank(logits, token_id):
    bits = load_i32(logits + 4 * token_id)
    magnitude = bits & (SIGN - 1)
    ordered = SIGN - 1 if magnitude >= NAN else magnitude if bits >= 0 else -magnitude
    return (ordered << 32) + (IDS - token_id)


@kernel
def offer(heap, n_held, count, offered):
    """Keep it, if it is among the `count` highest so far. Returns how many are held."""
    if n_held < count:
        lift(heap, n_held, offered)
        return n_held + 1
    if offered > load_i64(heap):
        put_down(heap, count, offered)
    return n_held


@kernel
def lift(heap, place, moved):
    """Put it in the place, or above it as far as it is lower than what is there."""
    while place > 0:
        above = (place - 1) // 2
        x = load_i64(heap + 8 * above)
        if x <= moved:
            break
        store_i64(heap + 8 * place, x)
        place = above
    store_i64(heap + 8 * place, moved)


@kernel
def put_down(heap, n_held, moved):
    """Put it on top in place of what is there, or below as far as it is higher than what is there."""
    place = 0
    while 2 * place + 1 < n_held:
        below = 2 * place + 1
        if below + 1 < n_held and load_i64(heap + 8 * below + 8) < load_i64(heap + 8 * below):
            below += 1
        x = load_i64(heap + 8 * below)
        if x >= moved:
            break
        store_i64(heap + 8 * place, x)
        place = below
    store_i64(heap + 8 * place, moved)
