"""Arrays and matrices in the memory of a device, for launching single kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringlet.core.weights import Matrix
from ringlet.plugins.backends.cuda.device import Device, Grid, Memory
from ringlet.plugins.backends.cuda.planes import padded
from ringlet.plugins.backends.cuda.weights import Arena, DeviceMatrix, Upload, _matrix


class Array:
    """An array on a device, which begins as the given one."""

    def __init__(self, device: Device, values: np.ndarray) -> None:
        self._device, self.shape, self.dtype = device, values.shape, values.dtype
        self._memory = Memory(device, max(1, values.nbytes))
        self.address = self._memory.address
        device.upload(values, self.address)
        device.synchronise()

    @classmethod
    def unwritten(cls, device: Device, *shape: int, dtype: type = np.float32) -> Array:
        """Filled with NaN where it holds floats: what no kernel writes shows."""
        return cls(device, np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 77, dtype))

    @property
    def values(self) -> np.ndarray:
        out = self._device.host_array(int(np.prod(self.shape)) * self.dtype.itemsize)
        self._device.download(self.address, out)
        self._device.synchronise()
        return out.view(self.dtype).reshape(self.shape).copy()


class Placed:
    """A matrix on a device: `matrix` is what products take."""

    def __init__(self, device: Device, matrix: Matrix, bias: Array | None = None) -> None:
        counted = Arena()
        _matrix(counted, [matrix])
        self._memory = Memory(device, counted.end)
        passage = Memory(device, max(1, matrix.data.nbytes))
        upload = Upload(device, self._memory.address, passage.address, lambda n_bytes: None)
        self.matrix: DeviceMatrix = _matrix(upload, [matrix], 0 if bias is None else bias.address)
        device.synchronise()


def launch(device: Device, name: str, grid: Grid, *arguments: object) -> None:
    """A launch whose arrays may be given as Arrays."""
    values: Sequence = [a.address if isinstance(a, Array) else a for a in arguments]
    device.launch(name, grid, values)


def bfloat(x: np.ndarray) -> np.ndarray:
    """float32 rounded to bfloat16, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def bfloat_bits(x: np.ndarray) -> np.ndarray:
    """The same as uint16."""
    return (bfloat(x).view(np.uint32) >> 16).astype(np.uint16)


def in_bytes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, padded, as products in bytes take them: int8, and for each 16 columns the scale d and d·Σq."""
    runs = x.reshape(len(x), -1, 16)
    d = np.abs(runs).max(-1) / np.float32(127)
    q = np.rint(np.divide(runs, d[..., None], out=np.zeros_like(runs), where=d[..., None] > 0)).astype(np.int8)
    return q, d, (d * q.sum(-1, dtype=np.int32)).astype(np.float32)


def padded_rows(x: np.ndarray) -> np.ndarray:
    """float32 rows with zeros up to a multiple of 32 columns."""
    out = np.zeros((len(x), padded(x.shape[1])), np.float32)
    out[:, : x.shape[1]] = x
    return out
