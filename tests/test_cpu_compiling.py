"""How compiled kernels are kept: found again, apart from others, and never in the way."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from numba import types

from ringlet.plugins.backends.cpu import compiling


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def compiled(number: int = 3) -> Callable:
    """A small kernel, kept; a new dispatcher each time, as in a new process."""

    def add(x, y):
        return x + y + number

    return compiling.kept(compiling.entry_point(add), (types.int64, types.int64))


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(compiling, "kernels_folder", lambda: tmp_path / "kernels")
    return tmp_path / "kernels"


def test_a_kept_kernel_is_found_again(folder: Path) -> None:
    assert compiled()(1, 2) == 6
    again = compiled()
    assert sum(again.stats.cache_hits.values()) == 1
    assert again(1, 2) == 6


def test_the_folder_is_named_after_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiling.config, "CACHE_DIR", str(tmp_path))
    key = compiling.kernels_key()
    assert compiling.kernels_folder() == tmp_path / "kernels" / key
    other = tmp_path / "sources" / "compiling.py"
    other.parent.mkdir()
    other.write_text("changed")
    monkeypatch.setattr(compiling, "__file__", str(other))
    assert compiling.kernels_key.__wrapped__() != key


def test_other_functions_are_cached_where_numba_always_did(folder: Path) -> None:
    from numba.core import caching

    assert compiling._Locator not in caching.CompileResultCacheImpl._locator_classes


def test_a_folder_that_cannot_be_made_does_not_matter(folder: Path) -> None:
    folder.write_text("a file")
    assert compiled()(1, 2) == 6


def test_damaged_files_are_removed(folder: Path) -> None:
    compiled()
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:50])
    assert compiled()(1, 2) == 6
    compiled()
    assert sum(compiled().stats.cache_hits.values()) == 1


def test_a_terminal_is_told_of_compiling_and_of_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, plain = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    compiled()
    assert terminal.getvalue().startswith("compiling kernels for this CPU, once …\r")
    monkeypatch.setattr(sys, "stderr", second := Terminal())
    compiled()
    assert second.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", plain)
    compiled(number=4)
    assert plain.getvalue() == ""
