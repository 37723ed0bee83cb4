"""Safetensors files that the library writes are read back; damaged ones are refused in one line."""

from __future__ import annotations

import json
import re
import shutil
import struct
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from ringlet.core.errors import FormatError
from ringlet.core.formats.safetensors import FILE_NAME, INDEX_NAME, open_safetensors


def tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {
        "matrix": random.standard_normal((4, 6)).astype(np.float32),
        "half": random.standard_normal((3, 5)).astype(np.float16),
        "vector": random.standard_normal(7).astype(np.float32),
        "cube": random.standard_normal((2, 3, 4)).astype(np.float16),
        "scalar": np.array(1.5, np.float32),
        "counts": np.arange(6),
        "mask": np.zeros((2, 2), np.bool_),
    }


def raw(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def place(dtype: str, shape: list, start: int, stop: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def refused(path: Path, words: str, named: Path | None = None) -> None:
    with pytest.raises(FormatError, match=re.escape(words)) as caught:
        open_safetensors(path)
    assert str(named or path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mmap", [True, False])
def test_tensors_that_the_library_wrote(tmp_path, mmap):
    save_file(tensors(), tmp_path / "a.safetensors", metadata={"format": "np"})
    opened = open_safetensors(tmp_path / "a.safetensors", mmap=mmap)
    assert set(opened) == set(tensors())
    for name, values in tensors().items():
        assert opened[name].shape == values.shape
        assert opened[name].data.tobytes() == values.tobytes()
        assert not opened[name].data.flags.writeable
    assert np.array_equal(opened["matrix"].matrix().dequantize(), tensors()["matrix"])
    assert np.array_equal(opened["half"].matrix().dequantize(), tensors()["half"].astype(np.float32))
    assert np.array_equal(opened["vector"].vector(), tensors()["vector"])
    assert np.array_equal(opened["cube"].float_array(), tensors()["cube"].astype(np.float32))
    assert opened["scalar"].float_array().tolist() == 1.5
    assert np.shares_memory(opened["matrix"].matrix().data, opened["matrix"].data)


def test_embedded_model_is_what_the_library_reads():
    path = Path(str(files("ringlet.data") / "poet" / FILE_NAME))
    opened, truth = open_safetensors(path.parent), load_file(path)
    assert set(opened) == set(truth)
    assert all(np.array_equal(opened[name].float_array(), truth[name].astype(np.float32)) for name in truth)


def test_bfloat16(tmp_path):
    values = np.array([[1.0, -2.5, 0.0], [3.140625, 1e30, -0.0]], np.float32)
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    path = raw(tmp_path / "a.safetensors", {"w": place("BF16", [2, 3], 0, 12)}, upper.tobytes())
    with safe_open(path, "np") as truth:
        assert truth.get_slice("w").get_shape() == [2, 3]
    expected = (upper.astype(np.uint32) << 16).view(np.float32)
    assert np.array_equal(open_safetensors(path)["w"].matrix().dequantize(), expected)


def test_other_dtypes_are_refused_by_name_when_used(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file(tensors(), path)
    opened = open_safetensors(path)
    for use, dtype in [(opened["counts"].vector, "I64"), (opened["mask"].matrix, "BOOL")]:
        with pytest.raises(FormatError, match=rf"a\.safetensors: tensor '\w+' is stored as {dtype}; supported are F32"):
            use()


def test_data_at_an_odd_address(tmp_path):
    """The library pads its header; other writers need not."""
    header = json.dumps({"w": place("F32", [2, 3], 0, 24)}).encode()
    values = np.arange(6, dtype=np.float32)
    for padding in range(8):
        path = raw(tmp_path / "a.safetensors", header + b" " * padding, values.tobytes())
        matrix = open_safetensors(path)["w"].matrix()
        assert matrix.data.ctypes.data % 4 == 0
        assert np.array_equal(matrix.dequantize(), values.reshape(2, 3))


def test_tensor_without_numbers(tmp_path):
    save_file({"none": np.zeros((0, 4), np.float32), "w": np.ones((1, 1), np.float32)}, tmp_path / "a.safetensors")
    opened = open_safetensors(tmp_path / "a.safetensors")
    assert opened["w"].matrix().shape == (1, 1)
    with pytest.raises(FormatError, match=r"tensor 'none' has the shape \[0, 4\]: it holds nothing"):
        opened["none"].matrix()


def sharded(directory: Path) -> dict[str, str]:
    parts = {"model-00001-of-00002.safetensors": ["matrix", "half"], "model-00002-of-00002.safetensors": ["vector"]}
    for name, keys in parts.items():
        save_file({key: tensors()[key] for key in keys}, directory / name)
    weight_map = {key: name for name, keys in parts.items() for key in keys}
    write_index(directory, weight_map)
    return weight_map


def write_index(directory: Path, weight_map: object) -> None:
    (directory / INDEX_NAME).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))


def test_shards(tmp_path):
    weight_map = sharded(tmp_path)
    opened = open_safetensors(tmp_path)
    assert set(opened) == set(weight_map)
    assert all(opened[name].data.tobytes() == tensors()[name].tobytes() for name in opened)
    assert all(opened[name].path == tmp_path / weight_map[name] for name in opened)


def test_missing_shard(tmp_path):
    sharded(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    refused(tmp_path, "the shard model-00002-of-00002.safetensors is missing", tmp_path / INDEX_NAME)


def test_listed_tensor_that_is_absent(tmp_path):
    write_index(tmp_path, sharded(tmp_path) | {"ghost": "model-00001-of-00002.safetensors"})
    refused(tmp_path, "tensor 'ghost' should be in model-00001-of-00002.safetensors, but is not")


def test_shards_outside_the_directory(tmp_path):
    sharded(tmp_path)
    inside, outside = tmp_path / "inside", tmp_path / "secret.safetensors"
    shutil.copy(tmp_path / "model-00001-of-00002.safetensors", outside)
    inside.mkdir()
    for name in ("../secret.safetensors", str(outside), "..\\secret.safetensors", "C:secret", "..", ".", "", "a\0"):
        write_index(inside, {"matrix": name})
        refused(inside, f"{name!r} is not the name of a file beside it", inside / INDEX_NAME)


def test_an_index_that_lists_another_file(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    write_index(tmp_path, {"matrix": "config.json"})
    refused(tmp_path, "'config.json' is not the name of a safetensors file", tmp_path / INDEX_NAME)


@pytest.mark.parametrize("weight_map", [None, [], "x", {"matrix": 3}])
def test_index_without_a_map(tmp_path, weight_map):
    write_index(tmp_path, weight_map)
    refused(tmp_path, "'weight_map' must map tensor names to file names")


def test_directory_without_weights(tmp_path):
    refused(tmp_path, f"neither {FILE_NAME} nor {INDEX_NAME} is in the directory")


GOOD = place("F32", [2], 0, 8)
DAMAGED = {
    "JSON": (b"{", "the header: not valid JSON"),
    "not UTF-8": (b'{"\xff": 1}', "the header: not valid JSON"),
    "nested": (b"[" * 100_000, "the header: not valid JSON"),
    "a list": ([1], "the header: a JSON object is needed"),
    "name twice": (b'{"w": 1, "w": 1}', "a name appears twice"),
    "entry": ({"w": 3}, "the entry of tensor 'w' is damaged"),
    "no dtype": ({"w": {"shape": [2], "data_offsets": [0, 8]}}, "the entry of tensor 'w' is damaged"),
    "negative size": ({"w": place("F32", [-2], 0, 8)}, "the entry of tensor 'w' is damaged"),
    "size of true": ({"w": place("F32", [2, True], 0, 8)}, "the entry of tensor 'w' is damaged"),
    "fractional size": ({"w": place("F32", [2.0], 0, 8)}, "the entry of tensor 'w' is damaged"),
    "backward": ({"w": place("I8", [2], 8, 0)}, "cannot have -8 bytes"),
    "wrong size": ({"w": place("F32", [3], 0, 8)}, "tensor 'w' of F32 [3] cannot have 8 bytes"),
    "overflow": ({"w": place("F16", [2**32, 2**32], 0, 0)}, "cannot have 0 bytes"),
    "block format": ({"w": place("Q4_0", [1, 32], 0, 18)}, "has the dtype Q4_0, which is none of safetensors"),
    "overlap": ({"v": GOOD, "w": place("F32", [2], 4, 12)}, "the tensors overlap, leave gaps or reach past the end"),
    "gap": ({"w": place("F32", [2], 8, 16)}, "the tensors overlap, leave gaps or reach past the end"),
    "past the end": ({"w": place("F32", [200], 0, 800)}, "the tensors overlap, leave gaps or reach past the end"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_header(tmp_path, case):
    header, words = DAMAGED[case]
    path = raw(tmp_path / "a.safetensors", header, bytes(20))
    refused(path, words)
    if case != "name twice":  # the library lets that pass
        with pytest.raises(SafetensorError), safe_open(path, "np"):
            pass


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"1234567", "not a safetensors file"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "a header of 18446744073709551615 bytes does not fit"),
        (struct.pack("<Q", 3) + b"{}", "a header of 3 bytes does not fit"),
        (b"GGUF" + bytes(40), "a header of 1179993927 bytes does not fit"),
        (struct.pack("<Q", 0) + bytes(40), "the header: not valid JSON"),
    ],
)
def test_foreign_files(tmp_path, content, words):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    refused(path, words)


def test_cut_anywhere(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"w": np.ones((2, 2), np.float32)}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError):
            open_safetensors(path)
