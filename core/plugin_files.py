"""A plugin in a file of its own: from path to module."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

Stamp = tuple[int, int]
_loaded: dict[str, tuple[Stamp, ModuleType]] = {}


def plugin_file(path: str | Path) -> Path:
    """The path with ~ and links resolved. Raises OSError where there is no such file."""
    resolved = Path(path).expanduser().resolve()
    if resolved.is_dir():
        raise IsADirectoryError(f"{path} is a directory: name a file in it")
    if not resolved.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return resolved


def file_stamp(path: Path) -> Stamp:
    """Changes when the file does."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def load_plugin_file(path: Path) -> ModuleType:
    """Run the file as a module, once in this process until it changes.

    The module's name comes from the path, so that files of the same name do not clash. Raises what the file raises.
    """
    name = module_name(path)
    stamp = file_stamp(path)
    known = _loaded.get(name)
    if known is not None and known[0] == stamp:
        return known[1]
    loader = _UncachedLoader(name, str(path))
    spec = spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} cannot be loaded as a module")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up by name
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _loaded[name] = (stamp, module)
    return module


def module_name(path: Path) -> str:
    """Readable, and different for every path."""
    readable = re.sub(r"\W", "_", path.stem)
    return f"ringlet_plugin_{readable}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


class _UncachedLoader(SourceFileLoader):
    """Leaves no __pycache__ beside the user's file, which would miss a change within a second."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError("not cached")
