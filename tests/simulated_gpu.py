"""What the simulated tests share: memory, launches, and references of single kernels.

These files run in a process of their own, where NUMBA_ENABLE_CUDASIM is set before Numba is imported; see
tests/test_cuda_simulator.py, which starts it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache

import numpy as np
from random_models import HALVES, random_blocks, random_model

from ringlet.core.config import LayerConfig
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.weights import Matrix
from ringlet.plugins.backends.cuda.backend import CudaBackend
from ringlet.plugins.backends.cuda.device import Memory
from ringlet.plugins.backends.cuda.planes import padded
from ringlet.plugins.backends.cuda.simulated import SimulatedDevice
from ringlet.plugins.backends.cuda.weights import Arena, DeviceMatrix, Upload, _matrix

assert os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", "start these through tests/test_cuda_simulator.py"


@cache
def device() -> SimulatedDevice:
    return SimulatedDevice()


class Array:
    """An array in the simulated GPU's memory, which begins as the given one. Filled with NaN where it holds floats and
    nothing is given: what no kernel has written shows."""

    def __init__(self, values: np.ndarray) -> None:
        self.shape, self.dtype = values.shape, values.dtype
        self._memory = Memory(device(), max(1, values.nbytes))
        self.address = self._memory.address
        device().upload(values, self.address)

    @classmethod
    def unwritten(cls, *shape: int, dtype: type = np.float32) -> Array:
        return cls(np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 77, dtype))

    @property
    def values(self) -> np.ndarray:
        out = np.zeros(int(np.prod(self.shape)) * self.dtype.itemsize, np.uint8)
        device().download(self.address, out)
        return out.view(self.dtype).reshape(self.shape)


def placed(matrix: Matrix, bias: np.ndarray | None = None) -> tuple[DeviceMatrix, list[object]]:
    """A matrix in planes, and what has to be kept while it is used."""
    counted = Arena()
    _matrix(counted, [matrix])
    memory = Memory(device(), counted.end)
    passage = Memory(device(), max(1, matrix.data.nbytes))
    upload = Upload(device(), memory.address, passage.address, lambda n_bytes: None)
    kept: list[object] = [memory]
    address = 0
    if bias is not None:
        kept.append(vector := Array(bias))
        address = vector.address
    return _matrix(upload, [matrix], address), kept


def launch(name: str, grid: tuple[int, int, int], *arguments: object) -> None:
    """A launch whose arrays may be given as Arrays."""
    device().launch(name, grid, [a.address if isinstance(a, Array) else a for a in arguments])


def padded_rows(x: np.ndarray) -> np.ndarray:
    """float32 rows with zeros up to a multiple of 32 columns."""
    out = np.zeros((len(x), padded(x.shape[1])), np.float32)
    out[:, : x.shape[1]] = x
    return out


def bfloat(x: np.ndarray) -> np.ndarray:
    """float32 rounded to bfloat16, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def float_matrix(values: np.ndarray, format: str) -> Matrix:
    """A matrix of F32, F16 or BF16."""
    if format == "BF16":
        data = np.ascontiguousarray(bfloat(values).view(np.uint16)[:, 1::2])
        return Matrix(data.view(np.uint8), format, values.shape[1])
    return Matrix.from_float(values.astype({"F32": np.float32, "F16": np.float16}[format]))


QUANTISED = [name for name, block in BLOCK_FORMATS.items() if block.n_weights > 1]
FLOATS = [name for name, block in BLOCK_FORMATS.items() if block.n_weights == 1]


def made(*model: object) -> CudaBackend:
    return CudaBackend(*model, device=device())  # type: ignore[arg-type]


def quantised_model() -> tuple:
    """A model whose matrices differ in format inside a layer, with every form of activations."""
    config, weights = random_model(
        d_model=64, d_ff=256, d_k=32, d_v=32, n_heads=2, n_kv_heads=1, layers=(LayerConfig(None, HALVES),)
    )

    def blocks(matrix: Matrix, name: str) -> Matrix:
        return Matrix(random_blocks(name, matrix.shape[0], matrix.n_columns, scale=5e-3), name, matrix.n_columns)

    layer = weights.layers[0]
    formats = {"W_q": "Q4_0", "W_k": "Q4_0", "W_v": "Q8_0", "W_up": "Q5_1", "W_gate": "Q4_1", "W_down": "Q6_K"}
    changed = {name: blocks(getattr(layer, name), format) for name, format in formats.items()}
    return config, replace(weights, layers=(replace(layer, **changed),), embedding=blocks(weights.embedding, "Q5_0"))
