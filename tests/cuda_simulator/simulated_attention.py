"""Attention in the simulator, on rings filled with random numbers, against the formula in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import pytest
from random_models import random_model
from simulated_gpu import Array, device, launch

from ringlet.core.config import LayerConfig
from ringlet.core.host_memory import HOST_DTYPES, quantize_rows
from ringlet.core.ring_cache import LayerLayout, RingLayout
from ringlet.plugins.backends.cuda.rings import DeviceRing, head_width
from ringlet.plugins.backends.cuda.scratch import tiles_of
from ringlet.plugins.backends.cuda.shapes import PIECE, RING_KEY_SCALES, RING_VALUE_SCALES, VALUE_COLUMNS


@dataclass(frozen=True)
class Case:
    """sequences: first position and number of tokens of each, in the one layer's ring of this layout."""

    sequences: tuple[tuple[int, int], ...]
    layout: LayerLayout
    d_k: int = 16
    d_v: int = 16
    n_kv_heads: int = 1
    group: int = 1
    kv_dtype: str = "f16"
    length: int = PIECE
    cap: float = 0.0

    @property
    def n(self) -> int:
        return sum(count for _, count in self.sequences)


PLAIN = LayerLayout(capacity=200, sinks=0, slots=200)
CASES = {
    "one token": Case(((0, 1),), PLAIN),
    "a head of everything odd": Case(((3, 2),), PLAIN, d_k=7, d_v=5, group=3, n_kv_heads=2),
    "one part": Case(((2, 1),), PLAIN, d_k=1, d_v=1),
    "wide heads": Case(((20, 3),), PLAIN, d_k=72, d_v=80, group=2),
    "values in two parts": Case(((5, 2),), PLAIN, d_k=24, d_v=VALUE_COLUMNS + 72),
    "more heads than a tile": Case(((4, 2),), PLAIN, group=20),
    "a prompt": Case(((0, 37),), PLAIN, group=2),
    "several pieces": Case(((150, 2),), PLAIN, group=2),
    "soft cap": Case(((40, 3),), PLAIN, cap=2.5),
    "a window": Case(((100, 5),), LayerLayout(capacity=7, sinks=0, slots=12)),
    "a window of one": Case(((100, 3),), LayerLayout(capacity=1, sinks=0, slots=3)),
    "sinks before the ring turns": Case(((6, 3),), LayerLayout(capacity=30, sinks=4, slots=32)),
    "sinks not all written": Case(((0, 3),), LayerLayout(capacity=30, sinks=4, slots=32)),
    "sinks after the ring turned": Case(((333, 4),), LayerLayout(capacity=90, sinks=3, slots=95), group=2),
    "nothing but sinks": Case(((50, 2),), LayerLayout(capacity=5, sinks=4, slots=6)),
    "a ragged batch": Case(((0, 5), (70, 1), (199, 1), (10, 18)), PLAIN, group=2, n_kv_heads=2),
    "long pieces": Case(((180, 2), (3, 1)), PLAIN, length=128),
}


class Setting:
    """A case's rings and queries, and what attention has to make of them."""

    def __init__(self, case: Case) -> None:
        self.case, rng = case, np.random.default_rng(case.n)
        config, _ = random_model(
            d_k=case.d_k, d_v=case.d_v, n_kv_heads=case.n_kv_heads, n_heads=case.n_kv_heads * case.group,
            layers=(LayerConfig(),),
        )  # fmt: skip
        layout = replace(RingLayout.of(config, 64, chunk=8), layers=(case.layout,))
        self.config, dtype = config, HOST_DTYPES[case.kv_dtype]
        self.rings = [DeviceRing(device(), config, layout, case.kv_dtype) for _ in case.sequences]
        self.keys, self.values = [], []
        for ring in self.rings:
            record = ring._records()[0]
            for kept, (address, scales), width in (
                (self.keys, record[[0, RING_KEY_SCALES]], case.d_k),
                (self.values, record[[1, RING_VALUE_SCALES]], case.d_v),
            ):
                numbers = rng.standard_normal((case.n_kv_heads, case.layout.slots, width)).astype(np.float32)
                stored = np.zeros((*numbers.shape[:2], head_width(width)), dtype)
                if case.kv_dtype == "q8":
                    stored[..., :width], d = quantize_rows(numbers)
                    device().upload(d, int(scales))
                    numbers = (stored[..., :width] * d[..., None]).astype(np.float16)  # in which the kernel computes
                else:
                    stored[..., :width] = numbers = numbers.astype(dtype)
                device().upload(stored, int(address))
                kept.append(numbers.astype(float))
        self.q, self.q_sinks = (
            (rng.standard_normal((case.n, config.n_heads, case.d_k)) * 2).astype(np.float32) for _ in range(2)
        )
        self.positions = np.concatenate([np.arange(start, start + count) for start, count in case.sequences])
        self.sequence = np.repeat(np.arange(len(case.sequences)), [count for _, count in case.sequences])

    def expected(self) -> np.ndarray:
        """softmax(Q·Kᵀ·scale)·V over what the layout lets each query see, float64 (n, n_heads, d_v)."""
        case, layout, config = self.case, self.case.layout, self.config
        out = np.zeros((case.n, config.n_heads, case.d_v))
        for token, head in np.ndindex(case.n, config.n_heads):
            position, K = int(self.positions[token]), self.keys[self.sequence[token]][head // case.group]
            V = self.values[self.sequence[token]][head // case.group]
            sinks = np.arange(min(layout.sinks, position + 1))
            held = np.arange(layout.first_visible(position), position + 1)
            s = np.concatenate([
                K[layout.slot(sinks)] @ self.q_sinks[token, head].astype(float),
                K[layout.slot(held)] @ self.q[token, head].astype(float),
            ]) * config.score_scale  # fmt: skip
            if case.cap:
                s = case.cap * np.tanh(s / case.cap)
            weights = np.exp(s - s.max())
            out[token, head] = weights / weights.sum() @ V[layout.slot(np.concatenate([sinks, held]))]
        return out

    def found(self) -> np.ndarray:
        case, config = self.case, self.config
        span, sink_pieces = max(start + count for start, count in case.sequences), int(case.layout.sinks > 0)
        n_pieces = -(-min(span, case.layout.slots) // case.length) + 1 + sink_pieces
        partials = Array.unwritten(case.n, config.n_heads, n_pieces, case.d_v)
        states = Array.unwritten(case.n, config.n_heads, n_pieces, 2)
        rings = Array(np.array([ring.address for ring in self.rings], np.int64)[self.sequence])
        pointers = (Array(self.q), Array(self.q_sinks), partials, states)
        told = (rings, Array(self.positions.astype(np.int32)), 0, case.group)
        pieces = (n_pieces, sink_pieces, case.length, config.score_scale, case.cap)
        if case.kv_dtype != "f32":
            first, rows = 0, []
            for _, count in case.sequences:
                rows += [(first, count, index) for index in range(tiles_of(count, case.group))]
                first += count
            grid = (len(rows) * n_pieces, case.n_kv_heads, -(-case.d_v // VALUE_COLUMNS))
            tiles = Array(np.array(rows, np.int32))
            kind = "" if case.kv_dtype == "f16" else f"-{case.kv_dtype}"
            launch(f"attention-{case.d_k}-{case.d_v}-k16{kind}", grid, *pointers, tiles, *told, len(rows), *pieces)
        else:
            grid = (n_pieces, config.n_heads, case.n)
            launch(f"float_attention-{case.d_k}-{case.d_v}", grid, *pointers, *told, *pieces)
        width = config.n_heads * case.d_v
        out = Array(np.zeros((case.n, -(-width // 32) * 32), np.float32))
        grid = (-(-width // 32), case.n, 1)
        launch("merge", grid, partials, states, out, 0, 0, 0, 0, config.n_heads, case.d_v, n_pieces, 1)
        return out.values[:, :width].reshape(case.n, config.n_heads, case.d_v)


@pytest.mark.parametrize("kv_dtype", ["f16", "f32", "q8"])
@pytest.mark.parametrize("name", CASES)
def test_attention(name: str, kv_dtype: str) -> None:
    setting = Setting(replace(CASES[name], kv_dtype=kv_dtype))
    np.testing.assert_allclose(setting.found(), setting.expected(), atol=3e-6)


def test_a_ring_of_another_dtype_is_left_to_the_other_kernel() -> None:
    """What one kernel does not write, the others do: together they leave nothing unwritten."""
    for kv_dtype, other in permutations(("f16", "f32", "q8"), 2):
        setting = Setting(replace(CASES["one token"], kv_dtype=kv_dtype))
        setting.case = replace(setting.case, kv_dtype=other)
        assert np.isnan(setting.found()).all()
