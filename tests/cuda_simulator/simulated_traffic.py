"""The bytes that kernels read and write in the simulator, counted, against the formulas of benchmarks/on_gpu."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from on_gpu.paper_device import Launch
from on_gpu.traffic import StepTraffic, form_bytes
from random_models import ADJACENT, HALVES, random_model, random_model_stored_as
from simulated_gpu import device, made, quantised_model

from ringlet.core.batch import Batch
from ringlet.core.config import LayerConfig
from ringlet.core.ring_cache import RingLayout
from ringlet.plugins.backends.cuda.backend import CudaBackend
from ringlet.plugins.backends.cuda.host_pointers import Pointer
from ringlet.plugins.backends.cuda.rings import _records_bytes

LISTED = 5
PIECEWISE = ("attention", "float_attention", "merge")  # whose pieces of the context are their own cost
Bytes = dict[Any, set[int]]  # addresses, by block


@contextmanager
def counted() -> Iterator[tuple[Bytes, Bytes]]:
    """What blocks read and write while this is entered."""
    read: Bytes = defaultdict(set)
    written: Bytes = defaultdict(set)

    def note(noted: Bytes, pointer: Pointer, offset: int, size: int) -> None:
        thread: Any = threading.current_thread()
        index = thread.blockIdx
        start = pointer._bytes.ctypes.data + int(offset)
        noted[index.x, index.y, index.z].update(range(start, start + size))

    get, put, part = Pointer.__getitem__, Pointer.__setitem__, Pointer.part

    def noted_get(self: Pointer, index: Any) -> Any:
        note(read, self, index * self._values.itemsize, self._values.itemsize)
        return get(self, index)

    def noted_put(self: Pointer, index: Any, value: Any) -> None:
        note(written, self, index * self._values.itemsize, self._values.itemsize)
        put(self, index, value)

    def noted_part(self: Pointer, offset: Any, size: int, dtype: Any) -> np.ndarray:
        note(read, self, offset, size)
        return part(self, offset, size, dtype)

    with pytest.MonkeyPatch.context() as patch:
        for name, method in (("__getitem__", noted_get), ("__setitem__", noted_put), ("part", noted_part)):
            patch.setattr(Pointer, name, method)
        yield read, written


def told(backend: CudaBackend, batch: Batch) -> set[int]:
    """Addresses of what is not counted: what the step is told, and the records of rings."""
    scratch = backend._scratch
    places = set(range(scratch["rings"], scratch["rings"] + len(scratch._told)))
    for ring in batch.rings:
        places.update(range(ring.memory.address, ring.memory.address + _records_bytes(ring.layout)))
    return places


def check_step(backend: CudaBackend, parts: list, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every launch of the step, of tokens that all differ, moves as many bytes as its formula says; the families that
    were launched."""
    batch = Batch.of(parts, backend.config.d_vocab)
    step, launch, seen = StepTraffic(batch, backend.config), device().launch, set()

    def checked(name: str, grid: tuple[int, int, int], arguments: tuple) -> None:
        with counted() as (read, written):
            launch(name, grid, arguments)
        apart = told(backend, batch)
        moved = sum(len(places - apart) for places in (*read.values(), *written.values()))
        traffic = step.of(Launch(name, grid, tuple(arguments)))
        assert traffic.moved == moved, name
        assert traffic.least <= traffic.moved, name
        family = name.split("-")[0]
        same_positions = family == "lookup" and backend.config.learned_positions
        if family not in PIECEWISE and not same_positions:
            all_read, all_written = (set().union(*places.values()) - apart for places in (read, written))
            assert traffic.least == len(all_read) + len(all_written), name
        seen.add(family)

    with monkeypatch.context() as patch:
        patch.setattr(device(), "launch", checked)
        backend.forward_likeliest(batch, LISTED)
    batch.commit()
    return seen


@pytest.mark.parametrize("kv_dtype", ["f16", "f32", "q8"])
@pytest.mark.parametrize(
    "recipe",
    [
        {"layers": (LayerConfig(3, HALVES), LayerConfig(None, ADJACENT)), "biases": True, "norm": "layer"},
        {"post_norms": True, "qk_norm": True, "gated": False, "logit_soft_cap": 2.0, "layers": (LayerConfig(),)},
        {"d_k": 7, "d_v": 5, "n_heads": 6, "n_kv_heads": 2, "learned_positions": True, "context_length": 64},
        {"d_v": 140, "n_kv_heads": 4, "layers": (LayerConfig(None, ADJACENT),)},
    ],
)
def test_steps(recipe: dict, kv_dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, weights = random_model(**recipe)
    backend = made(config, weights)
    overflow, sinks = ("stop", 0) if config.learned_positions else ("slide", 3)
    rings = [backend.new_ring(RingLayout.of(config, 16, sinks, overflow, chunk=12), kv_dtype) for _ in range(2)]
    for first, second in ((11, 3), (1, 1), (2, 7)):
        parts = [(rings[0], range(first), "last"), (rings[1], range(first, first + second), "all")]
        check_step(backend, parts, monkeypatch)


@pytest.mark.slow
def test_a_context_of_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    config, weights = random_model(layers=(LayerConfig(70, HALVES), LayerConfig(None, ADJACENT)))
    backend = made(config, weights)
    ring = backend.new_ring(RingLayout.of(config, 200, chunk=12), "f16")
    ring.append(range(150))
    for n in (1, 11):
        check_step(backend, [(ring, range(n), "last")], monkeypatch)


def test_mixed_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    config, weights = quantised_model()
    backend = made(config, weights)
    ring = backend.new_ring(RingLayout.of(config, 40, chunk=20), "f16")
    seen = set()
    for n in (1, 11, 3):
        seen |= check_step(backend, [(ring, range(n), "all")], monkeypatch)
    assert {"byte_product", "tile_product", "lookup", "place", "attention", "merge", "rank", "likeliest"} <= seen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q6_K", "IQ4_XS", "BF16"])
def test_formats(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, weights = random_model_stored_as(name)
    backend = made(config, weights)
    ring = backend.new_ring(RingLayout.of(config, 40, chunk=20), "f16")
    for n in (1, 9):
        check_step(backend, [(ring, range(n), "last")], monkeypatch)


def test_forms() -> None:
    """float32, bfloat16, and bytes with two numbers for each 16."""
    assert form_bytes(7, 33) == 33 * 4 + 64 * 2 + 64 + 4 * 2 * 4
