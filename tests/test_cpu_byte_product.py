"""Products in bytes against the same sums in float64 over the weights that the reference unpacks."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from random_models import random_blocks

from ringlet.core.quantization import BLOCK_FORMATS, dequantize
from ringlet.core.weights import Matrix
from ringlet.plugins.backends.cpu import byte_rows, records
from ringlet.plugins.backends.cpu.byte_product import MANY
from ringlet.plugins.backends.cpu.byte_weights import BYTE_FORMATS
from ringlet.plugins.backends.cpu.compiling import entry_point
from ringlet.plugins.backends.cpu.interleaving import BLOCK_PARTS, interleave
from ringlet.plugins.backends.cpu.machine_code import machine_code
from ringlet.plugins.backends.cpu.units import N_ARGUMENTS


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@entry_point
def fill_byte_row(x, n_columns, row):
    middle = n_columns // 32 // 2  # a row may be filled in parts
    byte_rows.fill_byte_row(x, n_columns, middle, n_columns // 32, row)
    byte_rows.fill_byte_row(x, n_columns, 0, middle, row)


def byte_rows_of(x: np.ndarray) -> np.ndarray:
    """uint8 (tokens, bytes of a byte row)."""
    n_columns = x.shape[1]
    rows = np.zeros((len(x), records.byte_row_bytes(n_columns)), np.uint8)
    for values, row in zip(x, rows, strict=True):
        fill_byte_row(address(values), n_columns, address(row))
    return rows


def values_of(rows: np.ndarray, n_columns: int) -> np.ndarray:
    """float64 activations that byte rows stand for."""
    q = rows[:, :n_columns].view(np.int8).reshape(len(rows), n_columns // 16, 16)
    d = rows[:, n_columns : 2 * n_columns].copy().view(np.float32)[:, ::4]
    return (q * d[:, :, None].astype(np.float64)).reshape(len(rows), n_columns)


@pytest.fixture(scope="module")
def codes():
    """Addresses of the compiled units."""
    return machine_code(["interleave", *(f"multiply_{name}" for name in BYTE_FORMATS)])


def interleaved(matrix: Matrix) -> np.ndarray:
    """The same in plain NumPy: uint8 (panels, bytes of a panel)."""
    block, parts = BLOCK_FORMATS[matrix.format], BLOCK_PARTS[matrix.format]
    rows = np.zeros((-(-matrix.shape[0] // 16) * 16, matrix.data.shape[1]), np.uint8)
    rows[: matrix.shape[0]] = matrix.data
    blocks = rows.reshape(-1, 16, matrix.data.shape[1] // block.n_bytes, block.n_bytes).transpose(0, 2, 1, 3)
    pieces = [blocks[..., at : at + size] for size, places in ((4, parts.words), (2, parts.halves)) for at in places]
    return np.concatenate([p.reshape(*p.shape[:2], -1) for p in pieces], axis=2).reshape(len(blocks), -1)


@pytest.mark.parametrize("name", BYTE_FORMATS)
@pytest.mark.parametrize("n_rows", [1, 15, 16, 17, 2100])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_rows_are_interleaved(codes, name: str, n_rows: int, n_threads: int) -> None:
    n_columns = 3 * max(32, BLOCK_FORMATS[name].n_weights)
    matrices = [Matrix(random_blocks(name, n, n_columns), name, n_columns) for n in (n_rows, 3)]
    for matrix, out in zip(matrices, interleave(matrices, codes["interleave"], n_threads), strict=True):
        np.testing.assert_array_equal(out, interleaved(matrix))


@pytest.mark.parametrize("name", BYTE_FORMATS)
def test_parts_are_the_whole_block(name: str) -> None:
    parts = BLOCK_PARTS[name]
    covered = [at + i for size, places in ((4, parts.words), (2, parts.halves)) for at in places for i in range(size)]
    assert sorted(covered) == list(range(BLOCK_FORMATS[name].n_bytes))


@pytest.mark.parametrize("name", BYTE_FORMATS)
@pytest.mark.parametrize(
    ("n_rows", "n_tokens"),
    [(1, 1), (7, 2), (16, 4), (53, MANY - 1), (32, MANY), (23, MANY + 1), (15, 2 * MANY + 3), (40, 1), (20, 0)],
)
def test_products_are_those_of_the_unpacked_weights(codes, name: str, n_rows: int, n_tokens: int) -> None:
    n_columns = 2 * max(32, BLOCK_FORMATS[name].n_weights)
    weights = random_blocks(name, n_rows, n_columns)
    [panels] = interleave([Matrix(weights, name, n_columns)], codes["interleave"], 1)
    x = byte_rows_of(np.random.default_rng(5).standard_normal((n_tokens, n_columns)).astype(np.float32))
    before, out, after = np.full((3, n_tokens + 1, n_rows + 1), 7, np.float32)  # one after the other in memory
    out = out[:n_tokens]
    memory = np.zeros(records.panel_bytes(n_columns) + 1, np.uint8)
    memory[-1] = 7
    unit = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * N_ARGUMENTS["multiply"])
    start = n_rows // 3 // 16 * 16  # a thread's share need not begin at the first row
    matrix, outputs = (address(panels), weights.shape[1], n_columns), (address(out), out.strides[0])
    unused = ctypes.byref(ctypes.c_void_p())
    multiply = unit(codes[f"multiply_{name}"])
    multiply(unused, unused, *matrix, start, n_rows, address(x), n_tokens, address(memory), *outputs)
    unpacked, values = dequantize(weights, name, n_columns).astype(np.float64), values_of(x, n_columns)
    size = np.abs(values) @ np.abs(unpacked).T
    assert (np.abs(out[:, :-1] - values @ unpacked.T)[:, start:] <= 4e-6 * size[:, start:]).all()
    assert (out[:, :start] == 7).all()
    assert (out[:, -1] == 7).all()
    assert memory[-1] == 7
    assert (before == 7).all()
    assert (after == 7).all()


@pytest.mark.parametrize("n_columns", [32, 96, 640])
def test_byte_rows_are_within_half_a_step(n_columns: int) -> None:
    x = np.random.default_rng(1).standard_normal((5, n_columns)).astype(np.float32)
    x[1] = 0
    x[2, 3] = 1e20
    x[3] *= 1e-38
    rows = byte_rows_of(x)
    largest = np.abs(x.reshape(5, -1, 16)).max(2)
    error = np.abs(values_of(rows, n_columns) - x).reshape(5, -1, 16)
    assert (error <= largest[:, :, None] / 127 * 0.5001 + 1e-30).all()
    totals = rows[:, :n_columns].view(np.int8).reshape(5, -1, 16).sum(-1, dtype=np.int64)
    scales, sums, half_sums = np.split(
        rows[:, n_columns:].copy().view(np.float32), [n_columns // 4, n_columns // 4 + n_columns // 32], axis=1
    )
    d = scales.reshape(5, -1, 4)
    assert (d == d[:, :, :1]).all()
    np.testing.assert_allclose(half_sums, d[:, :, 0] * totals.reshape(5, -1), rtol=1e-6)
    np.testing.assert_array_equal(sums, half_sums[:, ::2] + half_sums[:, 1::2])
