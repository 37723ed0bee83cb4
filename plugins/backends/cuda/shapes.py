"""Sizes and flags that kernels and those who launch them have to agree on. Importing this imports no Numba."""

from __future__ import annotations

import os
from dataclasses import dataclass

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")

WARP = 32
RUN = 16  # columns of activations in bytes that share a scale

# Forms of activations, for products with different matrices
FLOATS = 1  # float32
BYTES = 2  # signed bytes, a scale and a sum for each run
BFLOATS = 4  # bfloat16

# What the normalising kernel does
ADD = 1  # another row to the residual first
POST_NORM = 2  # that row is normalised before it is added
LAYER_NORM = 4  # LayerNorm instead of RMS norm
NORM_BIAS = 8
CHOSEN = 16  # some rows only, side by side

# What placing queries, keys and values does
QK_NORM = 1
ADJACENT = 2  # RoPE pairs 2i and 2i + 1
SINKS = 4  # some ring of the step keeps sinks, so queries are rotated for them, too

# Products
ACCUMULATE = 1  # add to what stands in the output
BIAS = 2
BYTE_PRODUCT_TOKENS = FLOAT_PRODUCT_TOKENS = (1, 2, 4, 8)  # that are multiplied at once

SHARED_ALIGNMENT = None if SIMULATED else 16  # bytes; the simulator's memory has its own


@dataclass(frozen=True)
class Tile:
    """Rows and tokens of a block and of each of its warps; blocks: that a multiprocessor should hold at once."""

    rows: int
    tokens: int
    warp_rows: int
    warp_tokens: int
    blocks: int

    @property
    def warps(self) -> int:
        return self.rows // self.warp_rows * (self.tokens // self.warp_tokens)


# Of products on tensor cores; the simulator has one, small enough to run
TILES = {
    "large": Tile(128, 128, 64, 32, 1),
    "small": Tile(64, 64, 32, 32, 2),
    "flat": Tile(64, 16, 16, 16, 4),  # few tokens
    "warp": Tile(16, 16, 16, 16, 1),
}

MANY_REGISTERS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q3_K")  # formats, for eight tokens at once

# Blocks that a multiprocessor should hold at once, of formats and tokens for which the compiler would spill for more
PRODUCT_BLOCKS = {("Q2_K", 1): 6, ("Q8_0", 2): 6}

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")

# What a ring says of each layer, as int64 at the beginning of its memory
RING_KEYS, RING_VALUES, RING_SLOTS, RING_CAPACITY, RING_SINKS, RING_KIND, RING_KEY_WIDTH, RING_VALUE_WIDTH = range(8)
RING_KEY_SCALES, RING_VALUE_SCALES = 8, 9  # of rings of bytes
RING_RECORD = 10
FLOAT_RING, HALF_RING, BYTE_RING = range(3)
RING_KINDS = {"f32": FLOAT_RING, "f16": HALF_RING, "q8": BYTE_RING}

# Attention
KEYS_AT_ONCE = 32  # of a warp
VALUE_COLUMNS = 128  # of a warp; wider values are shared out
PIECE = 64  # the length of a piece of the context is a multiple of it
QUERY_ROWS = 16  # heads of tokens that share a K/V head, in one tile

# The likeliest tokens
RANKED_PART = 1024 if SIMULATED else 8192  # logits of a block
RANKED_GROUPS = 256 if SIMULATED else 1024  # that its numbers stand in, a power of two
RANKED = 4096  # numbers that it has room for, a power of two

# Threads of a block; the simulator runs every thread as one of Python's, and is fastest with one warp
PLACE_WARPS = 1 if SIMULATED else 4
ROW_THREADS = 32 if SIMULATED else 256
COLUMN_THREADS = 32 if SIMULATED else 128
RANKED_THREADS = 32 if SIMULATED else 1024


def product_rows(tokens: int) -> int:
    """Rows of a warp: more than one where that leaves registers."""
    return 2 if tokens <= 2 else 1


def product_warps(format: str, tokens: int) -> int:
    """Warps of a block: with many tokens more, since each block reads all of their activations; but never so many that
    a multiprocessor has registers for one block alone (see the table of docs/cuda.md)."""
    if SIMULATED:
        return 1
    return 8 if tokens == 4 or (tokens == 8 and format not in MANY_REGISTERS) else 4


def attention_warps(d_k: int) -> int:
    """Warps of a block that attends: as many as have room for their queries in 48 KiB of shared memory."""
    return 1 if SIMULATED else 4 if d_k <= 128 else 2


def ranked_parts(d_vocab: int) -> int:
    """Parts of a row of logits."""
    return -(-d_vocab // RANKED_PART)


def can_rank(d_vocab: int, count: int) -> bool:
    """Whether blocks have room for the `count` likeliest tokens of a part, and of all parts."""
    most = RANKED_GROUPS * (RANKED // count)
    return count <= RANKED_GROUPS and max(RANKED_PART, ranked_parts(d_vocab) * count) <= most
