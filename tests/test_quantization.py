"""Every block format, to the last bit, against the `gguf` package."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet.core.quantization import BLOCK_FORMATS, WEIGHTS_AT_ONCE, dequantize

gguf = pytest.importorskip("gguf")


def truth(data: np.ndarray, format: str) -> np.ndarray:
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[format])


def random_rows(format: str, n_rows: int, n_blocks: int, seed: int = 0) -> np.ndarray:
    """Any bytes at all: scales that are NaN, infinite or subnormal among them."""
    return np.random.default_rng(seed).integers(0, 256, (n_rows, n_blocks * BLOCK_FORMATS[format].n_bytes), np.uint8)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype == np.float32 and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_sizes_and_numbers_are_ggmls(format):
    block, number = BLOCK_FORMATS[format], gguf.GGMLQuantizationType[format]
    assert block.gguf_type == number
    assert (block.n_weights, block.n_bytes) == gguf.GGML_QUANT_SIZES[number]


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")  # the random scales are NaN and infinite too
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (33, 2)])
@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_values_of_random_bytes(format, shape):
    data = random_rows(format, *shape)
    assert same_bits(dequantize(data, format, shape[1] * BLOCK_FORMATS[format].n_weights), truth(data, format))


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_more_rows_than_are_unpacked_at_once(format):
    block = BLOCK_FORMATS[format]
    n_blocks = 2048 // block.n_weights
    data = random_rows(format, WEIGHTS_AT_ONCE // 2048 + 3, n_blocks)
    assert same_bits(dequantize(data, format, 2048), truth(data, format))


@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_no_rows(format):
    block = BLOCK_FORMATS[format]
    values = dequantize(np.empty((0, 2 * block.n_bytes), np.uint8), format, 2 * block.n_weights)
    assert values.shape == (0, 2 * block.n_weights)
    assert values.dtype == np.float32


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_rows_apart_from_each_other_and_read_only(format):
    data = random_rows(format, 8, 2)
    data.flags.writeable = False
    apart = data[::3]
    values = dequantize(apart, format, 2 * BLOCK_FORMATS[format].n_weights)
    assert same_bits(values, truth(np.ascontiguousarray(apart), format))


@pytest.mark.parametrize("format", ["F32", "F16", "BF16"])
def test_memory_at_an_odd_address(format):
    block = BLOCK_FORMATS[format]
    memory = random_rows(format, 1, 64).ravel()
    odd = np.empty(memory.size + 1, np.uint8)[1:]
    odd[...] = memory
    values = dequantize(odd.reshape(2, -1), format, 32)
    assert values.flags.aligned
    assert same_bits(values, truth(memory.reshape(2, 32 * block.n_bytes), format))


def test_aligned_f32_is_not_copied():
    data = random_rows("F32", 4, 16)
    assert np.shares_memory(dequantize(data, "F32", 16), data)


def test_large_rows_of_many_weights():
    n_columns = 2 * WEIGHTS_AT_ONCE
    data = random_rows("Q8_0", 3, n_columns // 32)
    data[:, 1::34] = 0x2E  # finite scales
    assert same_bits(dequantize(data, "Q8_0", n_columns), truth(data, "Q8_0"))
