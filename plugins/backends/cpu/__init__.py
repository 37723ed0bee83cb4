"""The backend `cpu`: Numba kernels, one idea a file.

backend → tables, scratch, team, machine_code → units → step → attention, elementwise, products → vectors, memory.
"""

from __future__ import annotations

from ringlet.core.hookspecs import Register, hookimpl
from ringlet.plugins.backends.cpu.backend import CpuBackend


@hookimpl
def register_backends(register: Register) -> None:
    register(CpuBackend)
