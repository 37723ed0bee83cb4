"""What a model's weights are quantised to: the format that the user names, as llama.cpp's own tool understands it.

All matrices but learned positions are quantised that the file holds as F32, F16 or BF16. Those of a format whose blocks
are longer than its rows are whole take a format of 32 weights a block that is no worse; and the matrix that makes the
logits, W_t or the embedding in its place, is kept at six bits or more. (llama.cpp: `llama_tensor_get_type`.)
"""

from __future__ import annotations

from typing import Any

from ringlet.core.errors import RingletError
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.weights import Matrix, ModelWeights

FORMATS = {name: name.upper() for name in ("q8_0", "q4_0", "q4_1", "q4_k", "q6_k")}  # as the user names them
FLOATS = ("F32", "F16", "BF16")
INSTEAD = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}  # for rows that are not whole blocks of 256


def checked_format(wish: Any) -> str:
    """The block format that the user's word names, in either case. Raises RingletError for another word."""
    format = FORMATS.get(wish.lower()) if isinstance(wish, str) else None
    if format is None:
        raise RingletError(f"quantize is {wish!r}: choose from {', '.join(FORMATS)}")
    return format


def planned_formats(weights: ModelWeights, format: str) -> dict[str, str]:
    """Names of the matrices that are quantised → their formats."""
    planned = {}
    for name, matrix in quantizable(weights).items():
        fitting = fitting_format(matrix, _format_of_logits(format) if matrix is weights.W_t else format)
        if fitting is not None:
            planned[name] = fitting
    return planned


def quantizable(weights: ModelWeights) -> dict[str, Matrix]:
    """The matrices that are multiplied and are still floats, by name."""
    found = weights.matrices().items()
    return {name: matrix for name, matrix in found if name != "positions" and matrix.format in FLOATS}


def fitting_format(matrix: Matrix, format: str) -> str | None:
    """The format, or the one in its place, whose blocks the rows are made of; None if neither."""
    for candidate in (format, INSTEAD.get(format)):
        if candidate is not None and matrix.n_columns % BLOCK_FORMATS[candidate].n_weights == 0:
            return candidate
    return None


def _format_of_logits(format: str) -> str:
    return format if format == "Q8_0" else "Q6_K"
