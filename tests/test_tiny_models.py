"""Both backends against transformers on tiny models of every recipe: whole, in chunks, in batches, in turning rings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from random_models import assert_close, in_pieces
from tiny_models import FORMS, NAMES, TinyModel, open_tiny

from ringlet.core.backend import Backend
from ringlet.core.ring_cache import RingCache, RingLayout
from ringlet.core.step import run_step
from ringlet.plugins.backends.cpu import CpuBackend
from ringlet.plugins.backends.numpy import NumpyBackend

BACKENDS = {"numpy": NumpyBackend, "cpu": CpuBackend}
WINDOWED = [(name, form) for name, form in FORMS if name.startswith(("mistral", "qwen2_window", "gemma"))]
SIZES = {"tokens": [1], "sevens": [7], "mixed": [5, 1, 20, 1, 1, 20]}


@pytest.fixture(params=BACKENDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@cache
def made(kind: str, name: str, form: str = "hf") -> tuple[TinyModel, Backend]:
    tiny = open_tiny(name, form)
    return tiny, BACKENDS[kind](tiny.config, tiny.weights, 2)


def ring_of(backend: Backend, chunk: int = 48, context: int = 64, **wishes: object) -> RingCache:
    return backend.new_ring(RingLayout.of(backend.config, context, **wishes, chunk=chunk), "f32")


@cache
def whole(kind: str, name: str) -> np.ndarray:
    """The logits of the text in one piece, in rings that do not turn."""
    tiny, backend = made(kind, name)
    return in_pieces(backend, ring_of(backend), tiny.ids, [48])


def assert_turned(ring: RingCache, layers: list[int]) -> None:
    assert layers
    assert all(ring.length > ring.layout.layers[layer].slots for layer in layers)


def windowed_layers(tiny: TinyModel) -> list[int]:
    return [index for index, layer in enumerate(tiny.config.layers) if layer.window is not None]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_logits_are_those_of_transformers(kind: str, name: str, form: str) -> None:
    tiny, backend = made(kind, name, form)
    assert_close(in_pieces(backend, ring_of(backend), tiny.ids, [48]), tiny.logits, 1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_chunks_give_the_same_logits(kind: str, name: str, sizes: list[int]) -> None:
    tiny, backend = made(kind, name)
    assert_close(in_pieces(backend, ring_of(backend, max(sizes)), tiny.ids, sizes), whole(kind, name))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_beside_others_gives_the_same_logits(kind: str, name: str) -> None:
    tiny, backend = made(kind, name)
    before, mine, after = (ring_of(backend) for _ in range(3))
    first = [(before, tiny.ids[::-1][:30], "none"), (mine, tiny.ids[:19], "all"), (after, tiny.ids[7:8], "last")]
    second = [(mine, tiny.ids[19:], "all"), (before, tiny.ids[5:8], "last")]
    logits = [run_step(backend, first), run_step(backend, second)]
    assert [len(rows) for rows in logits] == [20, 30]
    assert_close(np.concatenate([logits[0][:19], logits[1][:29]]), whole(kind, name))


@pytest.mark.parametrize(("name", "form"), WINDOWED)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_local_rings_that_turn_give_the_logits_of_transformers(
    kind: str, name: str, form: str, sizes: list[int]
) -> None:
    """A model's own windows are smaller than the text, and the chunks small enough that every local ring wraps."""
    tiny, backend = made(kind, name, form)
    ring = ring_of(backend, max(sizes))
    assert_close(in_pieces(backend, ring, tiny.ids, sizes), tiny.logits, 1e-4)
    assert_turned(ring, windowed_layers(tiny))


@pytest.mark.parametrize(("name", "form"), WINDOWED)
def test_the_reference_tells_windows_apart(name: str, form: str) -> None:
    """A window that is one too wide must not pass the comparisons above."""
    tiny = open_tiny(name, form)
    wider = tuple(replace(layer, window=layer.window and layer.window + 1) for layer in tiny.config.layers)
    backend = NumpyBackend(replace(tiny.config, layers=wider), tiny.weights)
    logits = in_pieces(backend, ring_of(backend), tiny.ids, [48])
    assert np.abs(logits - tiny.logits).max() > 1e-3 * np.abs(tiny.logits).max()


@pytest.mark.parametrize("form", ["hf", "gguf"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_a_sliding_ring_is_a_window_in_every_layer(kind: str, form: str, sizes: list[int]) -> None:
    """Mistral without its window, in a ring of just that context: transformers' logits with the window."""
    tiny = open_tiny("mistral", form)
    assert {layer.window for layer in tiny.config.layers} == {16}
    free = replace(tiny.config, layers=tuple(replace(layer, window=None) for layer in tiny.config.layers))
    backend = BACKENDS[kind](free, tiny.weights, 2)
    ring = ring_of(backend, max(sizes), context=16, overflow="slide")
    assert_close(in_pieces(backend, ring, tiny.ids, sizes), tiny.logits, 1e-4)
    assert_turned(ring, list(range(free.n_layers)))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gpt2"])
def test_a_sliding_ring_with_sinks_does_not_depend_on_chunks(kind: str, name: str) -> None:
    tiny, backend = made(kind, name)
    slide = {"context": 13, "sinks": 3, "overflow": "slide"}
    one_piece = in_pieces(backend, ring_of(backend, **slide), tiny.ids, [48])
    for sizes in SIZES.values():
        ring = ring_of(backend, max(sizes), **slide)
        assert_close(in_pieces(backend, ring, tiny.ids, sizes), one_piece)
        assert_turned(ring, list(range(tiny.config.n_layers)))
    assert_close(one_piece[:13], tiny.logits[:13], 1e-4)
    assert np.abs(one_piece[20:] - tiny.logits[20:]).max() > 1e-3 * np.abs(tiny.logits).max()
