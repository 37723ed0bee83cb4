"""Each kernel that stands between the products against its formula in NumPy."""

from __future__ import annotations

import math

import numpy as np
from on_gpu.arrays import Array, bfloat, in_bytes, launch, padded_rows

from ringlet.plugins.backends.cuda.device import Device
from ringlet.plugins.backends.cuda.planes import padded
from ringlet.plugins.backends.cuda.shapes import (
    ACTIVATIONS,
    ADD,
    BFLOATS,
    BYTES,
    COLUMN_THREADS,
    FLOATS,
    LAYER_NORM,
    NORM_BIAS,
    POST_NORM,
)
from ringlet.plugins.backends.numpy import layer_norm, rms_norm

TOLERANCE = 1e-5  # of the largest number
SIZES = {False: (37, 1003), True: (2, 45)}  # rows and columns


class Forms:
    """Rows that a kernel writes in all forms."""

    def __init__(self, device: Device, n_rows: int, width: int) -> None:
        shape, self.width = (n_rows, padded(width)), width
        self.floats = Array(device, np.zeros(shape, np.float32))
        self.bytes = Array.unwritten(device, *shape, dtype=np.int8)
        self.scales, self.sums = (Array.unwritten(device, n_rows, shape[1] // 16) for _ in range(2))
        self.bfloats = Array.unwritten(device, *shape, dtype=np.uint16)

    @property
    def arguments(self) -> tuple[Array, ...]:
        return self.floats, self.bytes, self.scales, self.sums, self.bfloats

    def error(self, expected: np.ndarray) -> float:
        """Of float32, as a share of what is tolerated; infinite where another form says something else."""
        found = self.floats.values
        widened = (self.bfloats.values.astype(np.uint32) << 16).view(np.float32)
        q, d, sums = in_bytes(found)
        same = np.array_equal(widened, bfloat(found)) and np.abs(self.bytes.values - q.reshape(found.shape)).max() <= 1
        same = same and np.allclose(self.scales.values, d, rtol=1e-6) and not found[:, self.width :].any()
        same = same and np.allclose(self.sums.values, sums, rtol=1e-5, atol=2 * float(d.max()))
        return largest(found[:, : self.width], expected) if same else np.inf


ALL = FLOATS | BYTES | BFLOATS


def largest(found: np.ndarray, expected: np.ndarray) -> float:
    """Error as a share of what is tolerated; infinite for NaN."""
    error = np.nan_to_num(np.abs(found - expected), nan=np.inf).max()
    return float(error / (TOLERANCE * np.abs(expected).max()))


def check_normalise(device: Device, name: str, tiny: bool) -> float:
    n, width = SIZES[tiny]
    rng, worst = np.random.default_rng(1), 0.0
    for kind in (0, LAYER_NORM | NORM_BIAS):
        x, added = (rng.standard_normal((n, width)).astype(np.float32) for _ in range(2))
        post, weight, bias = (rng.uniform(0.5, 2, width).astype(np.float32) for _ in range(3))

        def norm(rows: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, kind: int = kind) -> np.ndarray:
            return layer_norm(rows, weight, bias, 1e-5) if kind else rms_norm(rows, weight, 1e-5)

        residual, out = Array(device, padded_rows(x)), Forms(device, n, width)
        vectors = [Array(device, vector) for vector in (post, weight, bias)]
        flags = kind | ADD | POST_NORM
        rows = (residual, Array(device, padded_rows(added)), *vectors, 0, *out.arguments)
        launch(device, name, (n, 1, 1), *rows, width, 1e-5, flags, ALL)
        expected = x + norm(added, post, None)
        worst = max(worst, out.error(norm(expected, weight, bias)), largest(residual.values[:, :width], expected))
    return worst


def check_hidden(device: Device, name: str, tiny: bool) -> float:
    n, d_ff = SIZES[tiny]
    up, gate = (np.random.default_rng(seed).standard_normal((n, d_ff)) * 4 for seed in range(2))
    erf, worst = np.vectorize(math.erf), 0.0
    formulas = {
        "silu": gate / (1 + np.exp(-gate)),
        "gelu": gate / 2 * (1 + erf(gate / math.sqrt(2))),
        "gelu_tanh": gate / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))),
        "relu": np.maximum(gate, 0),
    }
    both = padded_rows(np.concatenate([up, gate], axis=1).astype(np.float32))
    x, grid = Array(device, both), (-(-padded(d_ff) // COLUMN_THREADS), n, 1)
    for kind, activation in enumerate(ACTIVATIONS):
        out = Forms(device, n, d_ff)
        launch(device, name, grid, x, *out.arguments, d_ff, both.shape[1], kind, 1, ALL)
        worst = max(worst, out.error(formulas[activation] * up))
    return worst


def check_angles(device: Device, name: str, tiny: bool) -> float:
    positions, n_pairs = np.array([0, 1, 777, 131_071, 2**31 - 1], np.int32), 3 if tiny else 64
    frequencies = 1e6 ** (-np.arange(2 * n_pairs).reshape(2, n_pairs) / n_pairs)
    magnitudes = np.array([1.0, 1.3])
    out = Array.unwritten(device, 2, len(positions), 2, n_pairs)
    arrays = [Array(device, values) for values in (positions, frequencies, magnitudes)]
    launch(device, name, (len(positions), 2, 1), *arrays, out, n_pairs)
    angles = positions[None, :, None].astype(float) * frequencies[:, None]
    return largest(out.values, np.stack([np.cos(angles), np.sin(angles)], 2) * magnitudes[:, None, None, None])


def check_soft_cap(device: Device, name: str, tiny: bool) -> float:
    x = np.random.default_rng(0).standard_normal(SIZES[tiny][1]).astype(np.float32) * 50
    on_device = Array(device, x)
    launch(device, name, (-(-len(x) // COLUMN_THREADS), 1, 1), on_device, len(x), 30.0)
    return largest(on_device.values, 30 * np.tanh(x.astype(float) / 30))


def check_repack(device: Device, name: str, tiny: bool) -> float:
    """Bytes 4 to 20 of blocks of 22, side by side."""
    source = np.random.default_rng(0).integers(0, 256, (SIZES[tiny][1], 22), dtype=np.uint8)
    target = Array.unwritten(device, len(source), 16, dtype=np.uint8)
    launch(device, name, (2, 1, 1), Array(device, source), target, len(source), 11, 2, 8, 8)
    return 0.0 if np.array_equal(target.values, source[:, 4:20]) else np.inf
