"""How the cuda backend cuts contexts into pieces: whatever is seen lies in one, and few are empty."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from on_gpu.attention_traffic import Cut
from on_gpu.paper_device import PaperDevice
from random_models import HALVES, random_model

from ringlet.core.batch import Batch
from ringlet.core.config import LayerConfig, ModelConfig
from ringlet.core.ring_cache import RingLayout
from ringlet.plugins.backends.cuda.planning import MOST_PIECES, cut, shape_of, tiles
from ringlet.plugins.backends.cuda.rings import DeviceRing
from ringlet.plugins.backends.cuda.shapes import PIECE, QUERY_ROWS
from ringlet.plugins.backends.cuda.step import Shape

MULTIPROCESSORS = 132
DEPTHS = range(1, 32_769)
WANTED = (1, 2, 3, 7, 8, 9, 16, 33, 66, 132, MOST_PIECES)
MOST_SHAPES = 76  # of a text that grows to 32,768 tokens
MOST_EMPTY = 1 / 9  # of the pieces: just beyond eight eighths, where a ninth begins


def model(n_kv_heads: int = 2, group: int = 1, windows: tuple[int | None, ...] = (None,)) -> ModelConfig:
    layers = tuple(LayerConfig(window, HALVES) for window in windows)
    config = random_model(n_heads=n_kv_heads * group, n_kv_heads=n_kv_heads, layers=layers)[0]
    return replace(config, context_length=1 << 17)


class PaperRing:
    """A ring of which only the layout is asked."""

    def __init__(self, device: PaperDevice, config: ModelConfig, layout: RingLayout) -> None:
        self.layout, self.memory = layout, DeviceRing(device, config, layout, "f16")


def batch_of(config: ModelConfig, sizes: list[tuple[int, int]], layout: RingLayout) -> Batch:
    """Sequences of so many tokens, and so many new ones."""
    device, starts = PaperDevice(), np.cumsum([0, *(new for _, new in sizes)]).tolist()
    return Batch(
        rings=tuple(PaperRing(device, config, layout) for _ in sizes),  # type: ignore[misc]
        token_ids=np.zeros(starts[-1], np.int32),
        positions=np.concatenate([np.arange(depth, depth + new) for depth, new in sizes]),
        sequence=np.repeat(np.arange(len(sizes), dtype=np.int32), [new for _, new in sizes]),
        wants_logits=np.zeros(starts[-1], bool),
        starts=tuple(starts),
    )


def shape_at(config: ModelConfig, layout: RingLayout, depth: int, sequences: int = 1) -> tuple[Batch, Shape]:
    """Of the step that decodes the token after `depth - 1` others."""
    batch = batch_of(config, [(depth - 1, 1)] * sequences, layout)
    return batch, shape_of(batch, config, MULTIPROCESSORS)


@pytest.mark.parametrize("wanted", WANTED)
def test_few_pieces_are_empty_at_any_depth(wanted: int) -> None:
    for depth in DEPTHS:
        n, _, length = cut(depth, 0, 0, wanted)
        assert length % PIECE == 0
        full = -(-depth // length)
        assert full <= wanted
        assert 0 <= n - full <= MOST_EMPTY * n


@pytest.mark.parametrize("wanted", WANTED)
def test_a_context_that_grows_has_few_shapes(wanted: int) -> None:
    """Each is recorded once while the text grows, and they are not many more than are kept."""
    shapes = [cut(depth, 0, 0, wanted) for depth in DEPTHS]
    changes = sum(one != other for one, other in pairwise(shapes))
    assert changes + 1 <= MOST_SHAPES
    assert len(set(shapes)) == changes + 1


@pytest.mark.parametrize(("n_kv_heads", "sequences"), [(1, 1), (2, 1), (8, 1), (8, 8), (2, 64)])
def test_few_pieces_of_a_step_are_empty(n_kv_heads: int, sequences: int) -> None:
    """As the pieces are counted for the tables of bytes: where a layer slides, one more may be."""
    config = model(n_kv_heads, windows=(None, 512, 4096))
    layout = RingLayout.of(config, 32_768, chunk=1)
    for depth in (1, 2, 64, 65, 511, 512, 513, 1000, 2048, 4096, 4097, 5000, 8192, 8193, 16_385, 32_767, 32_768):
        batch, shape = shape_at(config, layout, depth, sequences)
        for layer, pieces in enumerate(shape.pieces):
            n_full = Cut(batch, config, layer, *pieces).n_full / sequences
            slides = depth > layout.layers[layer].capacity
            assert pieces.n - n_full <= MOST_EMPTY * pieces.n + slides, (depth, layer)


@pytest.mark.parametrize("group", [1, 3, 7, 20])
@pytest.mark.parametrize("sinks", [0, 3, 70])
@pytest.mark.parametrize("overflow", ["stop", "slide"])
def test_whatever_a_tile_sees_lies_in_a_piece(group: int, sinks: int, overflow: str) -> None:
    config, rng = model(group=group, windows=(None, 5, 64, 65, 200)), np.random.default_rng(group + sinks)
    for context in (100, 129, 700):
        layout = RingLayout.of(config, context, sinks, overflow, chunk=40)
        for _ in range(15):
            most = context if overflow == "stop" else 2000
            sizes = [(int(rng.integers(most - 40)), int(rng.integers(1, 41))) for _ in range(rng.integers(1, 4))]
            batch = batch_of(config, sizes, layout)
            shape = shape_of(batch, config, int(rng.integers(1, 200)))
            for layer, pieces in enumerate(shape.pieces):
                check_tiles(batch, config, layer, Cut(batch, config, layer, *pieces))


def check_tiles(batch: Batch, config: ModelConfig, layer: int, pieces: Cut) -> None:
    """Each position once."""
    group, layout = config.heads_per_kv_head, batch.rings[0].layout.layers[layer]
    for start, count, number in tiles(batch, group).tolist():
        first = start + number * QUERY_ROWS // group
        last = start + (min((number + 1) * QUERY_ROWS, count * group) - 1) // group
        times = np.zeros(int(batch.positions[last]) + 1, int)
        for begin, end in pieces.pieces(first, last):
            times[begin : max(begin, end)] += 1
        assert (times[layout.first_visible(int(batch.positions[first])) :] == 1).all()
        assert (times[: layout.sinks] == 1).all()
