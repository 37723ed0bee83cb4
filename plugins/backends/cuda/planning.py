"""How a batch is cut for the GPU: tiles of queries, pieces of the context."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ringlet.core.batch import Batch
from ringlet.core.config import ModelConfig
from ringlet.plugins.backends.cuda.rings import DeviceRing
from ringlet.plugins.backends.cuda.scratch import tiles_of
from ringlet.plugins.backends.cuda.shapes import PIECE, QUERY_ROWS
from ringlet.plugins.backends.cuda.step import Pieces, Shape

WARPS_A_MULTIPROCESSOR = 8  # that attend at once
MOST_PIECES = 256
NUMBERS_AN_OCTAVE = 8  # of pieces, and of lengths, between one and its double; a power of two


def shape_of(
    batch: Batch, config: ModelConfig, multiprocessors: int, n_listed: int = 0, with_hidden: bool = False
) -> Shape:
    """A context is cut so that every multiprocessor has work, each layer's as far as its queries see."""
    rings: list[DeviceRing] = [ring.memory for ring in batch.rings]
    n_tiles = sum(tiles_of(int(n), config.heads_per_kv_head) for n in np.diff(batch.starts))
    wanted = multiprocessors * WARPS_A_MULTIPROCESSOR // (n_tiles * config.n_kv_heads)
    return Shape(
        n_tokens=len(batch.token_ids),
        n_wanted=int(batch.wants_logits.sum()),
        n_tiles=n_tiles,
        pieces=layers_pieces(batch, rings, config.heads_per_kv_head, max(1, min(MOST_PIECES, wanted))),
        ring_dtypes=frozenset(ring.kv_dtype for ring in rings),
        n_listed=n_listed,
        with_hidden=with_hidden,
    )


def layers_pieces(batch: Batch, rings: list[DeviceRing], group: int, wanted: int) -> tuple[Pieces, ...]:
    """Of each layer. group: heads that share a K/V head. wanted: how many pieces there should be."""
    capacities = np.array([ring.capacities for ring in rings])
    last = batch.positions[np.array(batch.starts[1:]) - 1, None] + 1
    tokens = np.minimum(np.diff(batch.starts), -(-QUERY_ROWS // group) + 1)[:, None]  # of a tile, at most
    spans = np.minimum(last, capacities + tokens - 1).max(0)
    turned, sinks = (last > capacities).any(0), np.any([ring.sinks for ring in rings], axis=0)
    return tuple(cut(*layer, wanted) for layer in np.stack([spans, turned, sinks], axis=1).tolist())


@lru_cache(1024)
def cut(span: int, turned: int, sinks: int, wanted: int) -> Pieces:
    """Pieces of the positions that a tile of queries sees together. turned: 1 where the first of them may be any, so
    that there may be a piece more, since pieces begin at multiples of their length. sinks: 1 where there are some.

    Both numbers are rounded up by an eighth at most: few pieces are empty, and a decoding step keeps its shape, and so
    its graph, for a while.
    """
    length = rounded(-(-span // wanted), PIECE)
    return Pieces(rounded(-(-span // length), 1) + turned + sinks, sinks, length)


def rounded(n: int, least: int) -> int:
    """The next multiple of `least`, a power of two, or of what leaves few numbers between one power of two and the
    next."""
    step = max(least, 1 << max(0, (n - 1).bit_length() - NUMBERS_AN_OCTAVE.bit_length()))
    return -(-n // step) * step


def tiles(batch: Batch, group: int) -> np.ndarray:
    """int32 (n_tiles, 3): the first token of a tile's sequence, the sequence's tokens, the tile's number in it."""
    rows = []
    for start, stop in zip(batch.starts, batch.starts[1:], strict=False):
        rows += [(start, stop - start, index) for index in range(tiles_of(stop - start, group))]
    return np.array(rows, np.int32).reshape(-1, 3)
