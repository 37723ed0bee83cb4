"""Where caches are kept, by system and by the user's wish."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ringlet.core.user_cache import user_cache_folder


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path) -> Path:
    """A home of its own, and none of the variables that say otherwise."""
    for variable in ("RINGLET_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("linux", ".cache/ringlet"),
        ("freebsd14", ".cache/ringlet"),
        ("darwin", "Library/Caches/ringlet"),
        ("win32", "AppData/Local/ringlet"),
    ],
)
def test_the_usual_folder(monkeypatch, home, system, expected):
    monkeypatch.setattr(sys, "platform", system)
    assert user_cache_folder() == home / expected


@pytest.mark.parametrize(
    ("system", "variable"), [("linux", "XDG_CACHE_HOME"), ("win32", "LOCALAPPDATA"), ("darwin", None)]
)
def test_the_system_s_own_variable(monkeypatch, home, system, variable):
    monkeypatch.setattr(sys, "platform", system)
    usual = user_cache_folder()
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(home / name))
    assert user_cache_folder() == (home / variable / "ringlet" if variable else usual)


def test_a_relative_path_in_xdg_cache_home_is_ignored(monkeypatch, home):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert user_cache_folder() == home / ".cache" / "ringlet"


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_the_user_s_wish_comes_first(monkeypatch, home, system):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "other"))
    monkeypatch.setenv("RINGLET_CACHE", str(home / "mine"))
    assert user_cache_folder() == home / "mine"
    monkeypatch.setenv("RINGLET_CACHE", os.path.join("~", "kept"))
    assert user_cache_folder() == home / "kept"
    monkeypatch.chdir(home)
    monkeypatch.setenv("RINGLET_CACHE", "here")
    assert user_cache_folder() == home / "here"


def test_without_a_home_there_is_none(monkeypatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "home", homeless)
    assert user_cache_folder() is None
    monkeypatch.setattr(Path, "home", lambda: Path("nowhere"))
    assert user_cache_folder() is None
