"""Weights in blocks, turned once when a model is loaded so that vectors fit them: PANEL_ROWS rows interleaved.

A panel is PANEL_ROWS rows, block by block. The bytes of a block stay what they are on disk; of each 4-byte word, and
of each 2-byte half, those of all rows lie side by side: first the block's words, PANEL_ROWS × 4 bytes each, then its
halves, PANEL_ROWS × 2 bytes each. So a panel takes as many bytes as its rows, and a vector of a panel's words holds the
same columns of every row: products need no shuffles and no sums across lanes.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ringlet.core.formats.file_bytes import mapped_file_of
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.weights import Matrix
from ringlet.plugins.backends.cpu.records import PANEL_ROWS, address

PART_PANELS = 64  # panels that a thread turns at a time


class BlockParts(NamedTuple):
    """Where the halves and the words of a block begin, in bytes; together they are the whole block."""

    halves: tuple[int, ...]
    words: tuple[int, ...]


def _parts(size: int, *halves: int) -> BlockParts:
    """The parts of a block of `size` bytes: halves where it is said, words in all other places."""
    taken = {at for half in halves for at in (half, half + 1)}
    rest = [at for at in range(size) if at not in taken]
    return BlockParts(halves, tuple(rest[::4]))


# Halves first to last, then words first to last, are what `byte_weights` counts.
BLOCK_PARTS = {
    "Q4_0": _parts(18, 0),
    "Q4_1": _parts(20, 0, 2),
    "Q5_0": _parts(22, 0),
    "Q5_1": _parts(24, 0, 2),
    "Q8_0": _parts(34, 0),
    "IQ4_NL": _parts(18, 0),
    "Q2_K": _parts(84, 80, 82),
    "Q3_K": _parts(110, 108),
    "Q4_K": _parts(144, 0, 2),
    "Q5_K": _parts(176, 0, 2),
    "Q6_K": _parts(210, 208),
    "IQ4_XS": _parts(136, 0, 2),
}


def takes_bytes(matrix: Matrix) -> bool:
    """Whether a matrix is interleaved, and multiplied with byte rows."""
    return is_interleaved(matrix.format)


def is_interleaved(format: str) -> bool:
    """Every format that packs weights in blocks."""
    return BLOCK_FORMATS[format].n_weights > 1


def panel_count(n_rows: int) -> int:
    return -(-n_rows // PANEL_ROWS)


def interleaved_bytes(matrix: Matrix) -> int:
    """Bytes that the matrix takes once interleaved: whole panels."""
    return panel_count(matrix.shape[0]) * PANEL_ROWS * matrix.data.shape[1]


def interleave(matrices: Iterable[Matrix], code: int, n_threads: int) -> list[np.ndarray]:
    """Each matrix interleaved, uint8 (panels, PANEL_ROWS · bytes of a row), in one allocation. Rows that fill up the
    last panel are zeros. What was read through a memory map for it is given back to the system.

    code: address of the unit `interleave`.
    """
    matrices = list(matrices)
    sizes = [interleaved_bytes(matrix) for matrix in matrices]
    starts = np.cumsum([0, *(-(-size // 64) * 64 for size in sizes)])
    memory = np.empty(int(starts[-1]) + 64, np.uint8)
    memory = memory[-address(memory) % 64 :]
    turned = [
        memory[start : start + size].reshape(panel_count(matrix.shape[0]), -1)
        for matrix, start, size in zip(matrices, starts.tolist(), sizes, strict=False)
    ]
    with ThreadPoolExecutor(n_threads) as pool:
        for matrix, out in zip(matrices, turned, strict=True):
            _interleave_one(matrix, out, code, pool)
    return turned


def _interleave_one(matrix: Matrix, out: np.ndarray, code: int, pool: ThreadPoolExecutor) -> None:
    block, parts = BLOCK_FORMATS[matrix.format], BLOCK_PARTS[matrix.format]
    data = matrix.data if matrix.data.strides[1] == 1 else np.ascontiguousarray(matrix.data)
    words, halves = np.array(parts.words, np.int64), np.array(parts.halves, np.int64)
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 12)(code)
    unused = ctypes.byref(ctypes.c_void_p())

    def turn(start: int) -> None:
        stop = min(start + PART_PANELS, len(out))
        source = (address(data), data.strides[0], matrix.shape[0], data.shape[1] // block.n_bytes, block.n_bytes)
        tables = (address(words), len(words), address(halves), len(halves))
        function(unused, unused, *source, *tables, start, stop, address(out))

    list(pool.map(turn, range(0, len(out), PART_PANELS)))
    _give_back(data)


def _give_back(data: np.ndarray) -> None:
    """Tell the system that the pages of a memory-mapped array are not needed for now; they can be read again."""
    base = mapped_file_of(data)
    if base is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    whole = np.frombuffer(base, np.uint8)
    first = address(data) - address(whole)
    start, stop = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE, (first + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if start < stop:
        base.madvise(mmap.MADV_DONTNEED, start, stop - start)
