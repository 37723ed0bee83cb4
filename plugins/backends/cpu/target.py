"""What the CPU that Numba compiles for can do: NUMBA_CPU_NAME and NUMBA_CPU_FEATURES decide, else it is this one."""

from __future__ import annotations

import llvmlite.binding as llvm
from numba.core.registry import cpu_target

TRIPLE, CPU_NAME, _features = cpu_target.target_context.codegen().magic_tuple()
FEATURES = frozenset(name[1:] for name in _features.split(",") if name.startswith("+"))

IS_X86 = TRIPLE.startswith(("x86_64", "i386", "i686"))
IS_ARM64 = TRIPLE.startswith(("aarch64", "arm64"))

LANES = 16 if "avx512f" in FEATURES else 8  # float32 values in a vector; LLVM splits what is too wide for the CPU

# Without them LLVM calls library functions for halves that are not there.
HAS_HALVES = IS_ARM64 or "f16c" in FEATURES

# How a waiting thread gives way to others; where neither is found it only spins.
YIELD = next((name for name in ("sched_yield", "SwitchToThread") if llvm.address_of_symbol(name)), None)
