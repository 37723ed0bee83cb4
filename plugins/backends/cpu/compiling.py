"""How kernels are compiled and kept.

The compiled step is kept in the user's cache folder, or under NUMBA_CACHE_DIR, in a folder named after all that it came
from: the sources of this package, the versions of Python, NumPy, Numba and llvmlite. (Numba adds the CPU and its
features to its index; its own stamp would see the one file only that the function stands in.)
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import caching, config, event
from numba.misc.appdirs import AppDirs

_compiling = threading.Lock()


def kernel(function: Callable) -> Callable:
    """A function that cannot raise and allocates nothing; called from others of its kind, not from Python."""
    # Without the wrappers for callers outside, and without Numba's runtime, it compiles in two thirds of the time.
    return numba.njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)(function)


def entry_point(function: Callable) -> Any:
    """A kernel that Python calls; it runs without the GIL."""
    return numba.njit(error_model="numpy", nogil=True, no_cfunc_wrapper=True)(function)


@cache
def kernels_key() -> str:
    """A short name of everything that decides what the kernels are, the CPU apart."""
    digest = hashlib.sha256()
    for part in (sys.version, np.__version__, numba.__version__, llvmlite.__version__):
        digest.update(part.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def kernels_folder() -> Path:
    base = config.CACHE_DIR or AppDirs(appname="ringlet", appauthor=False).user_cache_dir
    return Path(base) / "kernels" / kernels_key()


class _Locator(caching._CacheLocator):
    """Tells Numba where a function is kept, and that the folder's name is stamp enough."""

    def get_cache_path(self) -> str:
        return str(kernels_folder())

    def get_source_stamp(self) -> str:
        return kernels_key()

    def get_disambiguator(self) -> str:
        return "0"

    @classmethod
    def from_function(cls, py_func: Callable, py_file: str) -> _Locator:
        return cls()


class _CacheImplementation(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]


class _KernelCache(caching.FunctionCache):
    _impl_class = _CacheImplementation


def kept(dispatcher: Any, signature: tuple) -> Callable:
    """The kernel compiled for the signature, taken from the user's cache or put there.

    While it compiles, which takes seconds, a line on standard error says so if that is a terminal. Where the folder
    cannot be written, or held damaged files, which go, the next process compiles again.
    """
    with _compiling, _announcing():
        if not dispatcher.signatures:
            try:
                kernels_folder().mkdir(parents=True, exist_ok=True)
                dispatcher._cache = _KernelCache(dispatcher.py_func)
                dispatcher.compile(signature)
            except Exception:
                shutil.rmtree(kernels_folder(), ignore_errors=True)
                dispatcher._cache = caching.NullCache()
                dispatcher.compile(signature)
    return dispatcher


class _Announcement(event.Listener):
    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: event.Event) -> None:
        if not self.said and sys.stderr is not None and sys.stderr.isatty():
            print("compiling kernels for this CPU, once …", end="", file=sys.stderr, flush=True)
            self.said = True

    def on_end(self, event: event.Event) -> None:
        pass


@contextmanager
def _announcing() -> Iterator[None]:
    announcement = _Announcement()
    with event.install_listener("numba:compile", announcement):
        yield
    if announcement.said:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
