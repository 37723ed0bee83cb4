"""The cpu backend's small kernels, each against its plain twin."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import naive
import numpy as np
import pytest

from ringlet.core.host_memory import quantize_rows
from ringlet.core.quantization import BLOCK_FORMATS, dequantize
from ringlet.plugins.backends.cpu import (
    elementwise,
    memory,
    product,
    records,
    ring_rows,
    tables,
    units,
    unpack,
    vector_math,
)
from ringlet.plugins.backends.cpu.byte_weights import BYTE_FORMATS
from ringlet.plugins.backends.cpu.compiling import entry_point
from ringlet.plugins.backends.cpu.records import padded
from ringlet.plugins.backends.cpu.target import LANES


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@cache
def unpack_row(name: str) -> Callable:
    inner = unpack.UNPACK[name]
    return entry_point(lambda row, n_columns, out: inner(row, n_columns, out))


@entry_point
def pack_row(kind, values, n_columns, row, scale):
    ring_rows.pack_row(kind, values, n_columns, row, scale)


def applied(function: Callable, x: np.ndarray) -> np.ndarray:
    """A function of vectors on every value of a float32 array."""

    @entry_point
    def run(x, n, out):
        for i in range(0, n, LANES):
            memory.store(out + 4 * i, function(memory.load_f32s(x + 4 * i)))

    source = np.zeros(-(-len(x) // LANES) * LANES, np.float32)
    source[: len(x)] = x
    out = np.empty_like(source)
    run(address(source), len(source), address(out))
    return out[: len(x)]


@pytest.mark.parametrize("name", BLOCK_FORMATS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # random scales are infinite or NaN here and there
def test_unpacked_rows_are_the_reference_to_the_last_bit(name: str) -> None:
    block = BLOCK_FORMATS[name]
    n_columns = 51 if block.n_weights == 1 else 3 * block.n_weights
    rng = np.random.default_rng(7)
    data = rng.integers(0, 256, (40, n_columns // block.n_weights * block.n_bytes), dtype=np.uint8)
    reference = dequantize(data, name, n_columns)
    for row, values in zip(data, reference, strict=True):
        out = np.full(padded(n_columns) + 1, 7, np.float32)
        unpack_row(name)(address(row), n_columns, address(out))
        np.testing.assert_array_equal(out[:n_columns], values)
        assert (out[n_columns:-1] == 0).all()
        assert out[-1] == 7  # nothing beyond the padding


def test_every_half_float_is_read_right() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    out = np.empty(1 << 16, np.float32)
    unpack_row("F16")(address(halves), 1 << 16, address(out))
    np.testing.assert_array_equal(out, halves.view(np.float16).astype(np.float32))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_half_floats_are_rounded_as_numpy_rounds_them() -> None:
    halves = np.arange(1 << 15, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    between = (halves[1:] + halves[:-1]) / 2  # ties
    values = np.concatenate([halves, between, np.nextafter(between, 0), np.nextafter(between, np.float32(np.inf))])
    values = np.concatenate([values, [65519, 65520, 1e30, np.inf, np.nan, 1e-30, 3e-8]]).astype(np.float32)
    values = np.concatenate([values, -values])
    out = np.empty(len(values), np.float16)
    pack_row(records.RING_KINDS.index("F16"), address(values), len(values), address(out), 0)
    np.testing.assert_array_equal(out, values.astype(np.float16))


@pytest.mark.parametrize("n_columns", [1, 7, 16, 64, 100])
def test_rows_of_bytes_are_those_of_the_reference(n_columns: int) -> None:
    rows = np.random.default_rng(n_columns).standard_normal((6, n_columns)).astype(np.float32)
    rows[1], rows[2, 0], rows[3] = 0, 1e20, rows[3] * 1e-35
    expected, scales = quantize_rows(rows)
    for row, bytes, scale in zip(rows, expected, scales, strict=True):
        out, d = np.full(n_columns + 1, 99, np.int8), np.zeros(1, np.float32)
        pack_row(records.RING_KINDS.index("Q8"), address(row), n_columns, address(out), address(d))
        np.testing.assert_array_equal(out[:-1], bytes)
        assert (out[-1], d[0]) == (99, scale)


WIDE = np.concatenate([np.linspace(-95, 95, 5001), np.linspace(-1, 1, 2001), [0.0, -0.0, 1e-20, -1e-20, 0.625]])


@pytest.mark.parametrize(
    ("function", "twin", "tolerance"),
    [
        (vector_math.tanh, math.tanh, 2e-7),
        (vector_math.silu, naive.silu, 3e-7),
        (vector_math.relu, naive.relu, 0),
    ],
)
def test_functions_are_right_relative_to_their_value(function: Callable, twin: Callable, tolerance: float) -> None:
    x = WIDE.astype(np.float32)
    expected = np.array([twin(float(value)) for value in x])
    np.testing.assert_allclose(applied(function, x), expected, rtol=tolerance, atol=1e-36)


@pytest.mark.parametrize(
    ("function", "twin"),
    [(vector_math.gelu, naive.gelu), (vector_math.gelu_tanh, naive.gelu_tanh), (vector_math.erf, math.erf)],
)
def test_functions_with_tails_are_right_relative_to_their_argument(function: Callable, twin: Callable) -> None:
    x = WIDE.astype(np.float32)
    expected = np.array([twin(float(value)) for value in x])
    assert (np.abs(applied(function, x) - expected) <= 5e-7 * np.maximum(np.abs(x), 1)).all()


def test_exp() -> None:
    x = np.linspace(-86.9, 88, 20001).astype(np.float32)
    np.testing.assert_allclose(applied(vector_math.exp, x), np.exp(x.astype(np.float64)), rtol=2e-7)
    edges = applied(vector_math.exp, np.array([-np.inf, -100, 0, np.nan], np.float32))
    np.testing.assert_array_equal(edges, [0, 0, 1, np.nan])


@pytest.mark.parametrize("n_columns", [1, 7, 16, 17, 100])
@pytest.mark.parametrize("n_tokens", [1, 2, 3, 4, 7])
def test_products(n_columns: int, n_tokens: int) -> None:
    rng = np.random.default_rng(n_columns)
    rows, x = (
        rng.standard_normal((9, n_columns)).astype(np.float32),
        np.zeros((n_tokens, padded(n_columns)), np.float32),
    )
    x[:, :n_columns] = rng.standard_normal((n_tokens, n_columns))
    out, memory_for_rows = np.full((n_tokens, 9), np.nan, np.float32), np.zeros((4, padded(n_columns)), np.float32)
    for start, stop in ((0, 5), (5, 9)):
        matrix, memory_at = (address(rows), 4 * n_columns, n_columns), address(memory_for_rows)
        multiply_rows(*matrix, start, stop, address(x), n_tokens, memory_at, address(out), 36)
    np.testing.assert_allclose(out, naive.product(rows, x[:, :n_columns]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("format", units.LOADS)
@pytest.mark.parametrize("n_columns", [16, 48, 50, 576])
def test_one_token_has_the_bits_that_it_has_beside_others(format: str, n_columns: int) -> None:
    """It meets rows where they lie, others meet them unpacked."""
    multiply = units.source(f"multiply_{format}")
    call = entry_point(lambda *arguments: multiply(*arguments))
    rng = np.random.default_rng(n_columns)
    weights = rng.standard_normal((9, n_columns)).astype(np.float32)
    stored = {
        "F32": weights,
        "F16": weights.astype(np.float16),
        "BF16": (weights.view(np.uint32) >> 16).astype(np.uint16),
    }[format]
    x = np.zeros((4, padded(n_columns)), np.float32)
    x[:, :n_columns] = rng.standard_normal((4, n_columns))
    memory, together, alone = np.zeros((4, padded(n_columns)), np.float32), *np.full((2, 4, 9), np.nan, np.float32)
    matrix = (address(stored), stored.strides[0], n_columns)
    call(*matrix, 0, 9, address(x), 4, address(memory), address(together), 36)
    for token in range(4):
        for start, stop in ((0, 5), (5, 9)):
            call(*matrix, start, stop, address(x[token]), 1, address(memory), address(alone[token]), 36)
    assert np.array_equal(together, alone)


multiply_f32 = product.multiplier(unpack.UNPACK["F32"])


@entry_point
def multiply_rows(weights, row_bytes, n_columns, start, stop, x, n_tokens, memory, out, out_bytes):
    multiply_f32(weights, row_bytes, n_columns, start, stop, x, n_tokens, memory, out, out_bytes)


@entry_point
def rotate(x, rope, position, cos, sin):
    record = memory.rope_at(rope, 0)
    elementwise.fill_angles(record, position, cos, sin)
    elementwise.rotate(x, record, cos, sin)


@pytest.mark.parametrize("adjacent", [False, True])
@pytest.mark.parametrize("position", [0, 3, 1_000_003])
def test_rotation(adjacent: bool, position: int) -> None:
    frequencies = np.array([1.0, 0.1, 0.003])
    x = np.random.default_rng(3).standard_normal(8).astype(np.float32)  # the last two are not rotated
    rope = np.zeros(1, records.ROPE)
    rope[0] = (address(frequencies), 3, adjacent, 1.0)
    cos, sin, y = np.zeros(3, np.float32), np.zeros(3, np.float32), x.copy()
    rotate(address(y), address(rope), position, address(cos), address(sin))
    np.testing.assert_allclose(y, naive.rotate(x, position, tuple(frequencies), adjacent), rtol=1e-6, atol=1e-6)


def test_kernels_know_every_block_format() -> None:
    assert set(unpack.UNPACK) == set(BLOCK_FORMATS)
    assert {name for name, block in BLOCK_FORMATS.items() if block.n_weights > 1} == set(BYTE_FORMATS)
    assert set(tables.RING_FORMATS.values()) == set(records.RING_KINDS)
