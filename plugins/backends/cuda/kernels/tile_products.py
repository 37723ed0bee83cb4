"""Products of quantised rows with many tokens, on tensor cores.

A block has a tile of rows times tokens, and goes along the columns, COLUMNS at a time: it unpacks the weights to
bfloat16 in shared memory, puts the tokens' activations beside them, and each warp multiplies its part with mma.sync.
While it does, the next bytes are already on their way. Columns stand in shared memory in the order of the chunks,
whatever that is; activations are brought into the same order, since a sum has none.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32, uint32

from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.plugins.backends.cuda.kernels.declare import Bytes, Floats, Int, Kernel, Shorts, device, kernel, unrolled
from ringlet.plugins.backends.cuda.kernels.floats import byte_as_float
from ringlet.plugins.backends.cuda.kernels.formats import UNPACK
from ringlet.plugins.backends.cuda.kernels.functions import (
    load_matrices4,
    load_words4,
    mma_bfloats,
    pack_bfloats,
)
from ringlet.plugins.backends.cuda.planes import LAYOUTS
from ringlet.plugins.backends.cuda.shapes import ACCUMULATE, BIAS, SHARED_ALIGNMENT, TILES

COLUMNS = 64  # of a step
STRIDE = COLUMNS // 2 + 4  # words of a row in shared memory: eight rows fall on different banks
ZERO, NO_WORD = np.float32(0), np.uint32(0)


def tile_product(format: str, tile: str) -> Kernel:
    """The kernel for a block format and one of the TILES."""
    unpack, column_of = UNPACK[format]
    CHUNKS, HALVES, WEIGHTS = LAYOUTS[format].chunks, LAYOUTS[format].halves, BLOCK_FORMATS[format].n_weights
    shape = TILES[tile]
    ROWS, TOKENS, THREADS = shape.rows, shape.tokens, 32 * shape.warps
    M_TILES, N_PAIRS = shape.warp_rows // 16, shape.warp_tokens // 16
    WARP_ROWS, WARP_TOKENS, WARPS_ACROSS = shape.warp_rows, shape.warp_tokens, shape.tokens // shape.warp_tokens
    WORDS, SUMS = 4 * HALVES, 8 * M_TILES * N_PAIRS
    CHUNKS_A_STEP = COLUMNS // (16 * HALVES)
    CHUNKS_A_THREAD = ROWS * CHUNKS_A_STEP // THREADS or 1
    HAS_SURPLUS = THREADS * CHUNKS_A_THREAD > ROWS * CHUNKS_A_STEP
    UNITS = TOKENS * COLUMNS // 8  # of eight activations
    UNITS_A_THREAD = -(-UNITS // THREADS)
    X_START, SHARED = ROWS * STRIDE, (ROWS + TOKENS) * STRIDE
    B_WORDS = 4 * N_PAIRS
    Q_WORDS, SCALES, X_WORDS = WORDS * CHUNKS_A_THREAD, HALVES * CHUNKS_A_THREAD, 4 * UNITS_A_THREAD

    @device
    def load_weights(
        i, quants, high, scales, head, thread, first_row, n_rows, n_blocks, step, q, d, m, part_q, part_d, part_m
    ):
        """The thread's i-th chunk of a step, unpacked into q, d and m; beyond the row's end d and m are 0."""
        item = thread + i * THREADS
        row, chunk = item // CHUNKS_A_STEP, step * CHUNKS_A_STEP + item % CHUNKS_A_STEP
        if HAS_SURPLUS:  # a thread too many reads what another reads anyway
            row = min(row, ROWS - 1)
        block = min(first_row + row, n_rows - 1) * n_blocks + min(chunk // CHUNKS, n_blocks - 1)
        unpack(quants, high, scales, head, block, chunk % CHUNKS, part_q, part_d, part_m)
        inside = chunk < n_blocks * CHUNKS
        for w in range(WORDS):
            q[i * WORDS + w] = part_q[w]
        for h in range(HALVES):
            d[i * HALVES + h] = part_d[h] if inside else ZERO
            m[i * HALVES + h] = part_m[h] if inside else ZERO

    @device
    def store_weights(i, shared, thread, q, d, m):
        """As bfloat16, a half after the other."""
        item = thread + i * THREADS
        if item < ROWS * CHUNKS_A_STEP:
            at = item // CHUNKS_A_STEP * STRIDE + item % CHUNKS_A_STEP * 8 * HALVES
            for half in range(HALVES):
                scale, offset = d[i * HALVES + half], m[i * HALVES + half]
                for w in range(4):
                    word = q[i * WORDS + 4 * half + w]
                    a, b = byte_as_float(word, 0), byte_as_float(word, 1)
                    shared[at + 8 * half + 2 * w] = pack_bfloats(scale * a + offset, scale * b + offset)
                    a, b = byte_as_float(word, 2), byte_as_float(word, 3)
                    shared[at + 8 * half + 2 * w + 1] = pack_bfloats(scale * a + offset, scale * b + offset)

    @device
    def load_activations(i, x, thread, first_token, n_tokens, n_blocks, step, held):
        """The thread's i-th eight activations of a step."""
        unit = thread + i * THREADS
        token, place = first_token + unit // (COLUMNS // 8), unit % (COLUMNS // 8)
        chunk, half = step * CHUNKS_A_STEP + place // (2 * HALVES), place // 2 % HALVES
        column = chunk // CHUNKS * WEIGHTS + column_of(chunk % CHUNKS, half) + 8 * (place & 1)
        words: tuple = (NO_WORD, NO_WORD, NO_WORD, NO_WORD)
        if unit < UNITS and token < n_tokens and chunk < n_blocks * CHUNKS:
            words = load_words4(x, 2 * (token * n_blocks * WEIGHTS + column))
        for w in range(4):
            held[4 * i + w] = words[w]

    @device
    def store_activations(i, shared, thread, held):
        unit = thread + i * THREADS
        if unit < UNITS:
            at = X_START + unit // (COLUMNS // 8) * STRIDE + unit % (COLUMNS // 8) * 4
            for w in range(4):
                shared[at + w] = held[4 * i + w]

    @device
    def accumulate(sums, at, a, b0, b1):
        c = mma_bfloats(sums[at], sums[at + 1], sums[at + 2], sums[at + 3], a[0], a[1], a[2], a[3], b0, b1)
        sums[at] = c[0]
        sums[at + 1] = c[1]
        sums[at + 2] = c[2]
        sums[at + 3] = c[3]

    @device
    def multiply_pair(n, sums, row_tile, a, b):
        """16 rows times 16 tokens, 16 columns."""
        at = (row_tile * N_PAIRS + n) * 8
        accumulate(sums, at, a, b[4 * n], b[4 * n + 1])
        accumulate(sums, at + 4, a, b[4 * n + 2], b[4 * n + 3])

    @device
    def multiply_rows(r, sums, shared, at, b):
        a = load_matrices4(shared, at + 16 * r * STRIDE)
        multiply_pairs(sums, r, a, b)

    @device
    def load_tokens(n, shared, at, b):
        words = load_matrices4(shared, at + 16 * n * STRIDE)
        for w in range(4):
            b[4 * n + w] = words[w]

    @device
    def multiply_columns(k, sums, shared, row_at, token_at, b):
        """16 columns of a step."""
        load_all_tokens(shared, token_at + 8 * k, b)
        multiply_all_rows(sums, shared, row_at + 8 * k, b)

    @device
    def write_sum(i, sums, bias, out, row, token, n_rows, n_tokens, out_stride, flags):
        """The i-th number that the lane has: see `intrinsics` for where it is in its tile."""
        tile_pair, inner = i // 8, i % 8
        row += tile_pair // N_PAIRS * 16 + (inner >> 1 & 1) * 8
        token += tile_pair % N_PAIRS * 16 + (inner >> 2) * 8 + (inner & 1)
        if row < n_rows and token < n_tokens:
            at, value = token * out_stride + row, sums[i]
            if flags & BIAS:
                value += bias[row]
            if flags & ACCUMULATE:
                value += out[at]
            out[at] = value

    load_all_weights, store_all_weights = (unrolled(CHUNKS_A_THREAD, body) for body in (load_weights, store_weights))
    load_all_activations = unrolled(UNITS_A_THREAD, load_activations)
    store_all_activations = unrolled(UNITS_A_THREAD, store_activations)
    multiply_pairs, multiply_all_rows = unrolled(N_PAIRS, multiply_pair), unrolled(M_TILES, multiply_rows)
    load_all_tokens, multiply_step = unrolled(N_PAIRS, load_tokens), unrolled(COLUMNS // 16, multiply_columns)
    write_sums = unrolled(SUMS, write_sum)

    @kernel(f"tile_product-{format}-{tile}", THREADS, shape.blocks)
    def multiply(
        quants: Bytes,
        high: Bytes,
        scales: Bytes,
        head: Bytes,
        x: Shorts,  # bfloat16 (n_tokens, n_blocks·WEIGHTS)
        bias: Floats,  # (n_rows,), if flags say so
        out: Floats,  # out[token·out_stride + row]
        n_rows: Int,
        n_blocks: Int,  # of a row
        n_tokens: Int,
        out_stride: Int,
        flags: Int,
    ) -> None:
        shared = cuda.shared.array(SHARED, uint32, SHARED_ALIGNMENT)
        thread = cuda.threadIdx.x
        first_row, first_token = cuda.blockIdx.x * ROWS, cuda.blockIdx.y * TOKENS
        lane, warp = thread & 31, thread >> 5
        warp_row, warp_token = warp // WARPS_ACROSS * WARP_ROWS, warp % WARPS_ACROSS * WARP_TOKENS
        row_at = (warp_row + (lane & 15)) * STRIDE + 4 * (lane >> 4)
        token_at = X_START + (warp_token + (lane & 7) + 8 * (lane >> 4)) * STRIDE + 4 * (lane >> 3 & 1)
        q, held = cuda.local.array(Q_WORDS, uint32), cuda.local.array(X_WORDS, uint32)
        d, m = cuda.local.array(SCALES, float32), cuda.local.array(SCALES, float32)
        part_q, part_d = cuda.local.array(WORDS, uint32), cuda.local.array(HALVES, float32)
        part_m, b, sums = (
            cuda.local.array(HALVES, float32),
            cuda.local.array(B_WORDS, uint32),
            cuda.local.array(SUMS, float32),
        )
        for i in range(SUMS):
            sums[i] = ZERO
        n_steps = (n_blocks * CHUNKS + CHUNKS_A_STEP - 1) // CHUNKS_A_STEP
        for step in range(-1, n_steps):
            if step >= 0:
                cuda.syncthreads()
                store_all_weights(shared, thread, q, d, m)
                store_all_activations(shared, thread, held)
                cuda.syncthreads()
            if step + 1 < n_steps:
                load_all_weights(
                    quants,
                    high,
                    scales,
                    head,
                    thread,
                    first_row,
                    n_rows,
                    n_blocks,
                    step + 1,
                    q,
                    d,
                    m,
                    part_q,
                    part_d,
                    part_m,
                )
                load_all_activations(x, thread, first_token, n_tokens, n_blocks, step + 1, held)
            if step >= 0:
                multiply_step(sums, shared, row_at, token_at, b)
        row, token = first_row + warp_row + (lane >> 2), first_token + warp_token + 2 * (lane & 3)
        write_sums(sums, bias, out, row, token, n_rows, n_tokens, out_stride, flags)

    return multiply
