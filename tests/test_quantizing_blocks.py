"""Blocks made of floats, to the last bit: against the `gguf` package, plain twins, and ggml's own code where it is."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import naive_quantization
import numpy as np
import pytest

from ringlet.core.quantization import BLOCK_FORMATS, dequantize
from ringlet.core.quantizing.blocks import QUANTIZE, quantize

gguf = pytest.importorskip("gguf")

OF_32 = ("Q8_0", "Q4_0", "Q4_1", "Q5_0")
OF_256 = ("Q4_K", "Q6_K")
KINDS = (
    "normal", "on the grid of bfloat16", "zeros and some", "minus zero", "positive", "negative", "constant", "tiny",
    "huge", "around the least of float16", "outliers", "halves", "runs of nothing",
)  # fmt: skip


def weights(kind: str, n_rows: int, n_columns: int = 512) -> np.ndarray:
    """float32 of a kind that may trip a quantiser."""
    rng = np.random.default_rng(KINDS.index(kind))
    x = rng.standard_normal((n_rows, n_columns)).astype(np.float32)
    if kind == "on the grid of bfloat16":
        x = (x.view(np.uint32) & 0xFFFF0000).view(np.float32) * np.float32(0.02)
    elif kind == "zeros and some":
        x[:, 3:] = 0
        x[::2] = 0
        x[1::2, 100:200] = rng.standard_normal((n_rows // 2, 100))
    elif kind == "minus zero":
        x[:, :40] = -0.0
        x[:, 64:96:2] = -0.0
    elif kind == "positive":
        x = np.abs(x) + np.float32(0.25)
    elif kind == "negative":
        x = -np.abs(x) - np.float32(0.25)
    elif kind == "constant":
        x[:] = 0.7
        x[::2] = -0.3
    elif kind == "tiny":
        x *= np.float32(1e-9)
    elif kind == "huge":
        x *= np.float32(1e5)
    elif kind == "around the least of float16":
        x *= np.float32(1e-6) * np.float32(10) ** rng.integers(-2, 3, (n_rows, 1)).astype(np.float32)
    elif kind == "outliers":
        x[:, ::37] *= np.float32(1e4)
    elif kind == "halves":
        x = np.rint(x * 20) / np.float32(2)
        x[:, ::32] = 127
    elif kind == "runs of nothing":
        x[:, 32:64], x[:, 100:104], x[:, 128:160] = 0, 1e-12, x[:, 128:160] * np.float32(1e-9)
    return x


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the package's own: a scale beyond float16
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", OF_32)
def test_blocks_of_32_are_those_of_the_gguf_package(format: str, kind: str) -> None:
    x = weights(kind, 60)
    made = quantize(x, format)
    assert made.dtype == np.uint8
    assert np.array_equal(made, gguf.quants.quantize(x, gguf.GGMLQuantizationType[format]))


def test_numbers_are_rounded_as_the_gguf_package_rounds_them() -> None:
    """Q8_0 of every kind of fraction: halves, and the numbers next to them on both sides."""
    middle = np.arange(0, 127, 0.5, dtype=np.float32)
    each = np.concatenate([middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(200)), -middle])
    each = np.pad(each, (0, -len(each) % 31)).reshape(-1, 31)
    x = np.concatenate([each, np.full((len(each), 1), 127, np.float32)], axis=1)
    assert np.array_equal(quantize(x, "Q8_0"), gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", OF_256)
def test_blocks_of_256_are_those_of_a_plain_twin(format: str, kind: str) -> None:
    x = weights(kind, 2)
    twin = {"Q4_K": naive_quantization.q4_k, "Q6_K": naive_quantization.q6_k}[format]
    expected = np.concatenate([twin(block) for block in x.reshape(-1, 256)]).reshape(2, -1)
    assert np.array_equal(quantize(x, format), expected)


@pytest.mark.reference
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", QUANTIZE)
def test_blocks_are_those_of_ggml(format: str, kind: str) -> None:
    """quantize_row_*_ref of the library that comes with llama-cpp-python."""
    x = weights(kind, 400)
    if format in ("Q4_0", "Q5_0"):
        x += np.float32(0)  # of a block of -0 ggml makes d = -0, the gguf package 0
    made, expected = quantize(x, format), np.zeros((400, x.shape[1] // 32 * 34 + 999), np.uint8)
    function = getattr(ggml(), f"quantize_row_{format.lower().replace('k', 'K')}_ref")
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
    function(x.ctypes.data, expected.ctypes.data, x.size)
    assert np.array_equal(made.ravel(), expected.ravel()[: made.size])


def ggml() -> ctypes.CDLL:
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        pytest.skip("needs llama-cpp-python (the extra `bench`)")
    libraries = list((Path(found.origin).parent / "lib").glob("*ggml-base.*"))
    if not libraries:
        pytest.skip("llama-cpp-python has no ggml-base of its own")
    return ctypes.CDLL(str(libraries[0]))


@pytest.mark.parametrize("format", QUANTIZE)
def test_the_error_is_what_the_bits_allow(format: str) -> None:
    x = weights("normal", 64)
    error = dequantize(quantize(x, format), format, x.shape[1]) - x
    bits = {"Q8_0": 8, "Q6_K": 6, "Q5_0": 5, "Q4_0": 4, "Q4_1": 4, "Q4_K": 4}[format]
    step = 6 / 2**bits  # of 32 normal numbers, from one end to the other
    assert step / 8 < np.sqrt(np.mean(error**2)) < step / 2.5
    assert np.abs(error).max() < 2.5 * step


def test_the_searches_find_less_error_than_rounding_alone() -> None:
    x = weights("normal", 64)
    errors = {name: np.mean((dequantize(quantize(x, name), name, 512) - x) ** 2) for name in QUANTIZE}
    assert errors["Q8_0"] < errors["Q6_K"] < errors["Q5_0"] < errors["Q4_K"] < errors["Q4_1"] < errors["Q4_0"]


@pytest.mark.parametrize("format", ["Q8_0", "Q4_1"])
def test_what_is_on_a_format_s_grid_stays(format: str) -> None:
    rng = np.random.default_rng(0)
    q = rng.integers(*{"Q8_0": (-127, 128), "Q4_1": (0, 16)}[format], (40, 4, 32)).astype(np.float32)
    q[:, :, 0], q[:, :, 1] = {"Q8_0": (127, -127), "Q4_1": (0, 15)}[format]
    x = (q * np.float32(0.25) - np.float32({"Q8_0": 0, "Q4_1": 2}[format])).reshape(40, 128)
    assert np.array_equal(dequantize(quantize(x, format), format, 128), x)


@pytest.mark.parametrize("format", QUANTIZE)
def test_any_number_of_rows(format: str) -> None:
    block = BLOCK_FORMATS[format]
    x = weights("normal", 5, 3 * 256)
    whole = quantize(x, format)
    assert whole.shape == (5, 3 * 256 // block.n_weights * block.n_bytes)
    assert np.array_equal(np.concatenate([quantize(row[None], format) for row in x]), whole)
    assert np.array_equal(quantize(x[::2], format), whole[::2])
    assert quantize(x[:0], format).shape == (0, whole.shape[1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("format", QUANTIZE)
def test_what_is_no_number_harms_its_own_block_only_and_is_not_warned_of(format: str, number: float) -> None:
    x = weights("normal", 3)
    clean = quantize(x, format)
    x[1, 300] = number
    made, block = quantize(x, format), BLOCK_FORMATS[format]
    at = 300 // block.n_weights * block.n_bytes
    others = np.ones(clean.shape, bool)
    others[1, at : at + block.n_bytes] = False
    assert np.array_equal(made[others], clean[others])
