"""The backend `cuda`: kernels in Python for NVIDIA GPUs, compiled by numba-cuda, one idea a file.

backend → weights, rings, scratch, planning, step → products → device → kernels. Only `kernels` imports Numba.
"""

from __future__ import annotations

from ringlet.core.hookspecs import Register, hookimpl
from ringlet.plugins.backends.cuda.backend import CudaBackend


@hookimpl
def register_backends(register: Register) -> None:
    register(CudaBackend)
