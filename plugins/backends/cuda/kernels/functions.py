"""The functions that kernels are written with: the GPU's instructions, or their twins in the simulator."""

from __future__ import annotations

from ringlet.plugins.backends.cuda.shapes import SIMULATED

if SIMULATED:
    from ringlet.plugins.backends.cuda.kernels.twins import *  # noqa: F403
else:
    from ringlet.plugins.backends.cuda.kernels.intrinsics import *  # noqa: F403
