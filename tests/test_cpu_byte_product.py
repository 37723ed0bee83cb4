"""Products in bytes against the same sums in float64 over the weights that the reference unpacks."""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np
import pytest
from random_models import random_blocks

from ringlet.core.quantization import BLOCK_FORMATS, dequantize
from ringlet.plugins.backends.cpu import byte_rows, records
from ringlet.plugins.backends.cpu.byte_formats import BYTE_FORMATS
from ringlet.plugins.backends.cpu.compiling import entry_point
from ringlet.plugins.backends.cpu.machine_code import machine_code
from ringlet.plugins.backends.cpu.target import LANES
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
    q = rows[:, :n_columns].view(np.int8).reshape(len(rows), -1, 16)
    d = rows[:, n_columns : 2 * n_columns].copy().view(np.float32)[:, ::4]
    return (q * d[:, :, None].astype(np.float64)).reshape(len(rows), n_columns)


@pytest.fixture(scope="module")
def multipliers():
    """The compiled unit of each format."""
    codes = machine_code([f"multiply_{name}" for name in BYTE_FORMATS])
    unit = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * N_ARGUMENTS["multiply"])
    unused = ctypes.byref(ctypes.c_void_p())
    return {name: partial(unit(codes[f"multiply_{name}"]), unused, unused) for name in BYTE_FORMATS}


@pytest.mark.parametrize("name", BYTE_FORMATS)
@pytest.mark.parametrize(("n_rows", "n_tokens"), [(1, 1), (7, 2), (LANES, 4), (2 * LANES + 5, 7), (LANES - 1, 9)])
def test_products_are_those_of_the_unpacked_weights(multipliers, name: str, n_rows: int, n_tokens: int) -> None:
    n_columns = 2 * max(32, BLOCK_FORMATS[name].n_weights)
    weights = random_blocks(name, n_rows, n_columns)
    x = byte_rows_of(np.random.default_rng(5).standard_normal((n_tokens, n_columns)).astype(np.float32))
    out = np.full((n_tokens, n_rows + 1), 7, np.float32)
    panel = np.zeros(records.panel_bytes(n_columns), np.uint8)
    start = n_rows // 3  # a thread's share need not begin at the first row
    matrix, outputs = (address(weights), weights.shape[1], n_columns), (address(out), out.strides[0])
    multipliers[name](*matrix, start, n_rows, address(x), n_tokens, address(panel), *outputs)
    unpacked, values = dequantize(weights, name, n_columns).astype(np.float64), values_of(x, n_columns)
    size = np.abs(values) @ np.abs(unpacked).T
    assert (np.abs(out[:, :-1] - values @ unpacked.T)[:, start:] <= 4e-6 * size[:, start:]).all()
    assert (out[:, :start] == 7).all()
    assert (out[:, -1] == 7).all()


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
