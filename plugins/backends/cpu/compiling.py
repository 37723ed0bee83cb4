"""How kernels are declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable) -> Any:
    """A function that cannot raise and allocates nothing; called from others of its kind, not from Python."""
    # Without the wrappers for callers outside, and without Numba's runtime, it compiles in two thirds of the time.
    return numba.njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)(function)


def entry_point(function: Callable) -> Any:
    """A kernel that Python calls; it runs without the GIL."""
    return numba.njit(error_model="numpy", nogil=True, no_cfunc_wrapper=True)(function)
