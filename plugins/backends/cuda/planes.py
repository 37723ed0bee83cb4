"""How a matrix lies on the GPU: the bytes of the file, but each field of a block format in a plane of its own.

In a file the fields of a block stand together, and a block of 18 or 210 bytes begins anywhere. In planes every field is
aligned, so that a lane loads 16 bytes of quants at once. Nothing is added and nothing is lost; only rows of F32, F16
and BF16 are filled up with zeros to a multiple of ROW_PADDING columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringlet.core.quantization import BLOCK_FORMATS

PLANES = ("quants", "high", "scales", "head")  # the order in which kernels take them
ROW_PADDING = 32  # columns: activations are padded to it, too
ALIGNMENT = 256  # bytes: where a plane begins

Field = tuple[int, int]  # first byte in the block, number of bytes


@dataclass(frozen=True)
class Layout:
    """Of one block format. chunks: parts of a block that a lane takes at once, each with at most 32 bytes of quants.
    halves: runs of 16 weights in a chunk."""

    fields: dict[str, Field]
    chunks: int
    halves: int


LAYOUTS: dict[str, Layout] = {
    "Q4_0": Layout({"quants": (2, 16), "head": (0, 2)}, 1, 2),
    "Q4_1": Layout({"quants": (4, 16), "head": (0, 4)}, 1, 2),
    "Q5_0": Layout({"quants": (6, 16), "high": (2, 4), "head": (0, 2)}, 1, 2),
    "Q5_1": Layout({"quants": (8, 16), "high": (4, 4), "head": (0, 4)}, 1, 2),
    "Q8_0": Layout({"quants": (2, 32), "head": (0, 2)}, 1, 2),
    "IQ4_NL": Layout({"quants": (2, 16), "head": (0, 2)}, 1, 2),
    "Q2_K": Layout({"quants": (16, 64), "scales": (0, 16), "head": (80, 4)}, 4, 4),
    "Q3_K": Layout({"quants": (32, 64), "high": (0, 32), "scales": (96, 12), "head": (108, 2)}, 4, 4),
    "Q4_K": Layout({"quants": (16, 128), "head": (0, 16)}, 8, 2),
    "Q5_K": Layout({"quants": (48, 128), "high": (16, 32), "head": (0, 16)}, 8, 2),
    "Q6_K": Layout({"quants": (0, 128), "high": (128, 64), "scales": (192, 16), "head": (208, 2)}, 8, 2),
    "IQ4_XS": Layout({"quants": (8, 128), "head": (0, 8)}, 8, 2),
}


def is_quantised(format: str) -> bool:
    return format in LAYOUTS


def padded(n: int) -> int:
    """Columns of a row of activations, or of a float matrix, with its padding."""
    return -(-n // ROW_PADDING) * ROW_PADDING


def fields_of(format: str) -> dict[str, Field]:
    """The fields of a block; a float is a block of one field."""
    if is_quantised(format):
        return LAYOUTS[format].fields
    return {"quants": (0, BLOCK_FORMATS[format].n_bytes)}


def plane_row_bytes(format: str, n_columns: int) -> dict[str, int]:
    """Bytes that a row of the matrix takes in each plane."""
    columns = n_columns if is_quantised(format) else padded(n_columns)
    blocks = columns // BLOCK_FORMATS[format].n_weights
    return {name: blocks * size for name, (_, size) in fields_of(format).items()}


def plane_offsets(format: str, n_rows: int, n_columns: int) -> tuple[dict[str, int], int]:
    """Where each plane of a matrix begins in one allocation, and bytes of all."""
    offsets, end = {}, 0
    for name, row_bytes in plane_row_bytes(format, n_columns).items():
        offsets[name] = end
        end += -(-n_rows * row_bytes // ALIGNMENT) * ALIGNMENT
    return offsets, end
