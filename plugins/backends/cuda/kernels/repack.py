"""From the bytes of a file to planes: see `planes`."""

from __future__ import annotations

from numba import cuda

from ringlet.plugins.backends.cuda.kernels.declare import Int, Shorts, kernel
from ringlet.plugins.backends.cuda.shapes import COLUMN_THREADS


@kernel("repack", COLUMN_THREADS)
def repack(
    source: Shorts,  # (n_blocks, from_block)
    target: Shorts,  # (n_blocks, to_block)
    n_blocks: Int,
    from_block: Int,  # everything is counted in two bytes
    first: Int,
    count: Int,
    to_block: Int,
) -> None:
    """Copy a field, `count` from the `first` of each block on, to where the target's block begins."""
    step = cuda.gridDim.x * cuda.blockDim.x
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, n_blocks * count, step):
        block, place = i // count, i % count
        target[block * to_block + place] = source[block * from_block + first + place]
