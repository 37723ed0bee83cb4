"""What the threads of a block find out together."""

from __future__ import annotations

import numpy as np
from numba import cuda

from ringlet.plugins.backends.cuda.kernels.declare import block_function
from ringlet.plugins.backends.cuda.kernels.warp import warp_sum


@block_function
def block_sum(value, shared):
    """The sum over the block, for every thread. shared: float32, one for each warp; every thread has to call this."""
    total, warp = warp_sum(value), cuda.threadIdx.x >> 5
    if cuda.threadIdx.x & 31 == 0:
        shared[warp] = total
    cuda.syncthreads()
    total = np.float32(0)
    for index in range(cuda.blockDim.x >> 5):
        total += shared[index]
    cuda.syncthreads()
    return total
