"""The cpu backend against the readable reference, over recipes, sizes, rings and ways to cut the same tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from naive import ByteActivations
from random_models import (
    ADJACENT,
    HALVES,
    RECIPES,
    assert_close,
    in_pieces,
    random_model,
    random_model_stored_as,
    tokens,
)

from ringlet.core.batch import Batch
from ringlet.core.config import LayerConfig
from ringlet.core.errors import FormatError, RingletError
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step, run_step_with_hidden
from ringlet.core.weights import Matrix
from ringlet.plugins.backends.cpu import CpuBackend
from ringlet.plugins.backends.cpu import backend as cpu_backend
from ringlet.plugins.backends.numpy import NumpyBackend


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_recipe_as_the_reference(recipe: dict) -> None:
    config, weights = random_model(**recipe)
    ids, layout = tokens(40, config), RingLayout.of(config, 40, chunk=40)
    backends = [NumpyBackend(config, weights), CpuBackend(config, weights, 1), CpuBackend(config, weights, 2)]
    reference, one, two = (in_pieces(b, b.new_ring(layout, "f32"), ids, [31, 1, 5]) for b in backends)
    assert_close(one, reference)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_hidden_states_of_all_tokens(recipe: dict) -> None:
    """Also of those whose logits are not wanted, in steps of several sizes; they change no logit."""
    config, weights = random_model(**recipe)
    ids, layout = tokens(24, config), RingLayout.of(config, 24, chunk=24)
    reference, backend = NumpyBackend(config, weights), CpuBackend(config, weights, 2)
    theirs = reference.new_ring(layout, "f32")
    mine, plain = (backend.new_ring(layout, "f32") for _ in range(2))
    for part, wanted in ((ids[:3], "all"), (ids[3:20], "last"), (ids[20:], "none")):
        _, expected = run_step_with_hidden(reference, [(theirs, part, wanted)])
        logits, hidden = run_step_with_hidden(backend, [(mine, part, wanted)])
        np.testing.assert_array_equal(logits, run_step(backend, [(plain, part, wanted)]))
        assert_close(hidden, expected)
    assert mine.length == len(ids)


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_every_block_format(name: str) -> None:
    config, weights = random_model_stored_as(name)
    ids, layout = tokens(9, config), RingLayout.of(config, 40, chunk=40)
    exact, reference, logits = (
        in_pieces(b, b.new_ring(layout, "f32"), ids, [9])
        for b in (NumpyBackend(config, weights), ByteActivations(config, weights), CpuBackend(config, weights, 2))
    )
    if BLOCK_FORMATS[name].n_weights == 1:
        assert_close(logits, exact)
        return
    # A number halfway between two bytes may fall to either: that moves one token's logits by a part of the rounding.
    errors = np.abs(logits - reference).max(axis=1) / np.abs(reference).max()
    assert (errors <= 1e-5).sum() >= 6
    assert errors.max() <= 1e-2
    assert_close(logits, exact, 5e-2)


@pytest.mark.parametrize("kv_dtype", ["f32", "f16", "q8"])
@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize(("context", "chunk"), [(1, 1), (8, 1), (9, 4), (8, 30)])
def test_sliding_rings(kv_dtype: str, sinks: int, context: int, chunk: int) -> None:
    """Chunks larger than windows and than the ring, many turns, sinks, d_v other than d_k, grouped heads."""
    layers = (LayerConfig(3, HALVES), LayerConfig(None, ADJACENT), LayerConfig(None, None))
    config, weights = random_model(d_v=5, n_heads=6, n_kv_heads=2, layers=layers)
    layout = RingLayout.of(config, context, min(sinks, context - 1), "slide", chunk=chunk)
    ids = tokens(50, config)
    backends = NumpyBackend(config, weights), CpuBackend(config, weights, 2)
    reference, logits = (in_pieces(b, b.new_ring(layout, kv_dtype), ids, [chunk]) for b in backends)
    assert_close(logits, reference, 1e-5 if kv_dtype == "f32" else 2e-3)


@pytest.mark.parametrize("kv_dtype", ["f16", "q8"])
@pytest.mark.parametrize(("d_k", "d_v"), [(32, 48), (16, 16), (64, 7), (5, 64)])
def test_rings_of_fewer_bits(kv_dtype: str, d_k: int, d_v: int) -> None:
    """Long enough for several pieces; heads that fill vectors and heads that do not."""
    config, weights = random_model(d_k=d_k, d_v=d_v, n_heads=6, n_kv_heads=2, layers=(LayerConfig(None, None),) * 2)
    layout = RingLayout.of(config, 700, 2, "slide", chunk=100)
    ids = tokens(900, config)
    reference, cpu = NumpyBackend(config, weights), CpuBackend(config, weights, 2)
    logits = in_pieces(cpu, cpu.new_ring(layout, kv_dtype), ids, [100] * 8 + [1] * 100)
    assert_close(logits, in_pieces(reference, reference.new_ring(layout, kv_dtype), ids, [100]), 5e-3)


def test_ways_to_cut_the_same_tokens_change_no_bit() -> None:
    layers = (LayerConfig(6, HALVES), LayerConfig(None, ADJACENT))
    config, weights = random_model(layers=layers, d_k=20, d_v=12)
    layout = RingLayout.of(config, 16, 2, "slide", chunk=64)
    ids, backend = tokens(64, config), CpuBackend(config, weights, 2)
    whole = in_pieces(backend, backend.new_ring(layout, "f32"), ids, [64])
    for sizes in ([1], [7], [30, 1, 2]):
        cut = in_pieces(backend, backend.new_ring(layout, "f32"), ids, list(sizes))
        np.testing.assert_array_equal(cut, whole)


def test_several_rings_of_several_layouts_in_one_batch() -> None:
    layers = (LayerConfig(6, HALVES), LayerConfig(None, ADJACENT))
    config, weights = random_model(layers=layers)
    backend = CpuBackend(config, weights, 2)
    layouts = [
        RingLayout.of(config, 10, 2, "slide", chunk=20),
        RingLayout.of(config, 200, chunk=20),
        RingLayout.of(config, 4, 1, "slide", chunk=20),
    ]
    dtypes = ["f32", "f16", "f32"]
    sequences = [tokens(60, config, seed) for seed in range(3)]
    alone = [
        in_pieces(backend, backend.new_ring(layout, dtype), ids, [20])
        for layout, dtype, ids in zip(layouts, dtypes, sequences, strict=True)
    ]
    rings = [backend.new_ring(layout, dtype) for layout, dtype in zip(layouts, dtypes, strict=True)]
    together: list[list[np.ndarray]] = [[], [], []]
    for sizes in ((1, 20, 3), (17, 5, 20), (2, 1, 1), (20, 20, 20)):
        parts = [
            (ring, ids[ring.length : ring.length + size], "all")
            for ring, ids, size in zip(rings, sequences, sizes, strict=True)
        ]
        logits = run_step(backend, parts)
        for mine, part in zip(together, np.split(logits, np.cumsum(sizes)[:-1]), strict=True):
            mine.append(part)
    for mine, expected in zip(together, alone, strict=True):
        found = np.concatenate(mine)
        np.testing.assert_array_equal(found, expected[: len(found)])


@pytest.mark.parametrize("overflow", ["stop", "slide"])
def test_long_contexts_are_split_without_changing_a_bit(monkeypatch: pytest.MonkeyPatch, overflow: str) -> None:
    config, weights = random_model(layers=(LayerConfig(300, HALVES), LayerConfig(None, ADJACENT)), n_kv_heads=1)
    layout = RingLayout.of(config, 900 if overflow == "stop" else 600, 5, overflow, chunk=800)
    ids = tokens(805, config)
    backend, results = CpuBackend(config, weights, 2), []
    for pairs in (cpu_backend.SPLIT_PAIRS, 0):
        monkeypatch.setattr(cpu_backend, "SPLIT_PAIRS", pairs)
        results.append(in_pieces(backend, backend.new_ring(layout, "f32"), ids, [800, 2, 1]))
    np.testing.assert_array_equal(*results)
    reference = NumpyBackend(config, weights)
    assert_close(results[0], in_pieces(reference, reference.new_ring(layout, "f32"), ids, [800, 2, 1]))


def test_only_wanted_logits_in_the_batchs_order() -> None:
    config, weights = random_model()
    backend = CpuBackend(config, weights, 2)
    layout, ids = RingLayout.of(config, 40, chunk=40), tokens(12, config)
    everything = in_pieces(backend, backend.new_ring(layout, "f32"), ids, [12])
    rings = [backend.new_ring(layout, "f32") for _ in range(3)]
    logits = run_step(backend, [(rings[0], ids, "last"), (rings[1], ids, "none"), (rings[2], ids[:5], "last")])
    np.testing.assert_array_equal(logits, everything[[11, 4]])
    assert run_step(backend, [(rings[1], ids, "none")]).shape == (0, config.d_vocab)


def test_a_larger_batch_after_a_smaller_one_and_back() -> None:
    config, weights = random_model()
    backend, layout, ids = CpuBackend(config, weights, 2), RingLayout.of(config, 300, chunk=256), tokens(290, config)
    first = in_pieces(backend, backend.new_ring(layout, "f32"), ids[:3], [3])
    in_pieces(backend, backend.new_ring(layout, "f32"), ids, [256])
    np.testing.assert_array_equal(in_pieces(backend, backend.new_ring(layout, "f32"), ids[:3], [3]), first)


def test_nan_in_weights_reaches_the_logits() -> None:
    config, weights = random_model()
    weights.layers[0].attention_norm[3] = np.nan
    backend = CpuBackend(config, weights, 1)
    ring = backend.new_ring(RingLayout.of(config, 8, chunk=8), "f32")
    assert np.isnan(in_pieces(backend, ring, tokens(3, config), [3])).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W_gate": None}, "the weight layers.1.W_gate is missing"),
        ({"q_norm": np.ones(8, np.float32)}, "layers.1.q_norm has no place"),
        ({"W_o": Matrix.from_float(np.zeros((16, 31), np.float32))}, r"layers.1.W_o is not of the shape \[16, 32\]"),
        ({"b_q": np.zeros(31, np.float32)}, r"layers.1.b_q is not of the shape \[32\]"),
        ({"attention_norm": Matrix.from_float(np.ones((16, 1), np.float32))}, "layers.1.attention_norm is not"),
    ],
)
def test_weights_that_do_not_fit_are_named(change: dict, message: str) -> None:
    config, weights = random_model()
    weights = replace(weights, layers=(weights.layers[0], replace(weights.layers[1], **change)))
    with pytest.raises(FormatError, match=message):
        CpuBackend(config, weights)


def test_layers_that_are_too_few() -> None:
    config, weights = random_model()
    with pytest.raises(FormatError, match="1 layers have weights, the configuration has 2"):
        CpuBackend(config, replace(weights, layers=weights.layers[:1]))


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_impossible_numbers_of_threads(threads: int) -> None:
    with pytest.raises(RingletError, match=f"threads is {threads}: a whole number from 1 to 256"):
        CpuBackend(*random_model(), threads)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.array([3, 37], np.int32)}, "token id"),
        ({"token_ids": np.array([-1, 3], np.int32)}, "token id"),
        ({"positions": np.array([-1, 0])}, "position"),
        ({"sequence": np.array([0, 1], np.int32)}, "sequence"),
    ],
)
def test_batches_that_point_outside(change: dict, message: str) -> None:
    config, weights = random_model()
    backend = CpuBackend(config, weights, 1)
    batch = Batch.of([(backend.new_ring(RingLayout.of(config, 8, chunk=8), "f32"), [1, 2], "all")], config.d_vocab)
    with pytest.raises(RingletError, match=f"a {message} of the batch is outside"):
        backend.forward(replace(batch, **change))


def test_a_ring_of_another_model_is_refused() -> None:
    config, weights = random_model()
    other = random_model(d_k=4, layers=(LayerConfig(), LayerConfig()))
    ring = NumpyBackend(*other).new_ring(RingLayout.of(other[0], 8, chunk=8), "f32")
    with pytest.raises(ValueError, match="a ring's memory is"):
        CpuBackend(config, weights, 1).forward(Batch.of([(ring, [1], "all")], config.d_vocab))
