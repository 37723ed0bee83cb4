"""Plain twins of the kernels, in float64 and straight from the formulas, for tests to compare with."""

from __future__ import annotations

import math

import numpy as np

from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.weights import Matrix
from ringlet.plugins.backends.numpy import NumpyBackend


def silu(x: float) -> float:
    return x / (1 + math.exp(-x)) if x > -700 else 0.0


def gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def relu(x: float) -> float:
    return max(x, 0.0)


def product(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    """out[t, r] = Σ x[t, c]·rows[r, c], (n_tokens, n_rows)."""
    return np.array([[math.fsum(row.astype(float) * token.astype(float)) for row in rows] for token in x])


def rotate(x: np.ndarray, position: int, frequencies: tuple[float, ...], adjacent: bool) -> np.ndarray:
    """Each pair as a complex number times e^{i·position·frequency}."""
    y = x.astype(float)
    n = len(frequencies)
    for pair, frequency in enumerate(frequencies):
        a, b = (2 * pair, 2 * pair + 1) if adjacent else (pair, pair + n)
        turned = complex(y[a], y[b]) * complex(math.cos(position * frequency), math.sin(position * frequency))
        y[a], y[b] = turned.real, turned.imag
    return y


def in_bytes(x: np.ndarray) -> np.ndarray:
    """float32 activations (n, columns) rounded to signed bytes times max|x|/127, 16 columns at a time."""
    runs = x.reshape(len(x), -1, 16)
    largest = np.abs(runs).max(axis=-1, keepdims=True)
    steps = np.rint(runs * np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0))
    return (steps * (largest / np.float32(127))).reshape(x.shape)


class ByteActivations(NumpyBackend):
    """The reference, but what meets a quantised matrix is first rounded to bytes."""

    def project(self, x: np.ndarray, W: Matrix, bias: np.ndarray | None) -> np.ndarray:
        return super().project(in_bytes(x) if BLOCK_FORMATS[W.format].n_weights > 1 else x, W, bias)
