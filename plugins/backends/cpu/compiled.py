"""The compiled step. Importing this module imports Numba."""

from __future__ import annotations

from numba import types

from ringlet.plugins.backends.cpu.compiling import kept
from ringlet.plugins.backends.cpu.step import step
from ringlet.plugins.backends.cpu.team import Step


def compiled_step() -> Step:
    """`step` as machine code for this CPU, compiled or from the user's cache."""
    return kept(step, (types.int64, types.int64))
