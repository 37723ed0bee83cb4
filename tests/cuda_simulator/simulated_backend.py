"""The whole backend in the simulator against the readable reference: recipes, rings, batches, graphs, errors."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from random_models import (
    ADJACENT,
    HALVES,
    RECIPES,
    assert_close,
    in_pieces,
    random_model,
    tokens,
)
from simulated_gpu import device, made, quantised_model

from ringlet.core.batch import Batch
from ringlet.core.config import LayerConfig
from ringlet.core.errors import FormatError, RingletError
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step, run_step_for_likeliest, run_step_with_hidden
from ringlet.plugins.backends.cuda import backend as cuda_backend
from ringlet.plugins.backends.cuda.backend import CudaBackend
from ringlet.plugins.backends.cuda.simulated import SimulatedDevice
from ringlet.plugins.backends.numpy import NumpyBackend

TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "q8": 2e-2}  # a key may be rounded to another float16, or byte


def compare(model: tuple, layout: RingLayout, kv_dtype: str, n: int, sizes: list[int]) -> None:
    ids = tokens(n, model[0])
    reference, found = (
        in_pieces(backend, backend.new_ring(layout, kv_dtype), ids, sizes)
        for backend in (NumpyBackend(*model), made(*model))
    )
    assert_close(found, reference, TOLERANCE[kv_dtype])


@pytest.mark.parametrize("kv_dtype", ["f32", "f16", pytest.param("q8", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "large" else []) for name in RECIPES]
)
def test_every_recipe_as_the_reference(name: str, kv_dtype: str) -> None:
    model = random_model(**RECIPES[name])
    compare(model, RingLayout.of(model[0], 20, chunk=5), kv_dtype, 6, [4, 1])


@pytest.mark.parametrize("kv_dtype", ["f32", "f16", "q8"])
@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize(("context", "chunk"), [(1, 1), (8, 1), (9, 4), (8, 30)])
@pytest.mark.slow
def test_sliding_rings(kv_dtype: str, sinks: int, context: int, chunk: int) -> None:
    layers = (LayerConfig(3, HALVES), LayerConfig(None, ADJACENT), LayerConfig(None, None))
    model = random_model(d_v=5, n_heads=6, n_kv_heads=2, layers=layers)
    layout = RingLayout.of(model[0], context, min(sinks, context - 1), "slide", chunk=chunk)
    compare(model, layout, kv_dtype, 31, [chunk])


def test_a_ring_with_sinks_that_slides_and_turns() -> None:
    model = random_model(layers=(LayerConfig(3, HALVES), LayerConfig(None, ADJACENT)))
    compare(model, RingLayout.of(model[0], 8, 2, "slide", chunk=7), "f16", 26, [7, 1, 5])


def test_several_rings_of_several_layouts_in_one_batch() -> None:
    config, weights = random_model(layers=(LayerConfig(6, HALVES), LayerConfig(None, ADJACENT)))
    layouts = [
        RingLayout.of(config, 10, 2, "slide", chunk=12),
        RingLayout.of(config, 200, chunk=12),
        RingLayout.of(config, 4, 1, "slide", chunk=12),
    ]
    dtypes, sequences = ["f32", "f16", "q8"], [tokens(30, config, seed) for seed in range(3)]
    logits = []
    for backend in (NumpyBackend(config, weights), made(config, weights)):
        rings = [backend.new_ring(layout, dtype) for layout, dtype in zip(layouts, dtypes, strict=True)]
        logits.append([])
        for sizes in ((1, 12, 3), (12, 5, 12), (2, 1, 1)):
            parts = [
                (ring, ids[ring.length : ring.length + size], wanted)
                for ring, ids, size, wanted in zip(rings, sequences, sizes, ("all", "last", "none"), strict=True)
            ]
            logits[-1].append(run_step(backend, parts))
    for found, reference in zip(logits[1], logits[0], strict=True):
        assert_close(found, reference, 2e-3)


def test_mixed_formats() -> None:
    """Bytes for a few tokens, tensor cores for many, float32 for the rest: all near the reference."""
    model = quantised_model()
    ids, layout = tokens(12, model[0]), RingLayout.of(model[0], 40, chunk=12)
    exact = NumpyBackend(*model)
    reference = in_pieces(exact, exact.new_ring(layout, "f16"), ids, [12])
    for sizes in ([10, 2], [1, 3, 8]):
        backend = made(*model)
        assert_close(in_pieces(backend, backend.new_ring(layout, "f16"), ids, sizes), reference, 3e-2)


def test_a_repeated_shape_is_recorded_once_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    backend, layout, ids = made(*model), RingLayout.of(model[0], 40, chunk=4), tokens(12, model[0])
    recorded = []
    record = device().record
    monkeypatch.setattr(device(), "record", lambda work: recorded.append(1) or record(work))
    ring = backend.new_ring(layout, "f16")
    found = in_pieces(backend, ring, ids[:9], [4, 1])
    assert len(recorded) == 1
    found = np.concatenate([found, run_step(backend, [(ring, ids[9:], "all")])])  # another shape
    plain = NumpyBackend(*model)
    assert_close(found, in_pieces(plain, plain.new_ring(layout, "f16"), ids, [4, 1, 1, 1, 1, 1, 3]), 2e-3)


def test_a_larger_batch_forgets_graphs_and_a_smaller_one_is_as_before() -> None:
    model = random_model()
    backend, layout, ids = made(*model), RingLayout.of(model[0], 60, chunk=40), tokens(40, model[0])
    first = in_pieces(backend, backend.new_ring(layout, "f16"), ids[:4], [1])
    assert backend._graphs
    in_pieces(backend, backend.new_ring(layout, "f16"), ids, [40])
    assert not backend._graphs
    np.testing.assert_array_equal(in_pieces(backend, backend.new_ring(layout, "f16"), ids[:4], [1]), first)


def test_forked_and_rewound_rings() -> None:
    model = random_model(layers=(LayerConfig(4, HALVES), LayerConfig(None, ADJACENT)))
    backend, layout = made(*model), RingLayout.of(model[0], 30, 2, "slide", chunk=6)
    ids = tokens(14, model[0])
    ring = backend.new_ring(layout, "f16")
    in_pieces(backend, ring, ids[:10], [6, 4])
    copy = ring.fork()
    found = run_step(backend, [(copy, ids[10:14], "last")])
    run_step(backend, [(ring, [1, 2, 3], "none")])
    np.testing.assert_array_equal(run_step(backend, [(ring.fork(), ids[:1], "last")]).shape, (1, model[0].d_vocab))
    again = backend.new_ring(layout, "f16")
    again.copy_from(copy)
    assert again.rewind(10) == 10
    np.testing.assert_array_equal(run_step(backend, [(again, ids[10:14], "last")]), found)
    assert again.memory.nbytes == backend.ring_bytes(layout, "f16")


@pytest.mark.parametrize("kv_dtype", ["f32", "f16", "q8"])
def test_rings_go_to_the_host_and_back(kv_dtype: str) -> None:
    """What a ring gives is what the reference's would, so one goes on with what the other has kept; heads of odd
    widths, a layer that has turned."""
    model = random_model(d_k=7, d_v=5, layers=(LayerConfig(4, HALVES), LayerConfig(None, ADJACENT)))
    backend, reference, ids = made(*model), NumpyBackend(*model), tokens(12, model[0])
    layout = RingLayout.of(model[0], 30, chunk=6)
    rings = [made_by.new_ring(layout, kv_dtype) for made_by in (backend, reference)]
    for made_by, ring in zip((backend, reference), rings, strict=True):
        in_pieces(made_by, ring, ids[:10], [6, 4])
    found, expected = (ring.memory.contents(10) for ring in rings)
    assert list(found) == list(expected)
    for name, array in found.items():
        assert (array.shape, array.dtype) == (expected[name].shape, expected[name].dtype)
        assert_close(array.astype(np.float32), expected[name].astype(np.float32), 1e-2)
    after = run_step(backend, [(rings[0].fork(), ids[10:], "last")])
    for contents, tolerance in ((found, 0), (expected, TOLERANCE[kv_dtype])):
        again = backend.new_ring(layout, kv_dtype)
        again.restore(ids[:10], rings[0].first_held, contents)
        assert_close(run_step(backend, [(again, ids[10:], "last")]), after, tolerance)


@pytest.mark.parametrize(
    "recipe", [{}, {"post_norms": True}, {"residual": "parallel", "norm": "layer", "biases": True}]
)
def test_hidden_states(recipe: dict) -> None:
    model = random_model(**recipe)
    layout, ids = RingLayout.of(model[0], 20, chunk=5), tokens(5, model[0])
    results = []
    for backend in (NumpyBackend(*model), made(*model)):
        results.append(run_step_with_hidden(backend, [(backend.new_ring(layout, "f32"), ids, "last")]))
    for found, reference in zip(results[1], results[0], strict=True):
        assert_close(found, reference)


def test_nothing_wanted() -> None:
    model = random_model()
    backend = made(*model)
    ring = backend.new_ring(RingLayout.of(model[0], 8, chunk=8), "f16")
    assert run_step(backend, [(ring, [1, 2], "none")]).shape == (0, model[0].d_vocab)


def test_logits_stay_as_they_are_while_they_are_held() -> None:
    """A row of a step is what it was however many steps follow, and its memory is used again once it is gone."""
    model = random_model()
    backend, ids = made(*model), tokens(12, model[0])
    ring = backend.new_ring(RingLayout.of(model[0], 20, chunk=2), "f16")
    held, copies = [], []
    for token_id in ids[:6]:
        logits = run_step(backend, [(ring, [token_id], "last")])
        held.append(logits[0])
        copies.append(logits.copy())
        del logits
    for row, copy in zip(held, copies, strict=True):
        np.testing.assert_array_equal(row, copy[0])
    del held, row
    gc.collect()
    places = set()
    for token_id in ids[6:]:
        logits = run_step(backend, [(ring, [token_id], "last")])
        places.add(logits.ctypes.data)
    assert len(places) == 2


def test_the_likeliest_are_listed_and_nothing_else_leaves_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """In plain steps and replayed ones, of two sequences; one copy and one wait a step, one of each for a row."""
    config, weights = random_model(logit_soft_cap=2.0)
    backend, layout, seen = made(config, weights), RingLayout.of(config, 40, chunk=4), list[object]()
    download, synchronise = device().download, device().synchronise
    ids = [tokens(8, config, seed) for seed in range(2)]
    rings = [[backend.new_ring(layout, "f16") for _ in ids] for _ in range(2)]
    monkeypatch.setattr(device(), "download", lambda at, rows: seen.append(rows.nbytes) or download(at, rows))
    monkeypatch.setattr(device(), "synchronise", lambda: seen.append("wait") or synchronise())
    for at in range(0, 8, 2):
        parts = [[(ring, of[at : at + 2], "last") for ring, of in zip(kind, ids, strict=True)] for kind in rings]
        logits = run_step(backend, parts[0])
        del seen[:]
        rows = run_step_for_likeliest(backend, parts[1], 5)
        assert seen == [2 * 5 * 8, "wait"]
        for row, expected in zip(rows, logits, strict=True):
            order = np.argsort(-expected, kind="stable")[:5]
            np.testing.assert_array_equal(row.ids, order)
            np.testing.assert_array_equal(row.values, expected[order])
        del seen[:]
        np.testing.assert_array_equal(rows[1].all, logits[1])
        assert seen == [4 * config.d_vocab, "wait"]
    assert len(backend._graphs) == 2


def test_rows_can_be_fetched_after_other_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as somebody holds them, whatever follows: they are moved aside, into memory that is used again."""
    config, weights = random_model()
    backend, ids, copied = made(config, weights), tokens(12, config), list[int]()
    layout, copy = RingLayout.of(config, 60, chunk=40), device().copy
    monkeypatch.setattr(device(), "copy", lambda source, to, size: copied.append(to) or copy(source, to, size))
    plain, ring = (backend.new_ring(layout, "f16") for _ in range(2))
    expected = [run_step(backend, [(plain, [token_id], "last")])[0] for token_id in ids]
    held = [run_step_for_likeliest(backend, [(ring, [token_id], "last")], 3)[0] for token_id in ids[:5]]
    run_step(backend, [(backend.new_ring(layout, "f16"), tokens(40, config), "all")])  # memory is made anew for this
    assert len(set(copied)) == 5
    for row, logits in zip(held, expected, strict=False):
        np.testing.assert_array_equal(row.all, logits)
    del held, row
    again = copied[:]
    del copied[:]
    for token_id in ids[5:]:
        rows = run_step_for_likeliest(backend, [(ring, [token_id], "last")], 3)
        assert rows[0].values[0] == expected[ring.length - 1].max()
    assert set(copied) <= set(again)
    assert len(copied) == len(ids) - 5 - 1
    del rows, copied[:]
    for token_id in ids[:3]:  # nobody holds them
        run_step_for_likeliest(backend, [(ring, [token_id], "last")], 3)
    assert copied == []


def test_lists_that_have_no_room_are_left_out() -> None:
    config, weights = random_model(d_vocab=300)
    backend, layout = made(config, weights), RingLayout.of(config, 8, chunk=8)
    for wanted, count, n in (("last", 256, 256), ("last", 257, 0), ("none", 5, 0)):
        batch = Batch.of([(backend.new_ring(layout, "f16"), [1, 2], wanted)], config.d_vocab)
        found = backend.forward_likeliest(batch, count)
        rows = int(wanted == "last")
        assert found.ids.shape == found.values.shape == (rows, n if rows else 0)
        assert all(len(row.all) == 300 for row in found.rows())


def test_nan_in_weights_reaches_the_logits() -> None:
    model = random_model()
    model[1].layers[0].attention_norm[3] = np.nan
    for kv_dtype in ("f16", "f32", "q8"):
        backend = made(*model)
        ring = backend.new_ring(RingLayout.of(model[0], 8, chunk=8), kv_dtype)
        assert np.isnan(in_pieces(backend, ring, tokens(3, model[0]), [3])).all()
        assert np.isnan(run_step_for_likeliest(backend, [(ring, [1], "last")], 1)[0].largest)


def test_a_terminal_is_told_how_far_the_upload_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(cuda_backend, "passing_lines", lambda: nullcontext(lines.append))
    for tied in (False, True):
        del lines[:]
        made(*random_model(tied=tied))
        shares = [int(line.split("%")[0]) for line in lines]
        assert shares == sorted(shares)
        assert lines[-1] == "100% of the weights' 0.00 GiB are on Numba's CUDA simulator"
        assert len(set(shares)) > 5


def test_weights_that_do_not_fit_are_named() -> None:
    config, weights = random_model()
    with pytest.raises(FormatError, match=r"the weight layers\.0\.W_gate is missing"):
        made(config, replace(weights, layers=(replace(weights.layers[0], W_gate=None), weights.layers[1])))


def test_too_little_memory_is_said_before_anything_is_loaded() -> None:
    small = SimulatedDevice(1 << 20)
    with pytest.raises(RingletError, match=r"the weights take 0\.\d\d GiB, Numba's CUDA simulator has 0\.00 GiB free"):
        CudaBackend(*random_model(), device=small)
    assert small.launches == []


def test_a_ring_that_does_not_fit_says_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    config, weights = random_model()
    backend = made(config, weights)
    layout = RingLayout.of(config, 1 << 22, chunk=8)
    monkeypatch.setattr(device(), "_left", backend.ring_bytes(layout, "f16") // 2)
    with pytest.raises(RingletError, match=r"the ring needs .* GiB free: a context of about 2\d{6} would fit"):
        backend.new_ring(layout, "f16")


def test_a_step_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    config, weights = random_model()
    backend = made(config, weights)
    ring = backend.new_ring(RingLayout.of(config, 40, chunk=40), "f16")
    monkeypatch.setattr(device(), "_left", 1000)
    with pytest.raises(RingletError, match="a step of 30 tokens does not fit the memory"):
        run_step(backend, [(ring, tokens(30, config), "last")])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.array([3, 37], np.int32)}, "token id"),
        ({"token_ids": np.array([-1, 3], np.int32)}, "token id"),
        ({"positions": np.array([-1, 0])}, "position"),
        ({"positions": np.array([1 << 31, 0])}, "position"),
        ({"sequence": np.array([0, 1], np.int32)}, "sequence"),
    ],
)
def test_batches_that_point_outside(change: dict, message: str) -> None:
    config, weights = random_model()
    backend = made(config, weights)
    batch = Batch.of([(backend.new_ring(RingLayout.of(config, 8, chunk=8), "f32"), [1, 2], "all")], config.d_vocab)
    with pytest.raises(RingletError, match=f"a {message} of the batch is outside"):
        backend.forward(replace(batch, **change))


def test_a_ring_of_another_backend_is_refused() -> None:
    config, weights = random_model()
    ring = NumpyBackend(config, weights).new_ring(RingLayout.of(config, 8, chunk=8), "f32")
    with pytest.raises(ValueError, match="a ring of another backend or model"):
        made(config, weights).forward(Batch.of([(ring, [1], "all")], config.d_vocab))


def test_a_forked_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    config, weights = random_model()
    backend = made(config, weights)
    ring = backend.new_ring(RingLayout.of(config, 8, chunk=8), "f32")
    row = run_step_for_likeliest(backend, [(ring, [1], "all")], 2)[0]
    batch = Batch.of([(ring, [1], "all")], config.d_vocab)
    monkeypatch.setattr(cuda_backend.os, "getpid", lambda: -1)
    with pytest.raises(RingletError, match="does not survive a fork"):
        backend.forward(batch)
    with pytest.raises(RingletError, match="does not survive a fork"):
        assert row.all.size
