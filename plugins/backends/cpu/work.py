"""How the threads of a step share its work: whoever is free takes the next share of a piece of work.

A piece of work has two counters, on cache lines of their own: shares taken, and shares done. All go on to the next
piece when all shares are done, whoever did them: a thread that the system has put aside without a share is not waited
for, and runs past what is done when it comes back. Waiting spins a while and then gives way to other threads.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import I64
from ringlet.plugins.backends.cpu.records import DONE
from ringlet.plugins.backends.cpu.simd import I32
from ringlet.plugins.backends.cpu.target import IS_ARM64, IS_X86, YIELD

SPINS = 2000  # some tens of microseconds, longer than threads at work are apart
SHARES_A_THREAD = 4  # so that a slow thread holds up the others by little
ROWS_A_SHARE = 32  # of weights, or a multiple of it: whole runs of bytes and whole panels


def _pointer(builder, address):
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


def _call_void(builder, name: str, *arguments) -> None:
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
def take(work):
    """The number of the next share; beyond the last there are none left."""
    return atomic_add(work, 1)


@kernel
def finish(work):
    """A share is done."""
    atomic_add(work + DONE, 1)


@kernel
def wait(job, work, n_shares):
    """Wait until all shares are done; what was written for them is then seen by all."""
    spins = 0
    while atomic_load(work + DONE) < n_shares and atomic_load(job.abandoned) == 0:
        spins += 1
        if spins < SPINS:
            pause()
        else:
            give_way()


@kernel
def share_size(n, unit, n_threads):
    """How many of n things make a share: a multiple of the unit; one share for a thread alone."""
    if n_threads == 1:
        return max(n, 1)
    shares = n_threads * SHARES_A_THREAD * unit
    return -(-n // shares) * unit


@kernel
def share_count(n, size):
    return -(-n // size)
