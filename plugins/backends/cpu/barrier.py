"""Where the threads of a step meet: a barrier of atomics that spins a while and then gives way to other threads.

It is three int64 on cache lines of their own: arrivals, meetings so far, and whether the step is abandoned, in which
case nobody waits any more: every thread runs through the rest, whose results nobody reads.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import I64
from ringlet.plugins.backends.cpu.records import ABANDONED, MEETINGS
from ringlet.plugins.backends.cpu.simd import I32
from ringlet.plugins.backends.cpu.target import IS_ARM64, IS_X86, YIELD

SPINS = 4000  # some tens of microseconds, longer than threads at work are apart


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.PointerType(I64))


@intrinsic
def atomic_add(typingctx, address, value):
    """Add to an int64; returns what was there before."""

    def generate(context, builder, sig, args):
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def atomic_load(typingctx, address):
    def generate(context, builder, sig, args):
        return builder.load_atomic(_pointer(builder, args[0]), "seq_cst", 8)

    return types.int64(types.int64), generate


@intrinsic
def atomic_store(typingctx, address, value):
    def generate(context, builder, sig, args):
        builder.store_atomic(args[1], _pointer(builder, args[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _call_void(builder: Any, name: str, *arguments: Any) -> None:
    function_type = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, function_type, name)
    builder.call(function, arguments)


@intrinsic
def pause(typingctx):
    """Tell the CPU that this thread only waits."""

    def generate(context, builder, sig, args):
        if IS_X86:
            _call_void(builder, "llvm.x86.sse2.pause")
        elif IS_ARM64:
            _call_void(builder, "llvm.aarch64.hint", I32(1))
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def give_way(typingctx):
    """Let the operating system run another thread."""

    def generate(context, builder, sig, args):
        if YIELD is not None:
            _call_void(builder, YIELD)
        return context.get_dummy_value()

    return types.void(), generate


@kernel
def meet(barrier, n_threads):
    """Wait until all threads have come here; what they wrote before is then seen by all."""
    meetings = atomic_load(barrier + MEETINGS)
    if atomic_add(barrier, 1) == n_threads - 1:
        atomic_store(barrier, 0)
        atomic_add(barrier + MEETINGS, 1)
        return
    spins = 0
    while atomic_load(barrier + MEETINGS) == meetings and atomic_load(barrier + ABANDONED) == 0:
        spins += 1
        if spins < SPINS:
            pause()
        else:
            give_way()
