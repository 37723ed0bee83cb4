"""The kernel that interleaves rows: see `interleaving`, which calls it. Importing this module imports Numba."""

from __future__ import annotations

from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import load_i64, load_u16, load_u32, store_u16, store_u32
from ringlet.plugins.backends.cpu.records import PANEL_ROWS


@kernel
def interleave(
    source, row_bytes, n_rows, n_blocks, block_bytes, words, n_words, halves, n_halves, start, stop, out
):  # fmt: skip
    """Write the panels from start to stop of a matrix. source: its rows, row_bytes apart. words, halves: where they
    begin in a block, int64. out: where panel 0 is."""
    for panel in range(start, stop):
        to = out + panel * PANEL_ROWS * n_blocks * block_bytes
        some = min(PANEL_ROWS, n_rows - panel * PANEL_ROWS)
        for block in range(n_blocks):
            first = source + panel * PANEL_ROWS * row_bytes + block * block_bytes
            for index in range(n_words):
                at = first + load_i64(words + 8 * index)
                for row in range(some):
                    store_u32(to + 4 * row, load_u32(at + row * row_bytes))
                for row in range(some, PANEL_ROWS):
                    store_u32(to + 4 * row, 0)
                to += 4 * PANEL_ROWS
            for index in range(n_halves):
                at = first + load_i64(halves + 8 * index)
                for row in range(some):
                    store_u16(to + 2 * row, load_u16(at + row * row_bytes))
                for row in range(some, PANEL_ROWS):
                    store_u16(to + 2 * row, 0)
                to += 2 * PANEL_ROWS
