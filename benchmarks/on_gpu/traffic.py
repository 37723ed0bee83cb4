"""Bytes that each launch of a step moves between a GPU's memory and its multiprocessors, and the least it could.

moved: for each block of threads every byte that it reads, once, and every byte that it writes. What a block reads a
second time lies in its registers or caches; what several blocks read is counted for each of them, though their common
cache may hold it. least: what goes into the whole kernel and comes out of it, once; of attention that is queries, keys
and values, so that the pieces of the context which it leaves for `merge` are its own cost.

The few numbers that a step is told (tokens, positions, addresses of rings and their records) are left out. The counts
are formulas of what a launch is given; tests/cuda_simulator/simulated_traffic.py holds them to what kernels do there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from on_gpu.attention_traffic import FLOAT, Cut, attention, float_attention, merged
from on_gpu.paper_device import Launch

from ringlet.core.batch import Batch
from ringlet.core.config import ModelConfig
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.plugins.backends.cuda.device import Grid
from ringlet.plugins.backends.cuda.planes import is_quantised, padded
from ringlet.plugins.backends.cuda.shapes import (
    ACCUMULATE,
    ADD,
    BFLOATS,
    BIAS,
    BYTES,
    COLUMN_THREADS,
    FLOATS,
    NORM_BIAS,
    PLACE_WARPS,
    POST_NORM,
    QK_NORM,
    RUN,
    SINKS,
    TILES,
)

DOUBLE = KEY = 8
PLACED = {"f16": 2, "f32": 4, "q8": 4}  # bytes of a number that `place` writes
Arguments = Sequence[int | float]


class Traffic(NamedTuple):
    """In bytes."""

    moved: float
    least: float

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(self.moved + other.moved, self.least + other.least)


class StepTraffic:
    """Counts the launches of one step of a batch, in their order."""

    def __init__(self, batch: Batch, config: ModelConfig) -> None:
        self._batch, self._config = batch, config
        self._cut: Cut | None = None  # of the last attention

    def of(self, launch: Launch) -> Traffic:
        family, *words = launch.name.split("-")
        if family in ROW_KERNELS:
            return ROW_KERNELS[family](words, launch.grid, launch.arguments)
        if family == "place":
            return self._place(launch.grid, launch.arguments)
        if family == "place_bytes":
            return self._place_bytes(launch.arguments)
        if family == "merge":
            return self._merge(launch.grid, launch.arguments)
        layer = launch.arguments[7 if family == "attention" else 6]
        n_pieces, sink_pieces, length = launch.arguments[-5:-2]
        self._cut = Cut(self._batch, self._config, *map(int, (layer, n_pieces, sink_pieces, length)))
        if family == "float_attention":
            return Traffic(*float_attention(self._cut, launch.grid))
        return Traffic(*attention(self._cut, launch.grid, words[3] if len(words) > 3 else "f16"))

    def _merge(self, grid: Grid, arguments: Arguments) -> Traffic:
        n_heads, d_v, _, forms = arguments[-4:]
        out = grid[1] * form_bytes(forms, n_heads * d_v)
        assert self._cut is not None
        return Traffic(merged(self._cut, d_v, COLUMN_THREADS) + out, out)

    def _place_bytes(self, arguments: Arguments) -> Traffic:
        """Keys and values in float32, and as bytes with a scale."""
        n_kv_heads, d_k, d_v, _ = arguments[-4:]
        n = sum(self._batch.rings[sequence].memory.kv_dtype == "q8" for sequence in self._batch.sequence)
        total = n * n_kv_heads * ((FLOAT + 1) * (d_k + d_v) + 2 * FLOAT)
        return Traffic(total, total)

    def _place(self, grid: Grid, arguments: Arguments) -> Traffic:
        n_heads, n_kv_heads, d_k, d_v, _, _, turned, _, flags = arguments[-9:]
        rings = [self._batch.rings[sequence].memory for sequence in self._batch.sequence]
        kept = sum(n_kv_heads * (d_k + d_v) * PLACED[ring.kv_dtype] for ring in rings)
        queries = d_k * FLOAT * n_heads * (2 if flags & SINKS else 1)
        projected = FLOAT * (d_k * (n_heads + n_kv_heads) + d_v * n_kv_heads)
        each, turns, norm = kept + grid[1] * (projected + queries), 2 * FLOAT * turned, FLOAT * d_k
        shared = 0
        for first in range(0, n_heads + 2 * n_kv_heads, PLACE_WARPS):
            last = min(first + PLACE_WARPS, n_heads + 2 * n_kv_heads) - 1
            has_query, has_key = first < n_heads, first < n_heads + n_kv_heads and last >= n_heads
            shared += turns * ((has_query or has_key) + bool(has_query and flags & SINKS))
            shared += norm * (has_query + has_key) if flags & QK_NORM else 0
        least = each + grid[1] * turns * (2 if flags & SINKS else 1) + (2 * norm if flags & QK_NORM else 0)
        return Traffic(each + grid[1] * shared, least)


def form_bytes(forms: int, width: int) -> int:
    """Of one row of activations; see `kernels/rows.py`."""
    columns = padded(width)
    total = FLOAT * width if forms & FLOATS else 0
    total += columns + 2 * FLOAT * columns // RUN if forms & BYTES else 0
    return total + (2 * columns if forms & BFLOATS else 0)


def row_bytes(format: str, n_blocks: int) -> int:
    """Of a row of weights; n_blocks: as a launch gives it."""
    return n_blocks * BLOCK_FORMATS[format].n_bytes


def lookup(words: list[str], grid: Grid, arguments: Arguments) -> Traffic:
    n_blocks, width, _, flags = arguments[-4:]
    read = row_bytes(words[0], n_blocks) if is_quantised(words[0]) else BLOCK_FORMATS[words[0]].n_bytes * width
    total = grid[0] * (read + FLOAT * width * (2 if flags & ACCUMULATE else 1))
    return Traffic(total, total)


def product(words: list[str], grid: Grid, arguments: Arguments) -> Traffic:
    """Blocks side by side read other rows and the same activations, blocks above each other the reverse."""
    n_rows, n_blocks, n_tokens, _, flags = arguments[-5:]
    format, kind = words[0], words[1]
    weights = n_rows * row_bytes(format, n_blocks)
    columns = n_blocks * BLOCK_FORMATS[format].n_weights
    if not is_quantised(format):
        row_of_x = FLOAT * columns
    elif kind in TILES:
        row_of_x = 2 * columns
    else:
        row_of_x = columns + 2 * FLOAT * columns // RUN
    x = n_tokens * row_of_x
    bias = FLOAT * n_rows if flags & BIAS else 0
    out = FLOAT * n_rows * n_tokens * (2 if flags & ACCUMULATE else 1)
    return Traffic(grid[1] * (weights + bias) + grid[0] * x + out, weights + bias + x + out)


def normalise(words: list[str], grid: Grid, arguments: Arguments) -> Traffic:
    width, _, flags, forms = arguments[-4:]
    rows = 1 + (2 if flags & ADD else 0)  # x; what is added; x again, written
    vectors = 1 + bool(flags & POST_NORM) + bool(flags & NORM_BIAS)
    of_rows = grid[0] * (FLOAT * width * rows + form_bytes(forms, width))
    return Traffic(of_rows + grid[0] * FLOAT * width * vectors, of_rows + FLOAT * width * vectors)


def hidden(words: list[str], grid: Grid, arguments: Arguments) -> Traffic:
    d_ff, _, _, gated, forms = arguments[-5:]
    total = grid[1] * (FLOAT * d_ff * (2 if gated else 1) + form_bytes(forms, d_ff))
    return Traffic(total, total)


def angles(words: list[str], grid: Grid, arguments: Arguments) -> Traffic:
    n_pairs, (n_rows, n_ropes, _) = arguments[-1], grid
    out, rope = n_rows * n_ropes * 2 * FLOAT * n_pairs, DOUBLE * (n_pairs + 1)
    return Traffic(out + n_rows * n_ropes * rope, out + n_ropes * rope)


def soft_cap(words: list[str], grid: Grid, arguments: Arguments) -> Traffic:
    total = 2 * FLOAT * arguments[1]
    return Traffic(total, total)


def repack(words: list[str], grid: Grid, arguments: Arguments) -> Traffic:
    total = 2 * 2 * arguments[2] * arguments[5]
    return Traffic(total, total)


def rank(words: list[str], grid: Grid, arguments: Arguments) -> Traffic:
    """Logits, and the keys of the likeliest of each part."""
    d_vocab, count = arguments[-2:]
    total = grid[1] * (FLOAT * d_vocab + KEY * grid[0] * count)
    return Traffic(total, total)


def likeliest(words: list[str], grid: Grid, arguments: Arguments) -> Traffic:
    """Those keys, the logits of the likeliest, and the list: an id and a logit each."""
    n_keys, count = arguments[-2:]
    total = grid[0] * (KEY * n_keys + 3 * FLOAT * count)
    return Traffic(total, total)


ROW_KERNELS = {
    "lookup": lookup,
    "byte_product": product,
    "float_product": product,
    "tile_product": product,
    "normalise": normalise,
    "hidden": hidden,
    "angles": angles,
    "soft_cap": soft_cap,
    "repack": repack,
    "rank": rank,
    "likeliest": likeliest,
}
