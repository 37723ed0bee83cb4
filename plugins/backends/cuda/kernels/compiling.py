"""From a kernel to PTX, for any kind of GPU, whether or not one is there."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from numba import cuda, types

from ringlet.plugins.backends.cuda.kernels.declare import POINTERS, SCALARS, Kernel

Capability = tuple[int, int]


def ptx_of(kernel: Kernel, capability: Capability) -> str:
    """PTX text; `.visible .entry` names its symbol."""
    arguments = [
        types.CPointer(getattr(types, POINTERS[kind])) if kind in POINTERS else getattr(types, SCALARS[kind])
        for kind in kernel.kinds
    ]
    bounds = (kernel.threads, kernel.blocks) if kernel.blocks else kernel.threads
    with _as_if_on(capability), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ptx, _ = cuda.compile_ptx(kernel.function, types.void(*arguments), cc=capability, launch_bounds=bounds)
    return ptx


@contextmanager
def _as_if_on(capability: Capability) -> Iterator[None]:
    """Functions that kernels call are compiled for the current GPU, which numba-cuda asks the driver for."""
    import numba.cuda.dispatcher as dispatcher

    asked = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = asked
