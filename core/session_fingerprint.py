"""A model's fingerprint: quick to take, and another for another model."""

from __future__ import annotations

from dataclasses import fields
from hashlib import blake2b
from typing import Any

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.weights import Matrix, ModelWeights

SAMPLES, SAMPLE_BYTES = 8, 64  # of each matrix


def model_fingerprint(config: ModelConfig, weights: ModelWeights) -> str:
    """32 hexadecimal digits of the configuration, of all vectors, and of samples of all matrices, with their formats.

    It reads a few pages of each matrix, so that a large model that is mapped need not be read whole.
    """
    digest = blake2b(digest_size=16)
    digest.update(repr(config).encode())
    for name, matrix in weights.matrices().items():
        digest.update(f"\0{name} {matrix.format} {matrix.shape}\0".encode())
        digest.update(_samples(matrix))
    for layer in (weights, *weights.layers):
        for name, vector in _vectors(layer):
            digest.update(f"\0{name} {vector.shape}\0".encode() + np.ascontiguousarray(vector).tobytes())
    return digest.hexdigest()


def _samples(matrix: Matrix) -> bytes:
    rows = np.linspace(0, len(matrix.data) - 1, min(SAMPLES, len(matrix.data))).astype(np.int64)
    width = matrix.data.shape[1]
    parts = []
    for index, row in enumerate(rows.tolist()):
        start = max(0, width - SAMPLE_BYTES) * index // max(1, len(rows) - 1)  # another place in each row
        parts.append(matrix.data[row, start : start + SAMPLE_BYTES].tobytes())
    return b"".join(parts)


def _vectors(weights: Any) -> list[tuple[str, np.ndarray]]:
    found = ((field.name, getattr(weights, field.name)) for field in fields(weights))
    return [(name, value) for name, value in found if isinstance(value, np.ndarray)]
