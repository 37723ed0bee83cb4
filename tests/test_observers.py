"""Observers: what plugins are told of the numpy backend's arrays, and what a fault of theirs costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from random_models import tokens
from tiny_pipeline import byte_model

from ringlet.cli import main
from ringlet.core import plugin_manager
from ringlet.core.errors import PluginError
from ringlet.core.observers import Observers, nobody
from ringlet.core.pipeline import Pipeline
from ringlet.core.plugin_manager import PluginManager, Registered
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step
from ringlet.plugins.backends.numpy import NumpyBackend

SEEN: list[tuple[str, np.ndarray, int | None]] = []

WATCHER = """
import sys
from ringlet import hookimpl

class Watcher:
    name = "watcher"

    def __call__(self, name, array, layer):
        {body}

@hookimpl
def register_observers(register):
    register(Watcher)
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("RINGLET_PLUGINS", raising=False)
    monkeypatch.setattr(plugin_manager, "_managers", {})
    SEEN.clear()
    yield
    SEEN.clear()


def watcher(folder: Path, body: str) -> Path:
    path = folder / "watcher.py"
    path.write_text(WATCHER.format(body=body), encoding="utf-8")
    return path


class Keeper:
    """Keeps what it is told."""

    name = "keeper"

    def __call__(self, name: str, array: np.ndarray, layer: int | None) -> None:
        SEEN.append((name, array, layer))


def registered(cls: type, explicit: bool = True) -> Registered:
    return Registered(cls, "observer", cls.name, "here.py", None, explicit)  # type: ignore[attr-defined]


def watched(*classes: type, explicit: bool = True, report: Any = None) -> NumpyBackend:
    backend = NumpyBackend(*byte_model(window=6))
    backend.observe = Observers([registered(cls, explicit) for cls in classes], report or pytest.fail)
    return backend


def step(backend: NumpyBackend, *lengths: int) -> np.ndarray:
    layout = RingLayout.of(backend.config, 32, chunk=16)
    parts = [(backend.new_ring(layout, "f32"), tokens(n, backend.config, seed=n), "last") for n in lengths]
    return run_step(backend, parts)


def test_nobody_watches_unless_asked() -> None:
    assert NumpyBackend(*byte_model()).observe is nobody
    assert Pipeline.from_pretrained(backend="numpy").backend.observe is nobody  # type: ignore[attr-defined]


def test_a_plugin_s_observer_is_told_what_a_trace_shows(tmp_path: Path) -> None:
    path = watcher(tmp_path, "KEPT.append((name, array.copy(), layer))")
    path.write_text(path.read_text() + "\nKEPT = []\nWatcher.kept = KEPT\n")
    pipe = Pipeline.from_pretrained(backend="numpy", plugins=[path])
    ids = pipe.tokenizer.encode("我爱你")
    kept = pipe.plugins.find("observer", "watcher").cls.kept
    pipe.logits(ids)
    told = {(name, layer): array for name, array, layer in kept}
    assert len(told) == len(kept)
    kept.clear()
    (traced,) = pipe.trace(ids).steps
    assert {(name, layer): array.tolist() for name, array, layer in kept} == {
        key: array.tolist() for key, array in told.items()
    }
    for (name, layer), array in told.items():
        if name != "sequence":
            np.testing.assert_array_equal(array, getattr(traced if layer is None else traced.layers[layer], name))


def test_a_trace_of_another_backend_s_pipeline_is_watched_too(tmp_path: Path) -> None:
    path = watcher(tmp_path, "self.__class__.told = True")
    pipe = Pipeline.from_pretrained(backend="cpu", threads=1, plugins=[path])
    pipe.trace("春")
    assert pipe.plugins.find("observer", "watcher").cls.told


def test_arrays_come_in_the_order_of_the_theory_and_cannot_be_changed() -> None:
    backend = watched(Keeper)
    before = step(NumpyBackend(*byte_model(window=6)), 5)
    np.testing.assert_array_equal(step(backend, 5), before)
    layers = [[name for name, _, layer in SEEN if layer == index] for index in (0, 1)]
    assert layers[0] == layers[1]
    order = ["x", "Q", "K_rotated", "S_raw", "S", "alpha", "O_head", "O_heads", "O_attention", "x_attended", "x_out"]
    assert [name for name in layers[0] if name in order] == order
    outside = [name for name, _, layer in SEEN if layer is None]
    assert outside == ["token_ids", "positions", "sequence", "final_normed", "logits"]
    for _, array, _ in SEEN:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_each_sequence_of_a_step_has_its_own_scores() -> None:
    step(watched(Keeper), 3, 7)
    told = [(name, array.shape) for name, array, layer in SEEN if layer == 1]
    assert [shape for name, shape in told if name == "query_positions"] == [(3,), (7,)]
    assert [shape for name, shape in told if name == "alpha"] == [(4, 3, 3), (4, 7, 7)]
    assert [shape for name, shape in told if name == "O_heads"] == [(10, 32)]
    (sequence,) = (array for name, array, layer in SEEN if name == "sequence")
    assert sequence.tolist() == [0] * 3 + [1] * 7


def test_the_plugin_page_lists_what_observers_are_told(repository: Path) -> None:
    step(watched(Keeper), 3)
    text = (repository / "docs" / "plugins.md").read_text(encoding="utf-8")
    section = re.search(r"^## Observers\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    assert section is not None
    listed = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", section[1], re.MULTILINE))))
    assert listed == {name for name, _, _ in SEEN} | {"Q_normed", "K_normed"}


# --- faults ----------------------------------------------------------------------------------------------------------


class Faulty:
    name = "faulty"

    def __call__(self, name: str, array: np.ndarray, layer: int | None) -> None:
        if name == "S_raw":
            raise ZeroDivisionError("no\nluck")


class Leaves:
    name = "leaves"

    def __call__(self, name: str, array: np.ndarray, layer: int | None) -> None:
        raise SystemExit(3)


class Interrupts:
    name = "interrupts"

    def __call__(self, name: str, array: np.ndarray, layer: int | None) -> None:
        raise KeyboardInterrupt


class Unmakeable:
    name = "unmakeable"

    def __init__(self, wanted: int) -> None:
        pass

    def __call__(self, name: str, array: np.ndarray, layer: int | None) -> None:
        pass


def test_a_fault_of_an_observer_that_the_user_named_ends_the_step_and_names_it() -> None:
    backend = watched(Faulty)
    with pytest.raises(PluginError, match=r"^observer faulty \(here.py\): S_raw: ZeroDivisionError: no luck$"):
        step(backend, 3)
    with pytest.raises(PluginError, match=r"^observer leaves \(here.py\): token_ids: SystemExit: 3$"):
        step(watched(Leaves), 3)


def test_an_observer_that_was_only_found_is_left_out_after_its_first_fault() -> None:
    lines: list[str] = []
    backend = watched(Faulty, Leaves, Keeper, explicit=False, report=lines.append)
    expected = step(NumpyBackend(*byte_model(window=6)), 3)
    for _ in range(2):
        np.testing.assert_array_equal(step(backend, 3), expected)
    assert lines == [
        "observer leaves (here.py): token_ids: SystemExit: 3 (left out)",
        "observer faulty (here.py): S_raw: ZeroDivisionError: no luck (left out)",
    ]
    assert sum(name == "alpha" for name, _, _ in SEEN) == 4


def test_an_interrupt_passes() -> None:
    with pytest.raises(KeyboardInterrupt):
        step(watched(Interrupts), 3)


def test_an_observer_that_cannot_be_made() -> None:
    with pytest.raises(PluginError, match=r"^observer unmakeable \(here.py\): constructor: TypeError: .*wanted"):
        watched(Unmakeable)
    lines: list[str] = []
    step(watched(Unmakeable, explicit=False, report=lines.append), 3)
    assert len(lines) == 1


def test_what_is_no_observer_is_refused(tmp_path: Path) -> None:
    path = watcher(tmp_path, "pass")
    path.write_text(path.read_text().replace("__call__", "watch"))
    with pytest.raises(PluginError, match=r"register_observers: Watcher has no __call__\(name, array, layer\)$"):
        PluginManager([path])


def test_a_fault_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = watcher(tmp_path, "raise ValueError(name)")
    arguments = ["generate", "春", "--max-tokens", "2", "--sampler", "greedy", "--backend", "numpy"]
    result = CliRunner().invoke(main, [*arguments, "--plugin", str(path)])
    assert result.exit_code == 2
    assert result.output == f"Error: observer watcher ({path}): token_ids: ValueError: token_ids\n"
    expected = CliRunner().invoke(main, arguments).stdout
    monkeypatch.setenv("RINGLET_PLUGINS", str(path))
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (0, expected)
    assert f"Warning: observer watcher ({path}): token_ids: ValueError: token_ids (left out)" in result.stderr


def test_a_backend_that_cannot_be_watched_is_told_to_who_named_the_plugin(tmp_path: Path) -> None:
    path = watcher(tmp_path, "pass")
    arguments = ["generate", "春", "--max-tokens", "1", "--backend", "cpu", "--threads", "1", "--plugin", str(path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert (
        f"Warning: observer watcher ({path}) sees nothing: backend cpu tells of no arrays, numpy does" in result.stderr
    )
