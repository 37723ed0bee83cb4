"""How kernels are declared, and how one becomes object code."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target


def kernel(function: Callable) -> Any:
    """A function that cannot raise and allocates nothing; called from others of its kind, not from Python."""
    # Without the wrappers for callers outside, and without Numba's runtime, it compiles in two thirds of the time.
    return numba.njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)(function)


def entry_point(function: Callable) -> Any:
    """A kernel that Python calls; it runs without the GIL."""
    return numba.njit(error_model="numpy", nogil=True, no_cfunc_wrapper=True)(function)


def object_code(function: Any, arguments: tuple[Any, ...]) -> tuple[str, bytes]:
    """The symbol and the object code of a kernel for arguments of these types, with all that it calls.

    Numba optimises every function, and makes machine code of it, once for itself and again in each that calls it. Here
    that is done once, for the whole, which takes about half the time and gives code as fast.
    """
    with global_compiler_lock, _no_garbage_collection():
        with _only_the_whole() if _CAN_WAIT else _as_numba_does():
            function.compile(arguments)
        compiled = function.overloads[arguments]
        library = compiled.library
        code = library.whole() if isinstance(library, _Part) else library._get_compiled_object()
        return compiled.fndesc.llvm_func_name, code


class _Part(JITCodeLibrary):
    """A function's code that is neither optimised nor made into machine code until it is part of the whole."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0  # it cannot be called

    def whole(self) -> bytes:
        """Object code of the function with all that it calls."""
        if self._whole is None:
            self._ensure_finalized()
            super()._optimize_final_module()
            self._whole = self._codegen._tm.emit_object(self._final_module)
        return self._whole

    _whole: bytes | None = None


# These are Numba's own affairs: where another version has other names for them, it compiles as it always does.
_CAN_WAIT = all(
    hasattr(JITCodeLibrary, name)
    for name in ("_optimize_functions", "_optimize_final_module", "_finalize_final_module", "_ensure_finalized")
)


@contextmanager
def _only_the_whole() -> Iterator[None]:
    """What is compiled meanwhile waits as a `_Part`. The lock of Numba's compiler must be held."""
    codegen = cpu_target.target_context.codegen()
    codegen._library_class, codegen.set_env = _Part, lambda *_: None  # no code, so no place for an environment
    try:
        yield
    finally:
        del codegen._library_class, codegen.set_env  # the class's own are seen again


@contextmanager
def _as_numba_does() -> Iterator[None]:
    yield


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Numba makes many objects and little garbage: looking for it costs a sixth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
