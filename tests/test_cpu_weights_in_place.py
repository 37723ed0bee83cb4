"""Where the cpu backend's kernels find weights: in the memory map where they can be read as they lie; those in blocks
interleaved, but for the embedding's rows, which are looked up in the map."""

from __future__ import annotations

import ctypes
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest
from tiny_models import FORMS, architectures, open_tiny

from ringlet.core.formats.gguf import open_gguf
from ringlet.core.loading.model_files import load_gguf
from ringlet.core.weights import Matrix, ModelWeights
from ringlet.plugins.backends.cpu import CpuBackend, records
from ringlet.plugins.backends.cpu.interleaving import takes_bytes

TRANSPOSED = ("gpt2", "hf")  # its file has matrices the other way round, which no format here can say


def mapped_file(matrix: Matrix) -> range:
    """The addresses of the memory map that the matrix is a view of."""
    base: object = matrix.data
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    assert isinstance(base, mmap)
    whole = np.frombuffer(base, np.uint8)
    return range(whole.ctypes.data, whole.ctypes.data + len(whole))


def records_of(backend: CpuBackend) -> dict[str, np.void]:
    """What kernels are told of each matrix, under the name that ModelWeights.matrices gives it."""
    model = backend._model.record[0]
    found = {name: model[name] for name in ("embedding", "W_t", "positions")}
    size = int(model["n_layers"]) * records.LAYER.itemsize
    layers = np.frombuffer((ctypes.c_char * size).from_address(int(model["layers"])), records.LAYER)
    for index, layer in enumerate(layers):
        names = [name for name in records.LAYER.names or () if name.startswith("W_")]
        found |= {f"layers.{index}.{name}": layer[name] for name in names}
    return {name: record for name, record in found.items() if record["address"]}


def assert_in_place(weights: ModelWeights, backend: CpuBackend) -> None:
    found, matrices = records_of(backend), weights.matrices()
    assert set(found) - {"W_t"} == set(matrices) - {"W_t"}
    for name, matrix in matrices.items():
        if takes_bytes(matrix) and name not in ("embedding", "positions"):
            assert int(found[name]["address"]) not in mapped_file(matrix), name
            continue
        file, start = mapped_file(matrix), int(found[name]["address"])
        rows, row_bytes = matrix.data.shape[0], int(found[name]["row_bytes"])
        assert start in file, name
        assert start + (rows - 1) * row_bytes + matrix.data.shape[1] - 1 in file, name
        stored = np.frombuffer((ctypes.c_uint8 * matrix.data.shape[1]).from_address(start), np.uint8)
        np.testing.assert_array_equal(stored, matrix.data[0])


@pytest.mark.parametrize(("name", "form"), [pair for pair in FORMS if pair != TRANSPOSED])
def test_tiny_models(name: str, form: str) -> None:
    tiny = open_tiny(name, form)
    assert_in_place(tiny.weights, CpuBackend(tiny.config, tiny.weights, 1))


@pytest.mark.real_model
@pytest.mark.parametrize("name", ["smollm2", "gemma"])
def test_real_models_in_block_formats(name: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(f"{name}_path")
    config, weights = load_gguf(open_gguf(path), architectures())
    assert {matrix.format for matrix in weights.matrices().values()} & {"Q4_1", "Q4_K", "Q8_0"}
    assert_in_place(weights, CpuBackend(config, weights, 1))
