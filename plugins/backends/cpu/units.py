"""The pieces that the backend's machine code is compiled in, by name. Importing this module imports Numba.

step: the forward step. multiply_FORMAT: rows of weights times activations. unpack_FORMAT: a row of weights to float32.
interleave: see `interleaving`. attend_F16, attend_F32: attention over a piece of a ring. The step calls the others by
their addresses, so that only those are compiled whose formats a model has.

Each is a function as Numba makes them: int32 f(void **result, void **exception, int64_t …). Ours return nothing and
raise nothing, so their object code needs nothing of Numba's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from numba import types

from ringlet.plugins.backends.cpu import byte_product, product
from ringlet.plugins.backends.cpu.attention_pieces import piece_kernel
from ringlet.plugins.backends.cpu.byte_weights import BYTE_FORMATS
from ringlet.plugins.backends.cpu.interleave import interleave
from ringlet.plugins.backends.cpu.machine_code import write_unit
from ringlet.plugins.backends.cpu.memory import load_f16s, load_f32s
from ringlet.plugins.backends.cpu.step import step
from ringlet.plugins.backends.cpu.unpack import UNPACK

N_ARGUMENTS = {"step": 2, "interleave": 12, "multiply": 10, "unpack": 3, "attend": 9}


def source(name: str) -> Any:
    """The kernel that a unit is compiled from."""
    kind, _, format = name.partition("_")
    if kind == "step":
        return step
    if kind == "interleave":
        return interleave
    if kind == "attend":
        return piece_kernel(UNPACK[format], load_f16s if format == "F16" else load_f32s, 2 if format == "F16" else 4)
    if kind == "unpack":
        return UNPACK[format]
    return (
        byte_product.multiplier(BYTE_FORMATS[format]) if format in BYTE_FORMATS else product.multiplier(UNPACK[format])
    )


def compile_unit(name: str) -> tuple[str, bytes]:
    """The unit's symbol and its object code."""
    unit, arguments = source(name), (types.int64,) * N_ARGUMENTS[name.partition("_")[0]]
    unit.compile(arguments)
    compiled = unit.overloads[arguments]
    return compiled.fndesc.llvm_func_name, compiled.library._get_compiled_object()


def main() -> None:
    """Compile the named units into a folder, in a process of its own: main FOLDER NAME…"""
    folder, *names = sys.argv[1:]
    for name in names:
        write_unit(Path(folder), name, *compile_unit(name))


if __name__ == "__main__":
    main()
