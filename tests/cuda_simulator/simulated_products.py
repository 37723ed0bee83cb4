"""Every product, lookup and block format in the simulator, against core/quantization.py and plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
from naive import in_bytes
from random_models import random_blocks
from simulated_gpu import FLOATS, QUANTISED, Array, bfloat, device, float_matrix, launch, padded_rows, placed

from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.weights import Matrix
from ringlet.plugins.backends.cuda import shapes
from ringlet.plugins.backends.cuda.kernels import tile_products
from ringlet.plugins.backends.cuda.planes import padded
from ringlet.plugins.backends.cuda.products import Products
from ringlet.plugins.backends.cuda.scratch import Rows
from ringlet.plugins.backends.cuda.shapes import ACCUMULATE, BFLOATS, BYTES
from ringlet.plugins.backends.cuda.shapes import FLOATS as FLOATS_FORM
from ringlet.plugins.backends.cuda.weights import Product


def blocks(name: str, n_rows: int, n_columns: int) -> Matrix:
    return Matrix(random_blocks(name, n_rows, n_columns, scale=1e-2), name, n_columns)


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # random scales are infinite or NaN here and there
def test_rows_are_the_reference_to_the_last_bit(name: str) -> None:
    block, n_columns = BLOCK_FORMATS[name], 512
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, (5, n_columns // block.n_weights * block.n_bytes), dtype=np.uint8)
    matrix = Matrix(data, name, n_columns)
    on_gpu, _kept = placed(matrix)
    indices, out = Array(np.array([4, 0, 3, 3], np.int32)), Array.unwritten(4, n_columns)
    launch(f"lookup-{name}", (4, 1, 1), *on_gpu.planes, indices, out, on_gpu.n_blocks, n_columns, 1.0, 0)
    np.testing.assert_array_equal(out.values, matrix.dequantize(np.array([4, 0, 3, 3])))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("n_columns", [1, 21, 64])
def test_rows_of_numbers(name: str, n_columns: int) -> None:
    values = np.random.default_rng(3).standard_normal((6, n_columns)).astype(np.float32) * 100
    matrix, width = float_matrix(values, name), padded(n_columns)
    on_gpu, _kept = placed(matrix)
    before = np.full((3, width), 0.25, np.float32)
    indices, out = Array(np.array([5, 1, 5], np.int32)), Array(before)
    launch(f"lookup-{name}", (3, 1, 1), *on_gpu.planes, indices, out, on_gpu.n_blocks, n_columns, 2.0, ACCUMULATE)
    np.testing.assert_array_equal(out.values[:, :n_columns], matrix.dequantize()[[5, 1, 5]] * 2 + np.float32(0.25))
    assert (out.values[:, n_columns:] == 0.25).all()


def activations(n_tokens: int, n_columns: int) -> np.ndarray:
    """Some rows of numbers of very different sizes, a run of zeros among them."""
    rng = np.random.default_rng(n_tokens)
    x = rng.standard_normal((n_tokens, n_columns)).astype(np.float32)
    x[:, : min(16, n_columns)] = 0
    return x * np.float32(10) ** rng.integers(-3, 3, (n_tokens, 1))


def in_form(x: np.ndarray, form: int) -> tuple[Rows, list[Array]]:
    """The rows as a product takes them."""
    rows = padded_rows(x)
    if form == FLOATS_FORM:
        arrays = {"floats": Array(rows)}
    elif form == BFLOATS:
        arrays = {"bfloats": Array(np.ascontiguousarray(bfloat(rows).view(np.uint16)[:, 1::2]))}
    else:
        runs = rows.reshape(len(x), -1, 16)
        d = np.abs(runs).max(-1) / np.float32(127)
        q = np.rint(np.divide(runs, d[..., None], out=np.zeros_like(runs), where=d[..., None] > 0)).astype(np.int8)
        sums = (d * q.sum(-1)).astype(np.float32)
        arrays = {"bytes": Array(q), "scales": Array(d), "sums": Array(sums)}
    names = ("floats", "bytes", "scales", "sums", "bfloats")
    return Rows(*(arrays[name].address if name in arrays else 0 for name in names)), list(arrays.values())


def check_product(matrix: Matrix, n_tokens: int, form: int, multiply: object, tolerance: float = 2e-6) -> None:
    """x·W + b, stored, and added to what is there, beside columns that are not the product's."""
    rng = np.random.default_rng(5)
    n_rows, n_columns = matrix.shape
    x, bias = activations(n_tokens, n_columns), rng.standard_normal(n_rows).astype(np.float32)
    W = matrix.dequantize().astype(float)
    if form == BYTES:
        seen = in_bytes(padded_rows(x))[:, :n_columns].astype(float)
    elif form == BFLOATS:
        seen, W = bfloat(x).astype(float), bfloat(W.astype(np.float32)).astype(float)
    else:
        seen = x.astype(float)
    expected, stride = seen @ W.T, n_rows + 3
    size = np.abs(seen) @ np.abs(W.T) + 1e-6  # what rounding is measured by
    rows, _arrays = in_form(x, form)
    for with_bias in (None, bias):
        on_gpu, _kept = placed(matrix, with_bias)
        product = Product((on_gpu,), n_rows)
        added = 0 if with_bias is None else with_bias
        out = Array(np.full((n_tokens, stride), 0.5, np.float32))
        multiply(product, rows, out.address, stride, n_tokens, 0)
        assert (np.abs(out.values[:, :n_rows] - (expected + added)) <= tolerance * (size + np.abs(added))).all()
        multiply(product, rows, out.address, stride, n_tokens, ACCUMULATE)
        assert (np.abs(out.values[:, :n_rows] - 2 * (expected + added)) <= 2 * tolerance * (size + np.abs(added))).all()
        assert (out.values[:, n_rows:] == 0.5).all()


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize(("n_rows", "n_tokens"), [(5, 1), (1, 2), (3, 3), (4, 8)])
def test_products_of_bytes(name: str, n_rows: int, n_tokens: int) -> None:
    n_columns = 96 if BLOCK_FORMATS[name].n_weights == 32 and n_tokens > 1 else 768
    products = Products(device())
    assert products.form(name, n_tokens) == BYTES
    check_product(blocks(name, n_rows, n_columns), n_tokens, BYTES, products.multiply)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("n_rows", "n_columns", "n_tokens"), [(5, 21, 1), (1, 300, 2), (3, 1, 4), (2, 40, 11)])
def test_products_of_numbers(name: str, n_rows: int, n_columns: int, n_tokens: int) -> None:
    values = np.random.default_rng(3).standard_normal((n_rows, n_columns)).astype(np.float32)
    check_product(float_matrix(values, name), n_tokens, FLOATS_FORM, Products(device()).multiply)


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize(("n_rows", "n_tokens"), [(5, 9), pytest.param(17, 18, marks=pytest.mark.slow)])
def test_products_on_tensor_cores(name: str, n_rows: int, n_tokens: int) -> None:
    """Columns that are no multiple of a step, where the format has such."""
    n_columns = 160 if BLOCK_FORMATS[name].n_weights == 32 else 256
    products = Products(device())
    assert products.form(name, n_tokens) == BFLOATS
    check_product(blocks(name, n_rows, n_columns), n_tokens, BFLOATS, products.multiply, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("tile", ["flat", "small", "large"])
@pytest.mark.parametrize("name", ["Q4_0", "Q2_K", "Q6_K"])
def test_the_tiles_that_gpus_use(name: str, tile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows and tokens than one tile, so that its edges and every warp are seen."""
    shape = shapes.TILES[tile]
    products = Products(device())
    monkeypatch.setattr(products, "_tile", lambda n_rows, n_tokens: tile)
    n_columns = 96 if BLOCK_FORMATS[name].n_weights == 32 else 256
    check_product(blocks(name, shape.rows + 3, n_columns), shape.tokens + 2, BFLOATS, products.multiply, 1e-5)


def test_bytes_become_floats_exactly() -> None:
    words = np.arange(256, dtype=np.uint8).view(np.uint32)
    found = [tile_products.byte_as_float(word, i) for word in words for i in range(4)]
    np.testing.assert_array_equal(found, np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32))
