"""How kernels are declared: Python functions whose annotations name what each argument is.

A pointer is an argument that is indexed like an array; on a GPU it is an address, in the simulator a view of host
memory. All functions that kernels call are made with `device`. Importing this module imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import get_annotations
from typing import Any

from numba import cuda

from ringlet.plugins.backends.cuda.shapes import SIMULATED

# The kinds of arguments. They are written as annotations and read as text.
Bytes = Any
SignedBytes = Any
Shorts = Any
Halves = Any
Ints = Any
Words = Any
Longs = Any
Floats = Any
Doubles = Any
Int = Any
Float = Any

POINTERS = {
    "Bytes": "uint8",
    "SignedBytes": "int8",
    "Shorts": "uint16",
    "Halves": "float16",
    "Ints": "int32",
    "Words": "uint32",
    "Longs": "int64",
    "Floats": "float32",
    "Doubles": "float64",
}
SCALARS = {"Int": "int32", "Float": "float32"}


@dataclass(frozen=True)
class Kernel:
    """function: what each thread runs. kinds: of its arguments. threads: in a block. blocks: a multiprocessor should
    hold at once, which bounds the registers; 0: no bound."""

    name: str
    function: Callable[..., None]
    kinds: tuple[str, ...]
    threads: int
    blocks: int = 0


def kernel(name: str, threads: int, blocks: int = 0) -> Callable[[Callable[..., None]], Kernel]:
    """Makes a Kernel of a function whose every argument is annotated with a kind."""

    def declare(function: Callable[..., None]) -> Kernel:
        kinds = tuple(get_annotations(function)[parameter] for parameter in parameters_of(function))
        return Kernel(name, function, kinds, threads, blocks)

    return declare


def parameters_of(function: Callable[..., None]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


def device(function: Callable[..., Any]) -> Any:
    """A function that kernels call; it must not name `cuda`, which the simulator replaces in kernels' modules only."""
    return function if SIMULATED else cuda.jit(device=True, forceinline=True)(function)


def block_function(function: Callable[..., Any]) -> Any:
    """The same for one that does name `cuda`."""
    return cuda.jit(device=True)(function) if SIMULATED else device(function)


def unrolled(n: int, body: Any, first: int = 0) -> Any:
    """A function for kernels that calls body(0, …), body(1, …) to body(n - 1, …): a loop that is certain to be
    unrolled, which keeps arrays in registers that its body indexes."""
    if n == 1:

        def run(*args):
            body(first, *args)

    else:
        early, late = unrolled(n // 2, body, first), unrolled(n - n // 2, body, first + n // 2)

        def run(*args):
            early(*args)
            late(*args)

    return device(run)
