"""Named weights of a loaded model: matrices as they lie on disk (memory-mapped, quantised), vectors in float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ringlet.core.quantization import BLOCK_FORMATS, dequantize


@dataclass(frozen=True, eq=False)
class Matrix:
    """A weight matrix in its stored format, one row an output: ``y = x @ matrix.dequantize().T``.

    It is equal to itself alone, and may be a key of a dict.

    The theory's W_q of shape (d_model, d_k) is this matrix transposed; files keep the output first.

    data: uint8 (n_rows, bytes of a row), each row contiguous, usually a view of a memory map.
    format: a key of `quantization.BLOCK_FORMATS`, such as "F16" or "Q4_K".
    """

    data: np.ndarray
    format: str
    n_columns: int

    def __repr__(self) -> str:
        return f"<Matrix {self.shape} {self.format}>"

    @property
    def shape(self) -> tuple[int, int]:
        return self.data.shape[0], self.n_columns

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def rows(self, start: int, stop: int) -> Matrix:
        """A view of some of the rows."""
        return Matrix(self.data[start:stop], self.format, self.n_columns)

    def dequantize(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """float32 (rows, n_columns) of all rows, or of those that the slice or index array names."""
        return dequantize(self.data[rows], self.format, self.n_columns)

    @classmethod
    def from_float(cls, values: np.ndarray) -> Matrix:
        """A matrix in format F32 or F16 from a float array (n_rows, n_columns)."""
        values = np.ascontiguousarray(values)
        name = {"float32": "F32", "float16": "F16"}[values.dtype.name]
        return cls(values.view(np.uint8).reshape(values.shape[0], -1), name, values.shape[1])

    def __post_init__(self) -> None:
        block = BLOCK_FORMATS[self.format]
        if self.data.dtype != np.uint8 or self.data.ndim != 2:
            raise TypeError("a Matrix holds uint8 data of two dimensions")
        if self.data.shape[1] * block.n_weights != self.n_columns * block.n_bytes:
            raise ValueError(
                f"rows of {self.data.shape[1]} bytes do not hold {self.n_columns} columns of {self.format}"
            )


@dataclass(frozen=True)
class LayerWeights:
    """One block's weights; None where the recipe has none. Vectors are float32; a norm's +1 is already added."""

    W_q: Matrix  # (n_heads·d_k, d_model)
    W_k: Matrix  # (n_kv_heads·d_k, d_model)
    W_v: Matrix  # (n_kv_heads·d_v, d_model)
    W_o: Matrix  # (d_model, n_heads·d_v)
    W_up: Matrix  # (d_ff, d_model)
    W_down: Matrix  # (d_model, d_ff)
    attention_norm: np.ndarray  # (d_model,)
    feed_forward_norm: np.ndarray
    W_gate: Matrix | None = None  # (d_ff, d_model)
    b_q: np.ndarray | None = None
    b_k: np.ndarray | None = None
    b_v: np.ndarray | None = None
    b_o: np.ndarray | None = None
    b_up: np.ndarray | None = None
    b_down: np.ndarray | None = None
    b_gate: np.ndarray | None = None
    attention_norm_bias: np.ndarray | None = None
    attention_post_norm: np.ndarray | None = None
    feed_forward_norm_bias: np.ndarray | None = None
    feed_forward_post_norm: np.ndarray | None = None
    q_norm: np.ndarray | None = None  # (d_k,)
    k_norm: np.ndarray | None = None


@dataclass(frozen=True)
class ModelWeights:
    embedding: Matrix  # (d_vocab, d_model)
    W_t: Matrix  # (d_vocab, d_model); the same object as `embedding` where the model ties them
    final_norm: np.ndarray
    layers: tuple[LayerWeights, ...]
    final_norm_bias: np.ndarray | None = None
    b_t: np.ndarray | None = None  # (d_vocab,)
    positions: Matrix | None = None  # (context_length, d_model), learned

    def __repr__(self) -> str:
        return f"<ModelWeights of {len(self.layers)} layers, {self.nbytes / 1e6:.1f} MB>"

    def matrices(self) -> dict[str, Matrix]:
        """Every matrix by name, layers as "layers.0.W_q"; a tied W_t appears once, as "embedding"."""
        found = {"embedding": self.embedding}
        if self.W_t is not self.embedding:
            found["W_t"] = self.W_t
        if self.positions is not None:
            found["positions"] = self.positions
        for index, layer in enumerate(self.layers):
            for field in fields(layer):
                value = getattr(layer, field.name)
                if isinstance(value, Matrix):
                    found[f"layers.{index}.{field.name}"] = value
        return found

    def with_matrices(self, matrices: Mapping[str, Matrix]) -> ModelWeights:
        """The same weights, but with these matrices in the place of those of the same names; see `matrices`."""
        changed: dict[str, Any] = {name: matrix for name, matrix in matrices.items() if "." not in name}
        if self.W_t is self.embedding and "embedding" in changed:
            changed["W_t"] = changed["embedding"]
        layers: list[dict[str, Any]] = [{} for _ in self.layers]
        for name, matrix in matrices.items():
            if "." in name:
                _, index, field = name.split(".")
                layers[int(index)][field] = matrix
        together = zip(self.layers, layers, strict=True)
        return replace(self, layers=tuple(replace(layer, **held) for layer, held in together), **changed)

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices as stored; the vectors are negligible."""
        return sum(matrix.nbytes for matrix in self.matrices().values())
