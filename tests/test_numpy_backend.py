"""The readable reference against transformers, on tiny models of every recipe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny_models import FORMS, NAMES, TinyModel, open_tiny

from ringlet.core.ring_cache import RingCache, RingLayout
from ringlet.core.step import run_step
from ringlet.plugins.backends.numpy import NumpyBackend


def relative_difference(logits: np.ndarray, reference: np.ndarray) -> float:
    """The largest difference, by the largest logit."""
    assert logits.shape == reference.shape
    return float(np.abs(logits - reference).max() / np.abs(reference).max())


def run(backend: NumpyBackend, ring: RingCache, ids: list[int], sizes: list[int]) -> np.ndarray:
    """Logits of all ids, given to the backend in pieces of these sizes."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(run_step(backend, [(ring, ids[start : start + size], "all")]))
        start += size
    assert start == len(ids)
    return np.concatenate(pieces)


def backend_and_ring(tiny: TinyModel) -> tuple[NumpyBackend, RingCache]:
    backend = NumpyBackend(tiny.config, tiny.weights)
    return backend, backend.new_ring(RingLayout.of(tiny.config, 64, chunk=48), "f32")


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_logits_are_those_of_transformers(name: str, form: str) -> None:
    tiny = open_tiny(name, form)
    logits = run(*backend_and_ring(tiny), tiny.ids, [len(tiny.ids)])
    assert relative_difference(logits, tiny.logits) < 1e-4


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", [[1] * 48, [5, 1, 20, 1, 1, 20], [17, 31]], ids=["tokens", "mixed", "halves"])
def test_chunks_give_the_same_logits(name: str, sizes: list[int]) -> None:
    tiny = open_tiny(name)
    whole = run(*backend_and_ring(tiny), tiny.ids, [len(tiny.ids)])
    assert relative_difference(run(*backend_and_ring(tiny), tiny.ids, sizes), whole) < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_beside_others_gives_the_same_logits(name: str) -> None:
    tiny = open_tiny(name)
    backend, alone = backend_and_ring(tiny)
    whole = run(backend, alone, tiny.ids, [len(tiny.ids)])
    others = [tiny.ids[::-1][:30], tiny.ids[7:8]]
    rings = [backend.new_ring(RingLayout.of(tiny.config, 64, chunk=48), "f32") for _ in range(3)]
    first = run_step(
        backend, [(rings[0], others[0], "none"), (rings[1], tiny.ids[:19], "all"), (rings[2], others[1], "last")]
    )
    second = run_step(backend, [(rings[1], tiny.ids[19:], "all"), (rings[0], others[0][:3], "last")])
    assert relative_difference(np.concatenate([first[:19], second[:29]]), whole) < 1e-5
    assert len(first) == 20
    assert len(second) == 30


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("mistral", "qwen2_window", "gemma3"))])
def test_the_reference_tells_windows_apart(name: str) -> None:
    """A window that is one too wide must not pass the comparison above."""
    tiny = open_tiny(name)
    wider = tuple(replace(layer, window=layer.window and layer.window + 1) for layer in tiny.config.layers)
    tiny = replace(tiny, config=replace(tiny.config, layers=wider))
    logits = run(*backend_and_ring(tiny), tiny.ids, [len(tiny.ids)])
    assert relative_difference(logits, tiny.logits) > 1e-3


@pytest.mark.parametrize("name", ["mistral"])
@pytest.mark.parametrize("sizes", [[48], [1] * 48, [7] * 6 + [6]], ids=["whole", "tokens", "sevens"])
def test_a_sliding_ring_is_a_window_in_every_layer(name: str, sizes: list[int]) -> None:
    """The model without its window, in a ring of just that context: transformers' logits with the window."""
    tiny = open_tiny(name)
    window = tiny.config.layers[0].window
    assert window == 16
    free = replace(tiny.config, layers=tuple(replace(layer, window=None) for layer in tiny.config.layers))
    backend = NumpyBackend(free, tiny.weights)
    ring = backend.new_ring(RingLayout.of(free, window, overflow="slide", chunk=max(sizes)), "f32")
    assert relative_difference(run(backend, ring, tiny.ids, sizes), tiny.logits) < 1e-4


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gpt2"])
def test_a_sliding_ring_with_sinks_does_not_depend_on_chunks(name: str) -> None:
    tiny = open_tiny(name)
    backend = NumpyBackend(tiny.config, tiny.weights)
    layout = RingLayout.of(tiny.config, 13, sinks=3, overflow="slide", chunk=48)
    whole = run(backend, backend.new_ring(layout, "f32"), tiny.ids, [48])
    assert relative_difference(run(backend, backend.new_ring(layout, "f32"), tiny.ids, [1] * 48), whole) < 1e-5
    assert relative_difference(whole[:13], tiny.logits[:13]) < 1e-4
    assert relative_difference(whole[20:], tiny.logits[20:]) > 1e-3
