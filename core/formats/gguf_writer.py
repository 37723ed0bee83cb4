"""A GGUF file of matrices and texts about them, as `core.formats.gguf` reads it.

Source: the GGUF specification (ggml, docs/gguf.md), version 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack
from typing import BinaryIO

import numpy as np

from ringlet.core.formats.gguf_metadata import TEXT, UINT32
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.weights import Matrix

VERSION = 3
ALIGNMENT = 64  # bytes: a cache line, and the widest vector load


def write_gguf(file: BinaryIO, metadata: Mapping[str, str], matrices: Mapping[str, Matrix]) -> None:
    """Write the matrices, in their block formats, as tensors of their names."""
    head = [b"GGUF", pack("<IQQ", VERSION, len(matrices), len(metadata) + 1)]
    head += [_text("general.alignment"), pack("<II", UINT32, ALIGNMENT)]
    for key, value in metadata.items():
        head += [_text(key), pack("<I", TEXT), _text(value)]
    offset = 0
    for name, matrix in matrices.items():
        n_rows, n_columns = matrix.shape
        kind = BLOCK_FORMATS[matrix.format].gguf_type
        head += [_text(name), pack("<IQQIQ", 2, n_columns, n_rows, kind, offset)]
        offset += _aligned(matrix.nbytes)
    _write_aligned(file, b"".join(head))
    for matrix in matrices.values():
        _write_aligned(file, np.ascontiguousarray(matrix.data).data.cast("B"))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return pack("<Q", len(encoded)) + encoded


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _write_aligned(file: BinaryIO, data: bytes | memoryview) -> None:
    file.write(data)
    file.write(bytes(_aligned(len(data)) - len(data)))
