"""The pieces that the backend's machine code is compiled in, by name. Importing this module imports Numba.

step: the forward step. multiply_FORMAT: rows of weights times activations. unpack_FORMAT: a row of weights to float32.
interleave: see `interleaving`. draw: a token from those that the step lists. attend_F16, attend_F32, attend_Q8:
attention over a piece of a ring. The step calls the others by their addresses, so that only those are compiled whose
formats a model and its rings have.

Each is a function as Numba makes them: int32 f(void **result, void **exception, int64_t …). Ours return nothing and
raise nothing, so their object code needs nothing of Numba's.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ringlet.plugins.backends.cpu import byte_product, product
from ringlet.plugins.backends.cpu.attention_pieces import piece_kernel
from ringlet.plugins.backends.cpu.byte_weights import BYTE_FORMATS
from ringlet.plugins.backends.cpu.compiling import object_code
from ringlet.plugins.backends.cpu.draw import draw
from ringlet.plugins.backends.cpu.interleave import interleave
from ringlet.plugins.backends.cpu.memory import load_bf16s, load_f16s, load_f32s, load_i8s_as_f32s
from ringlet.plugins.backends.cpu.step import step
from ringlet.plugins.backends.cpu.unpack import UNPACK, unpack_f16, unpack_f32, unpack_i8

N_ARGUMENTS = {"step": 2, "draw": 1, "interleave": 12, "multiply": 10, "unpack": 3, "attend": 9}

RING_NUMBERS: dict[str, dict[str, Any]] = {  # what attention has to know of a ring's numbers
    "F32": {"unpack": unpack_f32, "load": load_f32s, "number_bytes": 4},
    "F16": {"unpack": unpack_f16, "load": load_f16s, "number_bytes": 2},
    "Q8": {"unpack": unpack_i8, "load": load_i8s_as_f32s, "number_bytes": 1, "has_scales": True},
}

LOADS = {
    "F32": (load_f32s, 4),
    "F16": (load_f16s, 2),
    "BF16": (load_bf16s, 2),
}  # of a vector; bytes of a weight


def source(name: str) -> Any:
    """The kernel that a unit is compiled from."""
    kind, _, format = name.partition("_")
    if kind == "step":
        return step
    if kind == "draw":
        return draw
    if kind == "interleave":
        return interleave
    if kind == "attend":
        return piece_kernel(**RING_NUMBERS[format])
    if kind == "unpack":
        return UNPACK[format]
    if format in BYTE_FORMATS:
        return byte_product.multiplier(BYTE_FORMATS[format])
    return product.multiplier(UNPACK[format], *LOADS.get(format, ()))


def compile_unit(name: str) -> tuple[str, bytes]:
    """The unit's symbol and its object code."""
    return object_code(source(name), (types.int64,) * N_ARGUMENTS[name.partition("_")[0]])
