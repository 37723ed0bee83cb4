"""What the lanes of a warp find out together. Every lane has to call these, and every lane gets the result."""

from __future__ import annotations

from numba import cuda

from ringlet.plugins.backends.cuda.kernels.declare import device
from ringlet.plugins.backends.cuda.shapes import SIMULATED


@device
def larger(a, b):
    """The larger of two float32; NaN if one of them is."""
    return a if a >= b or a != a else b


if SIMULATED:
    from ringlet.plugins.backends.cuda.kernels.twins import (
        quad_max,
        quad_sum,
        run_max,
        run_sum,
        sync_warp,
        warp_max,
        warp_sum,
        warp_sums,
    )
else:

    @device
    def other(value, distance):
        """What the lane has whose number differs by the distance, a power of two."""
        return cuda.shfl_xor_sync(0xFFFFFFFF, value, distance)

    @device
    def quad_sum(value):
        """Over each four lanes."""
        value += other(value, 1)
        return value + other(value, 2)

    @device
    def quad_max(value):
        value = larger(value, other(value, 1))
        return larger(value, other(value, 2))

    @device
    def run_sum(value):
        """Over each 16 lanes."""
        for distance in (8, 4, 2, 1):
            value += other(value, distance)
        return value

    @device
    def run_max(value):
        for distance in (8, 4, 2, 1):
            value = larger(value, other(value, distance))
        return value

    @device
    def warp_sum(value):
        return run_sum(value + other(value, 16))

    @device
    def warp_sums(values, n):
        """Each of the first n of an array in its place."""
        for i in range(n):
            values[i] = warp_sum(values[i])

    @device
    def warp_max(value):
        return run_max(larger(value, other(value, 16)))

    @device
    def sync_warp():
        """What lanes of the warp wrote to shared memory is there for all of them."""
        cuda.syncwarp()


__all__ = ["larger", "quad_max", "quad_sum", "run_max", "run_sum", "sync_warp", "warp_max", "warp_sum", "warp_sums"]
