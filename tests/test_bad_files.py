"""What bad model files get on the command line: one line that names the file and what to do, and exit code 2."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tiny_models import copy_model
from whole_models import write_whole_directory, write_whole_gguf

from ringlet.cli import main


def change_config(folder: Path, **changes: object) -> None:
    values = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def cut(path: Path, n_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:n_bytes])


def replace_bytes(path: Path, old: bytes, new: bytes) -> None:
    """The first of them; of the same length, so that nothing moves."""
    data = path.read_bytes()
    assert old in data
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new, 1))


def other_format(path: Path) -> None:
    """GGUF's header says that blk.0.attn_q.weight, F16, is of type 29, IQ1_M."""
    data = path.read_bytes()
    at = data.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight")
    kind = at + 4 + 2 * 8  # n_dims, then two sizes
    assert struct.unpack_from("<I", data, at) == (2,)
    assert struct.unpack_from("<I", data, kind) == (1,)
    path.write_bytes(data[:kind] + struct.pack("<I", 29) + data[kind + 4 :])


def save_other_shape(folder: Path) -> None:
    copy_model("llama", folder, tensors={"model.norm.weight": np.ones(63, np.float16)})


DIRECTORIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "neither model.safetensors nor"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer.json: save one with"),
    "truncated weights": (lambda folder: cut(folder / "model.safetensors", -1000), "damaged or cut short"),
    "foreign weights": (lambda folder: (folder / "model.safetensors").write_bytes(b"PK\3\4" * 99), "not a safetensors"),
    "truncated tokenizer": (lambda folder: cut(folder / "tokenizer.json", 500), "not a tokenizer that"),
    "foreign config": (lambda folder: (folder / "config.json").write_bytes(b"\x80\x02}q\x00"), "not valid JSON"),
    "unknown architecture": (lambda folder: change_config(folder, model_type="mamba"), "the architecture 'mamba'"),
    "heads do not divide d_model": (
        lambda folder: change_config(folder, num_attention_heads=3, head_dim=None),
        "d_model 64 is not a multiple of 3 heads",
    ),
    "K/V heads do not divide": (lambda folder: change_config(folder, num_key_value_heads=3), "n_kv_heads 3"),
    "a matrix does not fit": (lambda folder: change_config(folder, intermediate_size=71), "the configuration needs"),
    "a vector does not fit": (save_other_shape, "model.norm.weight has the shape [63], the configuration needs [64]"),
    "unknown weight format": (
        lambda folder: replace_bytes(folder / "model.safetensors", b'"dtype":"F16"', b'"dtype":"F8_"'),
        "F8_",
    ),
}
GGUF_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: path.unlink(), "no such file"),
    "empty": (lambda path: path.write_bytes(b""), "the file is empty"),
    "truncated in its header": (lambda path: cut(path, 1000), "cut short"),
    "truncated in its weights": (lambda path: cut(path, -1000), "cut short"),
    "foreign": (lambda path: path.write_bytes(b"\x89PNG\r\n" * 99), "not a GGUF file"),
    "unknown architecture": (
        lambda path: replace_bytes(path, struct.pack("<Q", 5) + b"llama", struct.pack("<Q", 5) + b"mamba"),
        "the architecture 'mamba' is not supported",
    ),
    "unknown block format": (other_format, "IQ1_M"),
    "K/V heads do not divide": (
        lambda path: replace_bytes(
            path, b"head_count_kv" + struct.pack("<II", 4, 2), b"head_count_kv" + struct.pack("<II", 4, 3)
        ),
        "n_kv_heads 3",
    ),
    "heads do not divide d_model": (
        lambda path: replace_bytes(
            path, b"head_count" + struct.pack("<II", 4, 4), b"head_count" + struct.pack("<II", 4, 5)
        ),
        "d_model 64 is not a multiple of 5 heads",
    ),
    "a shape does not fit": (
        lambda path: replace_bytes(
            path, b"feed_forward_length" + struct.pack("<II", 4, 72), b"feed_forward_length" + struct.pack("<II", 4, 71)
        ),
        "the configuration needs",
    ),
    "no vocabulary": (
        lambda path: replace_bytes(path, b"tokenizer.ggml.tokens", b"tokenizer.ggml.tikens"),
        "tokenizer.ggml.tokens is missing",
    ),
    "unknown vocabulary": (
        lambda path: replace_bytes(
            path, b"model" + struct.pack("<IQ", 8, 5) + b"llama", b"model" + struct.pack("<IQ", 8, 5) + b"rwkv7"
        ),
        "tokenizer.ggml.model is 'rwkv7'",
    ),
}


def refused(model: Path, message: str) -> None:
    ran = CliRunner().invoke(main, ["generate", "the ring", "--model", str(model), "--backend", "numpy"])
    assert (ran.exit_code, ran.stdout) == (2, ""), ran.output
    assert ran.stderr.startswith("Error: ")
    assert ran.stderr.endswith("\n")
    assert ran.stderr.count("\n") == 1
    assert str(model) in ran.stderr
    assert message in ran.stderr


@pytest.mark.parametrize("fault", DIRECTORIES)
def test_a_directory_that_is_no_model(fault: str, tmp_path: Path) -> None:
    spoil, message = DIRECTORIES[fault]
    folder = write_whole_directory(tmp_path / "model")
    spoil(folder)
    refused(folder, message)


@pytest.mark.parametrize("fault", GGUF_FILES)
def test_a_gguf_file_that_is_no_model(fault: str, tmp_path: Path) -> None:
    spoil, message = GGUF_FILES[fault]
    path = write_whole_gguf(tmp_path / "model.gguf")
    spoil(path)
    refused(path, message)


def test_the_files_are_good_until_they_are_spoilt(tmp_path: Path) -> None:
    for model in (write_whole_directory(tmp_path / "model"), write_whole_gguf(tmp_path / "model.gguf")):
        arguments = ["generate", "the ring", "--model", str(model), "--backend", "numpy", "--max-tokens", "2"]
        assert CliRunner().invoke(main, arguments).exit_code == 0


SIGNALLING_NAN = np.array([0x7FA00000] * 64, np.uint32).view(np.float32)  # to add to it is what NumPy warns of


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "tensor", "values", "code"),
    [
        ("llama", "model.embed_tokens.weight", np.full((128, 64), 1e30, np.float32), 0),  # its mean square overflows
        ("llama", "model.layers.0.self_attn.q_proj.weight", np.full((64, 64), np.inf, np.float32), 2),
        ("gemma3", "model.norm.weight", SIGNALLING_NAN[:32], 2),
    ],
)
def test_weights_that_overflow_get_one_line_without_warnings(
    name: str, tensor: str, values: np.ndarray, code: int, tmp_path: Path
) -> None:
    folder = write_whole_directory(tmp_path / "model", name)
    copy_model(name, folder, tensors={tensor: values})
    ran = CliRunner().invoke(main, ["generate", "the ring", "--model", str(folder), "--backend", "numpy"])
    line = "Error: the logits hold NaN: the model or its file is broken\n"
    assert (ran.exit_code, ran.stderr) == (code, line if code else "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(name: str, tmp_path: Path) -> None:
    folder = write_whole_directory(tmp_path / "model")
    (folder / name.replace(".index.json", "")).unlink()
    os.mkfifo(folder / name)
    refused(folder, "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_or_a_device_in_place_of_a_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.gguf")
    refused(tmp_path / "model.gguf", "not a regular file")
    refused(Path("/dev/zero"), "not a regular file")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to this user")
@pytest.mark.parametrize(("of_the_folder", "of_the_file"), [(0o700, 0o000), (0o600, 0o600), (0o000, 0o600)])
def test_files_that_may_not_be_read(of_the_folder: int, of_the_file: int, tmp_path: Path) -> None:
    folder = write_whole_directory(tmp_path / "model")
    (folder / "config.json").chmod(of_the_file)
    folder.chmod(of_the_folder)
    try:
        refused(folder, "cannot be read: permission denied")
    finally:
        folder.chmod(0o700)


def test_a_folder_that_is_empty_or_missing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "no config.json")
    refused(tmp_path / "missing", "no such file or directory")
