"""A tensor as a file holds it, whichever the file's format."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from ringlet.core.errors import FormatError, quoted
from ringlet.core.quantization import BLOCK_FORMATS, dequantize
from ringlet.core.weights import Matrix

ALIGNMENT = 4  # bytes: kernels read rows by address, as numbers of up to this size


@dataclass(frozen=True)
class StoredTensor:
    """Bytes with a name, a shape and a format; nothing is unpacked until asked for.

    shape: in NumPy's order, outermost first (the reverse of GGUF's own). The last dimension is what a block runs along.
    format: a key of `quantization.BLOCK_FORMATS`, or the file's name of a format that cannot be used as a weight; such
    a tensor is refused when it is used, not before.
    data: uint8, flat, usually a view of a memory map.
    path: the file, for messages.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    data: np.ndarray
    path: Path

    def matrix(self) -> Matrix:
        """As it lies in the file; FormatError unless it has two dimensions and a known format."""
        self._check(2)
        data = self.data
        if data.ctypes.data % ALIGNMENT:
            data = data.copy()
        return Matrix(data.reshape(self.shape[0], -1), self.format, self.shape[1])

    def vector(self) -> np.ndarray:
        """float32 (length,), a copy; FormatError unless it has one dimension and a known format."""
        self._check(1)
        return self.float_array()

    def float_array(self) -> np.ndarray:
        """float32, a copy in the tensor's shape; FormatError unless it has a known format."""
        self._check(len(self.shape))
        n_columns = self.shape[-1] if self.shape else 1
        rows = self.data.reshape(prod(self.shape[:-1]), -1)
        return np.array(dequantize(rows, self.format, n_columns).reshape(self.shape))

    def _check(self, n_dimensions: int) -> None:
        fault = None
        if self.format not in BLOCK_FORMATS:
            fault = f"is stored as {self.format}; supported are {', '.join(BLOCK_FORMATS)}"
        elif len(self.shape) != n_dimensions:
            fault = f"has the shape {quoted(list(self.shape))}, but must have {n_dimensions} dimensions"
        elif 0 in self.shape:
            fault = f"has the shape {quoted(list(self.shape))}: it holds nothing"
        if fault:
            raise FormatError(f"{self.path}: tensor {quoted(self.name)} {fault}")
