"""Block formats of weights: how many weights share a block of how many bytes, and their values in float32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BlockFormat:
    n_weights: int  # weights in a block
    n_bytes: int  # bytes of a block
    gguf_type: int  # the number GGUF gives the format


BLOCK_FORMATS: dict[str, BlockFormat] = {
    "F32": BlockFormat(1, 4, 0),
    "F16": BlockFormat(1, 2, 1),
    "Q4_0": BlockFormat(32, 18, 2),
    "Q4_1": BlockFormat(32, 20, 3),
    "Q5_0": BlockFormat(32, 22, 6),
    "Q5_1": BlockFormat(32, 24, 7),
    "Q8_0": BlockFormat(32, 34, 8),
    "Q2_K": BlockFormat(256, 84, 10),
    "Q3_K": BlockFormat(256, 110, 11),
    "Q4_K": BlockFormat(256, 144, 12),
    "Q5_K": BlockFormat(256, 176, 13),
    "Q6_K": BlockFormat(256, 210, 14),
    "IQ4_NL": BlockFormat(32, 18, 20),
    "IQ4_XS": BlockFormat(256, 136, 23),
    "BF16": BlockFormat(1, 2, 30),
}


def dequantize(data: np.ndarray, format: str, n_columns: int) -> np.ndarray:
    """float32 (n_rows, n_columns) from uint8 (n_rows, bytes of a row) in the named block format."""
    if format == "F32":
        return np.ascontiguousarray(data).view(np.float32).reshape(len(data), n_columns)
    if format == "F16":
        return np.ascontiguousarray(data).view(np.float16).astype(np.float32).reshape(len(data), n_columns)
    if format == "BF16":
        high = np.ascontiguousarray(data).view(np.uint16).astype(np.uint32) << 16
        return high.view(np.float32).reshape(len(data), n_columns)
    raise KeyError(format)
