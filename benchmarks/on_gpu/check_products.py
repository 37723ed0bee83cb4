"""Lookups and products of one kernel each against NumPy in float64."""

from __future__ import annotations

import numpy as np
from on_gpu.arrays import Array, Placed, bfloat, bfloat_bits, in_bytes, launch, padded_rows

from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.weights import Matrix
from ringlet.plugins.backends.cuda.device import Device
from ringlet.plugins.backends.cuda.planes import is_quantised
from ringlet.plugins.backends.cuda.shapes import ACCUMULATE, BIAS, TILES, product_rows, product_warps
from ringlet.testing.random_models import random_blocks

TOLERANCE = {"byte_product": 1e-5, "float_product": 1e-5, "tile_product": 1e-4}  # of Σ|w·x|


def sample(format: str, n_rows: int, tiny: bool) -> Matrix:
    """Rows whose columns are no multiple of what a warp takes, where the format has such."""
    n_columns = {1: 76, 32: 96 if tiny else 736, 256: 256 if tiny else 768}[BLOCK_FORMATS[format].n_weights]
    if is_quantised(format):
        return Matrix(random_blocks(format, n_rows, n_columns, scale=1e-2), format, n_columns)
    values = np.random.default_rng(3).standard_normal((n_rows, n_columns)).astype(np.float32)
    if format == "BF16":
        return Matrix(bfloat_bits(values).view(np.uint8), format, n_columns)
    return Matrix.from_float(values.astype({"F32": np.float32, "F16": np.float16}[format]))


def check_lookup(device: Device, name: str, tiny: bool) -> float:
    """0 where every row is the reference to the last bit, else infinite."""
    matrix = sample(name.split("-")[1], 7, tiny)
    placed, rows = Placed(device, matrix), np.array([6, 0, 3, 3], np.int32)
    indices = Array(device, rows)
    # rows of activations are as wide as the model; floats may be no multiple of 32
    stride = placed.matrix.n_blocks if not is_quantised(matrix.format) else matrix.n_columns
    out = Array(device, np.zeros((len(rows), stride), np.float32))
    sizes = (placed.matrix.n_blocks, matrix.n_columns, 1.0, 0)
    launch(device, name, (len(rows), 1, 1), *placed.matrix.planes, indices, out, *sizes)
    found, expected = out.values[:, : matrix.n_columns], matrix.dequantize(rows)
    return 0.0 if np.array_equal(found, expected) else np.inf


def check_product(device: Device, name: str, tiny: bool) -> float:
    """The largest error, as a share of what is tolerated: with a bias, then added to what is there."""
    family, format, kind = name.split("-")
    tile, at_once = TILES.get(kind), 0 if kind in TILES else int(kind)
    n_tokens = at_once + 1 if tile is None else tile.tokens + 2
    n_rows = (5 if tiny else 261) if tile is None else tile.rows + 3
    matrix, rng = sample(format, n_rows, tiny), np.random.default_rng(n_tokens)
    x = padded_rows(rng.standard_normal((n_tokens, matrix.n_columns)).astype(np.float32))
    bias = rng.standard_normal(n_rows).astype(np.float32)
    W = matrix.dequantize().astype(float)
    if family == "byte_product":
        q, d, sums = in_bytes(x)
        seen = (q * np.repeat(d, 16, axis=1).reshape(q.shape)).astype(float).reshape(len(x), -1)
        arrays = [Array(device, values) for values in (q, d, sums)]
    elif family == "tile_product":
        seen, W = bfloat(x).astype(float), bfloat(W.astype(np.float32)).astype(float)
        arrays = [Array(device, bfloat_bits(x))]
    else:
        seen, arrays = x.astype(float), [Array(device, x)]
    seen = seen[:, : matrix.n_columns]
    size = np.abs(seen) @ np.abs(W.T) + np.abs(bias) + 1e-6
    of_bias = Array(device, bias)
    placed, stride = Placed(device, matrix, of_bias), n_rows + 3
    out = Array(device, np.full((n_tokens, stride), 0.5, np.float32))
    if tile is None:
        grid = (-(-n_rows // (product_warps(format, at_once) * product_rows(at_once))), -(-n_tokens // at_once), 1)
    else:
        grid = (-(-n_rows // tile.rows), -(-n_tokens // tile.tokens), 1)
    planes = placed.matrix.planes if is_quantised(format) else placed.matrix.planes[:1]
    worst, expected = 0.0, seen @ W.T + bias
    for times, flags in ((1, BIAS), (2, BIAS | ACCUMULATE)):
        sizes = (n_rows, placed.matrix.n_blocks, n_tokens, stride, flags)
        launch(device, name, grid, *planes, *arrays, of_bias, out, *sizes)
        found = out.values
        error = np.abs(found[:, :n_rows] - times * expected) / (times * size)
        untouched = (found[:, n_rows:] == 0.5).all()
        worst = max(worst, float(np.nan_to_num(error, nan=np.inf).max()) / TOLERANCE[family]) if untouched else np.inf
    return worst
