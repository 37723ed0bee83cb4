"""What happens to activations between the products, in the simulator: each kernel against its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from naive import gelu, gelu_tanh, in_bytes, relu, silu
from simulated_gpu import Array, bfloat, launch, padded_rows

from ringlet.plugins.backends.cuda.planes import padded
from ringlet.plugins.backends.cuda.shapes import (
    ACTIVATIONS,
    ADD,
    BFLOATS,
    BYTES,
    CHOSEN,
    FLOATS,
    LAYER_NORM,
    NORM_BIAS,
    POST_NORM,
    ROW_THREADS,
)
from ringlet.plugins.backends.numpy import layer_norm, rms_norm

EXTREMES = np.array([0.0, -0.0, 1e-38, 1e-31, 3e-30, 1e30, -1e30, 3e38, -3e38, 127, -127, 1 / 3], np.float32)


class Forms:
    """Rows that a kernel writes in all forms."""

    def __init__(self, n_rows: int, width: int) -> None:
        self.width, shape = width, (n_rows, padded(width))
        self.floats = Array(np.zeros(shape, np.float32))  # padding is 0 from the beginning
        self.bytes = Array.unwritten(*shape, dtype=np.int8)
        self.scales, self.sums = (Array.unwritten(n_rows, shape[1] // 16) for _ in range(2))
        self.bfloats = Array.unwritten(*shape, dtype=np.uint16)

    @property
    def arguments(self) -> tuple[Array, ...]:
        return self.floats, self.bytes, self.scales, self.sums, self.bfloats

    def check(self, expected: np.ndarray, tolerance: float = 2e-6) -> None:
        """All forms say the same, and the padding is 0."""
        found = self.floats.values
        assert (np.abs(found[:, : self.width] - expected) <= tolerance * np.abs(expected).max() + 1e-37).all()
        assert (found[:, self.width :] == 0).all()
        widened = (self.bfloats.values.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(widened, bfloat(found))
        d = np.repeat(self.scales.values, 16, axis=1)
        large_enough = np.where(np.abs(found) < 1e-30, np.float32(0), found)
        np.testing.assert_allclose(self.bytes.values * d, in_bytes(large_enough), rtol=1e-6)
        q = self.bytes.values.reshape(len(found), -1, 16)
        np.testing.assert_allclose(self.sums.values, self.scales.values * q.sum(-1, dtype=np.int32), rtol=1e-6)


ALL = FLOATS | BYTES | BFLOATS


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("width", [1, 16, 45, 64])
@pytest.mark.parametrize("adds", ["nothing", "row", "normed row"])
def test_normalise(kind: str, width: int, adds: str) -> None:
    rng = np.random.default_rng(width)
    x, added = (rng.standard_normal((4, width)).astype(np.float32) for _ in range(2))
    weight, post_weight, bias = (rng.uniform(0.5, 2, width).astype(np.float32) for _ in range(3))
    flags = {"nothing": 0, "row": ADD, "normed row": ADD | POST_NORM}[adds] | (
        LAYER_NORM | NORM_BIAS if kind == "layer" else 0
    )

    def norm(rows: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        return rms_norm(rows, weight, 1e-5) if kind == "rms" else layer_norm(rows, weight, bias, 1e-5)

    expected_x = x + {"nothing": 0, "row": added, "normed row": norm(added, post_weight, None)}[adds]
    expected = norm(expected_x, weight, bias)
    out, residual = Forms(4, width), Array(padded_rows(x))
    vectors = [Array(vector) for vector in (post_weight, weight, bias)]
    launch(
        "normalise",
        (4, 1, 1),
        residual,
        Array(padded_rows(added)),
        *vectors,
        0,
        *out.arguments,
        width,
        1e-5,
        flags,
        ALL,
    )
    np.testing.assert_allclose(residual.values[:, :width], expected_x, rtol=2e-6, atol=2e-6)
    out.check(expected, 1e-5)


def test_normalise_chosen_rows_and_chosen_forms() -> None:
    x = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    out, weight = Forms(2, 40), Array(np.ones(40, np.float32))
    chosen = Array(np.array([4, 1], np.int32))
    launch(
        "normalise", (2, 1, 1), Array(padded_rows(x)), 0, 0, weight, 0, chosen, *out.arguments, 40, 1e-5, CHOSEN, FLOATS
    )
    np.testing.assert_allclose(out.floats.values[:, :40], rms_norm(x[[4, 1]], np.ones(40, np.float32), 1e-5), rtol=1e-5)
    assert (out.bytes.values == 77).all()
    assert (out.bfloats.values == 77).all()


@pytest.mark.skipif(ROW_THREADS != 32, reason="rows are normalised by one warp in the simulator")
def test_nan_reaches_every_form() -> None:
    x = np.ones((1, 32), np.float32)
    x[0, 5] = np.nan
    out = Forms(1, 32)
    ones = Array(np.ones(32, np.float32))
    launch("normalise", (1, 1, 1), Array(x), 0, 0, ones, 0, 0, *out.arguments, 32, 1e-5, 0, ALL)
    assert np.isnan(out.floats.values).all()
    assert np.isnan(out.scales.values).all()
    assert np.isnan((out.bfloats.values.astype(np.uint32) << 16).view(np.float32)).all()


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("gated", [True, False])
def test_hidden(kind: str, gated: bool) -> None:
    d_ff, rng = 45, np.random.default_rng(1)
    up, gate = rng.standard_normal((2, d_ff)).astype(np.float32), rng.standard_normal((2, d_ff)).astype(np.float32) * 10
    (gate if gated else up)[0, :6] = [0, -90, 90, -1e30, 1e20, 1e-20]
    function = np.vectorize({"silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh, "relu": relu}[kind], otypes=[float])
    expected = function(gate.astype(float)) * up if gated else function(up.astype(float))
    both = padded_rows(np.concatenate([up, gate], axis=1) if gated else up)
    out = Forms(2, d_ff)
    grid = (-(-padded(d_ff) // 32), 2, 1)
    launch("hidden", grid, Array(both), *out.arguments, d_ff, both.shape[1], ACTIVATIONS.index(kind), int(gated), ALL)
    found = out.floats.values[:, :d_ff]
    np.testing.assert_allclose(found, expected.astype(np.float32), rtol=3e-6, atol=1e-7)


def test_hidden_keeps_nan() -> None:
    for kind in range(len(ACTIVATIONS)):
        out = Forms(1, 32)
        launch(
            "hidden", (1, 1, 1), Array(np.full((1, 32), np.nan, np.float32)), *out.arguments, 32, 32, kind, 0, FLOATS
        )
        assert np.isnan(out.floats.values).all()


def test_extreme_numbers_in_every_form() -> None:
    x = np.zeros((len(EXTREMES), 32), np.float32)
    x[:, 3] = EXTREMES
    x[:, 20] = EXTREMES[::-1]
    out = Forms(len(x), 32)
    launch("hidden", (1, len(x), 1), Array(x), *out.arguments, 32, 32, ACTIVATIONS.index("relu"), 0, ALL)
    out.check(np.maximum(x, 0))


def test_merge_is_one_softmax() -> None:
    """Pieces of any size, some empty, merged: the softmax of all their scores times the values."""
    rng = np.random.default_rng(2)
    n, heads, pieces, d_v = 2, 3, 4, 5
    lengths = rng.integers(0, 6, (n, heads, pieces))
    lengths[..., 1] = 3
    partials, states = np.full((n, heads, pieces, d_v), np.nan, np.float32), np.zeros((n, heads, pieces, 2), np.float32)
    expected = np.zeros((n, heads, d_v))
    for at in np.ndindex(n, heads):
        all_s, all_v = [], []
        for piece in range(pieces):
            s = rng.standard_normal(lengths[at][piece]) * 30
            v = rng.standard_normal((len(s), d_v))
            m = s.max(initial=-np.inf)
            states[at][piece] = m, np.exp(s - m).sum() if len(s) else 0
            if len(s):
                partials[at][piece] = np.exp(s - m) @ v
            all_s, all_v = [*all_s, *s], [*all_v, *v]
        weights = np.exp(np.array(all_s) - max(all_s))
        expected[at] = weights @ np.array(all_v) / weights.sum()
    out = Forms(n, heads * d_v)
    launch("merge", (1, n, 1), Array(partials), Array(states), *out.arguments, heads, d_v, pieces, ALL)
    out.check(expected.reshape(n, -1), 1e-5)


def test_angles_far_from_the_beginning() -> None:
    positions = np.array([0, 1, 777, 131_071, 2**31 - 1], np.int32)
    frequencies, magnitudes = np.array([[1.0, 0.1234567, 1e-6], [0.5, 0.01, 0.0]]), np.array([1.0, 1.3])
    out = Array.unwritten(2, len(positions), 2, 3)
    launch("angles", (len(positions), 2, 1), Array(positions), Array(frequencies), Array(magnitudes), out, 3)
    angles = positions[None, :, None].astype(np.float64) * frequencies[:, None]
    expected = np.stack([np.cos(angles), np.sin(angles)], axis=2) * magnitudes[:, None, None, None]
    np.testing.assert_array_equal(out.values, expected.astype(np.float32))


def test_soft_cap() -> None:
    x = np.array([0, 1, -2, 50, -1e30, np.inf], np.float32)
    on_gpu = Array(x)
    launch("soft_cap", (1, 1, 1), on_gpu, len(x), 2.5)
    np.testing.assert_allclose(on_gpu.values, [2.5 * math.tanh(v / 2.5) for v in x], rtol=1e-6)
