"""The likeliest tokens of rows of logits, in order, so that the others need not leave the GPU.

A row is cut into parts. `rank` finds the `count` likeliest of each part, a block a part; `likeliest` finds those of all
parts. Both begin alike: numbers stand in groups, and the count-th largest of the groups' maxima is a border that as
many numbers reach and that, whatever the numbers are, only those of `count` groups can reach. What does is sorted.

A token's key is one int64 that orders as `core/likeliest.py` says: by the logit, of equal ones the lower id, NaN first.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, int32, int64

from ringlet.plugins.backends.cuda.kernels.declare import Floats, Int, Ints, Longs, block_function, device, kernel
from ringlet.plugins.backends.cuda.kernels.functions import bits_of
from ringlet.plugins.backends.cuda.shapes import RANKED, RANKED_GROUPS, RANKED_PART, RANKED_THREADS

SIGN, INFINITY, IDS = 1 << 31, 0x7F800000, (1 << 32) - 1
LOWEST = -(1 << 63)  # below every token's key


@device
def key_of_logit(logits, first, i, first_id):
    """The key of the i-th logit from the first on; its token is as far from the first id."""
    bits = np.int64(bits_of(logits[first + i]))
    magnitude = bits & (SIGN - 1)
    ordered = SIGN - 1 if magnitude > INFINITY else magnitude if bits < SIGN else -magnitude
    return (ordered << 32) + (IDS - first_id - i)


@device
def key_of_key(keys, first, i, first_id):
    return keys[first + i]


@block_function
def sort(keys, n):
    """The largest first, by bitonic merging (Batcher 1968); n: a power of two. Every thread has to call this."""
    span = 2
    while span <= n:
        distance = span >> 1
        while distance > 0:
            for i in range(cuda.threadIdx.x, n >> 1, cuda.blockDim.x):
                low = 2 * i - (i & (distance - 1))
                a, b = keys[low], keys[low + distance]
                if (a < b) == (low & span == 0):
                    keys[low], keys[low + distance] = b, a
            cuda.syncthreads()
            distance >>= 1
        span <<= 1


@block_function
def fill_and_sort(keys, n):
    """The same for n keys, which become a power of two by others that come last."""
    length = 1
    while length < n:
        length <<= 1
    for i in range(n + cuda.threadIdx.x, length, cuda.blockDim.x):
        keys[i] = LOWEST
    cuda.syncthreads()
    sort(keys, length)


def finder(key_at):
    """A function for kernels that leaves the `count` largest of n keys in front of `held`, in order; all if n is less.

    held: shared, int64 (RANKED,). n_held: shared, int32 (1,). See `can_rank` in `shapes` for how many there may be.
    """

    @block_function
    def find(source, first, n, first_id, count, held, n_held):
        thread, threads = cuda.threadIdx.x, cuda.blockDim.x
        if n <= RANKED_GROUPS:  # all of them
            for i in range(thread, n, threads):
                held[i] = key_at(source, first, i, first_id)
            fill_and_sort(held, n)
            return
        for group in range(thread, RANKED_GROUPS, threads):
            largest = LOWEST
            for i in range(group, n, RANKED_GROUPS):
                largest = max(largest, key_at(source, first, i, first_id))
            held[group] = largest
        if thread == 0:
            n_held[0] = 0
        cuda.syncthreads()
        sort(held, RANKED_GROUPS)
        border = held[count - 1]
        cuda.syncthreads()
        for i in range(thread, n, threads):
            key = key_at(source, first, i, first_id)
            if key >= border:
                held[cuda.atomic.add(n_held, 0, 1)] = key
        cuda.syncthreads()
        fill_and_sort(held, n_held[0])

    return find


find_logits, find_keys = finder(key_of_logit), finder(key_of_key)


@kernel("rank", RANKED_THREADS)
def rank(
    logits: Floats,  # (rows, d_vocab)
    keys: Longs,  # (rows, parts, count): of each part, the largest first
    d_vocab: Int,
    count: Int,
) -> None:
    held = cuda.shared.array(RANKED, int64)
    n_held = cuda.shared.array(1, int32)
    part, row = cuda.blockIdx.x, cuda.blockIdx.y
    first_id = part * RANKED_PART
    n = min(RANKED_PART, d_vocab - first_id)
    find_logits(logits, row * d_vocab + first_id, n, first_id, count, held, n_held)
    target = (row * cuda.gridDim.x + part) * count
    for i in range(cuda.threadIdx.x, count, cuda.blockDim.x):
        keys[target + i] = held[i] if i < n else LOWEST


@kernel("likeliest", RANKED_THREADS)
def likeliest(
    logits: Floats,  # (rows, d_vocab)
    keys: Longs,  # (rows, n): as `rank` leaves them
    ids: Ints,  # (rows, count)
    values: Floats,  # (rows, count)
    d_vocab: Int,
    n: Int,
    count: Int,
) -> None:
    """The likeliest first, with their logits."""
    held = cuda.shared.array(RANKED, int64)
    n_held = cuda.shared.array(1, int32)
    row = cuda.blockIdx.x
    find_keys(keys, row * n, n, 0, count, held, n_held)
    for i in range(cuda.threadIdx.x, count, cuda.blockDim.x):
        token_id = IDS - (held[i] & IDS)
        ids[row * count + i] = token_id
        values[row * count + i] = logits[row * d_vocab + token_id]
