"""How a batch is cut for the GPU: tiles of queries, pieces of the context."""

from __future__ import annotations

import numpy as np

from ringlet.core.batch import Batch
from ringlet.plugins.backends.cuda.rings import DeviceRing
from ringlet.plugins.backends.cuda.scratch import tiles_of
from ringlet.plugins.backends.cuda.shapes import PIECE
from ringlet.plugins.backends.cuda.step import Shape

WARPS_A_MULTIPROCESSOR = 8  # that attend at once
MOST_PIECES = 256


def shape_of(batch: Batch, group: int, n_kv_heads: int, multiprocessors: int, with_hidden: bool = False) -> Shape:
    """group: heads that share a K/V head.

    A context is cut so that every multiprocessor has work. A piece is the smallest power of two, from PIECE on, with
    which that many suffice; so the shape of a decoding step stays the same until the context has doubled.
    """
    rings: list[DeviceRing] = [ring.memory for ring in batch.rings]
    tokens = np.diff(batch.starts)
    n_tiles = sum(tiles_of(int(n), group) for n in tokens)
    last = batch.positions[np.array(batch.starts[1:]) - 1] + 1
    span = max(min(int(p), ring.capacity + int(n)) for p, n, ring in zip(last, tokens, rings, strict=True))
    span = max(PIECE, 1 << (span - 1).bit_length())
    wanted = max(1, min(MOST_PIECES, multiprocessors * WARPS_A_MULTIPROCESSOR // (n_tiles * n_kv_heads)))
    length = PIECE
    while length * wanted < span:
        length *= 2
    slides = any(ring.layout.overflow == "slide" or len(set(ring.layout.layers)) > 1 for ring in rings)
    sink_pieces = int(any(ring.has_sinks for ring in rings))
    return Shape(
        n_tokens=len(batch.token_ids),
        n_wanted=int(batch.wants_logits.sum()),
        n_tiles=n_tiles,
        n_pieces=-(-span // length) + int(slides) + sink_pieces,  # one that slides need not begin at a multiple
        sink_pieces=sink_pieces,
        piece_length=length,
        ring_dtypes=frozenset(ring.kv_dtype for ring in rings),
        with_hidden=with_hidden,
    )


def tiles(batch: Batch, group: int) -> np.ndarray:
    """int32 (n_tiles, 3): the first token of a tile's sequence, the sequence's tokens, the tile's number in it."""
    rows = []
    for start, stop in zip(batch.starts, batch.starts[1:], strict=False):
        rows += [(start, stop - start, index) for index in range(tiles_of(stop - start, group))]
    return np.array(rows, np.int32).reshape(-1, 3)
