"""Models quantised when they are loaded: what becomes what, from which files, and what is kept for the next time."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_models import random_model
from tiny_models import architectures
from whole_models import split_into_shards, write_whole_directory, write_whole_gguf

from ringlet import Pipeline, RingletError
from ringlet.core.config import LayerConfig
from ringlet.core.formats.gguf import open_gguf
from ringlet.core.formats.gguf_writer import write_gguf
from ringlet.core.model import load_model
from ringlet.core.quantizing import kept_weights
from ringlet.core.quantizing import weights as quantizing
from ringlet.core.quantizing.blocks import quantize
from ringlet.core.quantizing.plan import FORMATS, checked_format, planned_formats
from ringlet.core.weights import Matrix, ModelWeights

gguf = pytest.importorskip("gguf")


NOT_KEPT = "Warning: the quantised weights cannot be kept, the next start computes them again: "


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def usual_cache() -> str | None:
    """RINGLET_CACHE as it is outside these tests."""
    return os.environ.get("RINGLET_CACHE")


@pytest.fixture(autouse=True)
def room(usual_cache: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder, not there yet, where quantised weights are kept."""
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "quantized"


@pytest.fixture
def poet(embedded_path: Path, tmp_path: Path) -> Path:
    """A copy of the embedded model: 192 and 512 columns, tied, F16."""
    return shutil.copytree(embedded_path, tmp_path / "poet")


def load(source: Path | str | None, format: str | None = "Q4_0", **options: object) -> ModelWeights:
    return load_model(source, architectures(), quantize=format, **options).weights


def same(a: ModelWeights, b: ModelWeights) -> bool:
    mine, theirs = a.matrices(), b.matrices()
    return mine.keys() == theirs.keys() and all(
        matrix.format == theirs[name].format and np.array_equal(matrix.data, theirs[name].data)
        for name, matrix in mine.items()
    )


# --- what becomes what -----------------------------------------------------------------------------------------------


def formats_of(weights: ModelWeights, format: str) -> dict[str, str]:
    """By field, all layers being alike; what is not quantised is not there."""
    return {name.split(".")[-1]: kind for name, kind in planned_formats(weights, format).items()}


LAYER = ("W_q", "W_k", "W_v", "W_o", "W_up", "W_down", "W_gate")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("format", "usual", "of_logits"),
    [
        ("Q8_0", "Q8_0", "Q8_0"),
        ("Q4_0", "Q4_0", "Q6_K"),
        ("Q4_1", "Q4_1", "Q6_K"),
        ("Q4_K", "Q4_K", "Q6_K"),
        ("Q6_K", "Q6_K", "Q6_K"),
    ],
)
def test_rows_of_whole_blocks(tied: bool, format: str, usual: str, of_logits: str) -> None:
    _, weights = random_model(d_model=256, d_k=64, d_v=64, d_ff=512, tied=tied)
    expected = dict.fromkeys(LAYER, usual) | {"embedding": of_logits if tied else usual}
    assert formats_of(weights, format) == expected | ({} if tied else {"W_t": of_logits})


def test_rows_of_no_whole_block_of_256_take_blocks_of_32() -> None:
    _, weights = random_model(d_model=96, d_k=32, d_v=16, d_ff=512, n_heads=3, n_kv_heads=1, tied=True)
    narrow = {name: "Q5_0" for name in LAYER if name not in ("W_o", "W_down")}
    assert formats_of(weights, "Q4_K") == narrow | {"W_down": "Q4_K", "embedding": "Q8_0"}  # W_o: 48 columns
    assert formats_of(weights, "Q6_K") == dict.fromkeys(narrow, "Q8_0") | {"W_down": "Q6_K", "embedding": "Q8_0"}
    assert formats_of(weights, "Q4_0") == dict.fromkeys(narrow, "Q4_0") | {"W_down": "Q4_0", "embedding": "Q8_0"}


def test_learned_positions_stay() -> None:
    _, weights = random_model(
        d_model=64, d_ff=64, learned_positions=True, context_length=32, layers=(LayerConfig(None, None),)
    )
    assert "positions" in weights.matrices()
    assert "positions" not in planned_formats(weights, "Q8_0")


def test_what_is_in_blocks_stays() -> None:
    _, weights = random_model(d_model=64, d_k=16, d_v=16, d_ff=64)
    first = weights.matrices()["layers.0.W_q"]
    held = Matrix(quantize(first.dequantize(), "Q4_1"), "Q4_1", first.n_columns)
    weights = weights.with_matrices({"layers.0.W_q": held})
    assert weights.layers[0].W_q is held
    assert planned_formats(weights, "Q8_0").keys() == weights.matrices().keys() - {"layers.0.W_q"}


@pytest.mark.parametrize("tied", [True, False])
def test_matrices_are_put_in_the_place_of_others(tied: bool) -> None:
    _, weights = random_model(tied=tied, biases=True)
    new = {
        name: Matrix(matrix.data.copy(), matrix.format, matrix.n_columns) for name, matrix in weights.matrices().items()
    }
    changed = weights.with_matrices(new)
    assert changed.matrices() == new
    assert (changed.W_t is changed.embedding) == tied
    assert changed.layers[1].b_q is weights.layers[1].b_q
    assert changed.final_norm is weights.final_norm
    assert weights.with_matrices({}).matrices() == weights.matrices()


@pytest.mark.parametrize("word", ["q8_0", "Q8_0", "q4_K"])
def test_words_in_either_case(word: str) -> None:
    assert checked_format(word) == word.upper()


@pytest.mark.parametrize("word", ["q5_0", "", "int8", 8, "q4_k_m", None, ["q8_0"]])
def test_other_words_are_refused_in_a_line_that_lists_all(word: object) -> None:
    with pytest.raises(RingletError, match=r"^quantize is .*: choose from q8_0, q4_0, q4_1, q4_k, q6_k$"):
        checked_format(word)
    if word is not None:
        with pytest.raises(RingletError, match="quantize is"):
            Pipeline.from_pretrained("./no such model", quantize=word)  # before the model is looked for


# --- the weights are those that the files hold, quantised ------------------------------------------------------------


def check_against(plain: ModelWeights, quantized: ModelWeights, format: str) -> None:
    """Every matrix is what the plan says, made of what the file holds."""
    planned = planned_formats(plain, format)
    assert planned
    for name, matrix in quantized.matrices().items():
        source = plain.matrices()[name]
        if name in planned:
            assert matrix.format == planned[name]
            assert np.array_equal(matrix.data, quantize(source.dequantize(), planned[name])), name
        else:
            assert matrix.format == source.format
            assert np.array_equal(matrix.data, source.data)


@pytest.mark.parametrize("format", FORMATS.values())
def test_the_embedded_model(format: str) -> None:
    plain = load(None, None)
    first, again = load(None, format), load(None, format)
    check_against(plain, first, format)
    assert same(first, again)
    assert first.W_t is first.embedding
    assert first.nbytes < 0.6 * plain.nbytes


def in_float(path: Path, kind: str) -> Path:
    """The fixture "llama" as a GGUF file with its matrices in this format."""
    from float_copy import write_float_copy

    write_float_copy(write_whole_gguf(path.with_name("whole.gguf")), path, kind)
    return path


SOURCES: dict[str, Callable[[Path], Path]] = {
    "a directory": lambda folder: write_whole_directory(folder / "llama"),
    "shards": lambda folder: split_into_shards(write_whole_directory(folder / "llama")),
    "gguf in F16": lambda folder: in_float(folder / "model.gguf", "F16"),
    "gguf in BF16": lambda folder: in_float(folder / "model.gguf", "BF16"),
    "gguf in F32": lambda folder: in_float(folder / "model.gguf", "F32"),
}


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_of_file(source: str, mmap: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = SOURCES[source](tmp_path)
    plain = load(path, None)
    check_against(plain, load(path, "Q8_0", mmap=mmap), "Q8_0")
    check_against(plain, load(path, "Q8_0", mmap=mmap), "Q8_0")  # what was kept
    assert (
        capsys.readouterr().err
        == f"Warning: {path}: 2 matrices stay as they are: their rows are not whole blocks of 32 weights\n" * 2
    )


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_both_backends_compute_with_them(
    backend: str, usual_cache: str | None, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearer to the plain model the more bits there are, and never further than they allow."""
    room.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(kept_weights, "own_folder", lambda *_: (room, ""))
    if usual_cache is None:
        monkeypatch.delenv("RINGLET_CACHE")
    else:
        monkeypatch.setenv("RINGLET_CACHE", usual_cache)  # where the kernels are
    ids = [5, 9, 200, 31, 77, 1000, 3, 12]
    plain = Pipeline.from_pretrained(backend=backend).logits(ids)
    errors = {}
    for word in ("q8_0", "q4_0"):
        pipe = Pipeline.from_pretrained(backend=backend, quantize=word)
        errors[word] = float(np.abs(pipe.logits(ids) - plain).mean() / np.abs(plain).mean())
    assert 0 < errors["q8_0"] < 0.05
    assert errors["q8_0"] < errors["q4_0"] < 0.5


def test_a_model_that_fits_no_block_is_loaded_as_it_is(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_whole_directory(tmp_path / "gpt2", "gpt2")
    assert same(load(path, "Q4_K"), load(path, None))
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "matrices stay as they are: their rows are not whole blocks of 32 weights" in err
    assert not room.exists()


def test_a_quantised_model_is_left_as_it_is_and_that_is_said(
    poet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, weights = load_model(poet, architectures(), quantize="Q4_1").config, load(poet, "Q4_1")
    capsys.readouterr()
    assert quantizing.quantize_weights(weights, "Q8_0", "model.gguf", poet, []) is weights
    n = 7 * config.n_layers + 1
    assert capsys.readouterr().err == (
        f"Warning: model.gguf: {n} matrices are quantised already, as Q4_1, Q8_0; they stay as they are\n"
    )


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_changes_nothing(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantizing, "WEIGHTS_OF_A_TASK", 5000)
    monkeypatch.setattr(quantizing, "WEIGHTS_AT_ONCE", 1100)
    check_against(load(None, None), load(None, "Q4_1", threads=threads), "Q4_1")


def test_a_terminal_sees_how_far_it_is_and_a_pipe_nothing(poet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantizing, "WEIGHTS_OF_A_TASK", 100_000)
    for stream, words in ((Terminal(), ["quantising the weights to q4_0: 50%", "q4_0: 100%"]), (io.StringIO(), [])):
        monkeypatch.setattr(sys, "stderr", stream)
        shutil.rmtree(os.environ["RINGLET_CACHE"], ignore_errors=True)
        load(poet)
        text = stream.getvalue()
        assert all(word in text for word in words)
        assert text.endswith("\r\033[K") if words else not text
    monkeypatch.setattr(sys, "stderr", again := Terminal())
    load(poet)
    assert again.getvalue() == ""


# --- what is kept ----------------------------------------------------------------------------------------------------


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one whenever weights are quantised rather than found."""
    found: list[str] = []
    compute = quantizing._computed

    def noted(matrices: dict, planned: dict, format: str, threads: int | None) -> dict:
        found.append(format)
        return compute(matrices, planned, format, threads)

    monkeypatch.setattr(quantizing, "_computed", noted)
    return found


def test_the_second_time_they_are_mapped(poet: Path, room: Path, computed: list[str]) -> None:
    first, second = load(poet), load(poet)
    assert computed == ["Q4_0"]
    assert same(first, second)
    (file,) = room.iterdir()
    assert file.name.startswith("poet-q4_0-")
    assert file.stat().st_mode & 0o077 == 0 or os.name == "nt"
    assert not second.embedding.data.flags.owndata
    assert not second.embedding.data.flags.writeable
    assert all(matrix.data.ctypes.data % 64 == 0 for matrix in second.matrices().values())
    load(poet, "Q8_0")
    assert computed == ["Q4_0", "Q8_0"]
    assert len(list(room.iterdir())) == 2


def test_the_kept_file_is_whole_for_the_gguf_package_too(poet: Path, room: Path) -> None:
    weights = load(poet)
    (file,) = room.iterdir()
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    assert tensors.keys() == weights.matrices().keys()
    for name, matrix in weights.matrices().items():
        assert tensors[name].tensor_type.name == matrix.format
        assert tuple(tensors[name].shape) == matrix.shape[::-1]
        assert np.array_equal(np.asarray(tensors[name].data).reshape(matrix.data.shape), matrix.data)


def rewrite(path: Path, change: Callable[[bytearray], None], keep_time: bool) -> None:
    status, data = path.stat(), bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def another_number(data: bytearray) -> None:
    data[-1] ^= 1


def all_other_numbers(data: bytearray) -> None:
    start = len(data) // 50
    data[start:] = bytes(byte ^ 1 for byte in data[start:])


@pytest.mark.parametrize(
    ("change", "keep_time"), [(another_number, False), (all_other_numbers, False), (all_other_numbers, True)]
)
def test_a_model_that_has_changed_is_quantised_again(
    change: Callable[[bytearray], None], keep_time: bool, poet: Path, room: Path, computed: list[str]
) -> None:
    before = load(poet)
    before = before.with_matrices(
        {name: Matrix(m.data.copy(), m.format, m.n_columns) for name, m in before.matrices().items()}
    )
    rewrite(poet / "model.safetensors", change, keep_time)
    after = load(poet)
    assert len(computed) == 2
    check_against(load(poet, None), after, "Q4_0")
    assert change is another_number or not same(before, after)
    assert len(list(room.iterdir())) == 1  # the old ones' place


def test_another_model_of_the_same_name_has_a_place_of_its_own(
    poet: Path, room: Path, tmp_path: Path, computed: list[str]
) -> None:
    other = shutil.copytree(poet, tmp_path / "other" / "poet")
    load(poet), load(other), load(poet), load(other)
    assert len(computed) == len(list(room.iterdir())) == 2


def test_an_architecture_whose_tables_have_changed(poet: Path, computed: list[str]) -> None:
    """The same files, but other tensors under our names."""
    found = next(kind for kind in architectures() if kind.name == "llama")
    swapped = dict(found.hf.weights)
    swapped["W_up"], swapped["W_gate"] = swapped["W_gate"], swapped["W_up"]
    other = type("Other", (found,), {"hf": replace(found.hf, weights=swapped)})
    first = load_model(poet, [found], quantize="Q4_0").weights
    second = load_model(poet, [other], quantize="Q4_0").weights
    assert len(computed) == 2
    assert np.array_equal(first.layers[0].W_up.data, second.layers[0].W_gate.data)


def test_other_code_makes_them_again(
    poet: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load(poet)
    elsewhere = shutil.copytree(Path(kept_weights.__file__).parent, tmp_path / "code")
    monkeypatch.setattr(kept_weights, "__file__", str(elsewhere / "kept_weights.py"))
    load(poet)
    assert len(computed) == 1
    (elsewhere / "blocks.py").write_text("# better")
    load(poet)
    assert len(computed) == 2


def damaged(file: Path, damage: str, room: Path) -> None:
    data = bytearray(file.read_bytes())
    if damage in ("a directory", "a pipe"):
        file.unlink()
        file.mkdir() if damage == "a directory" else os.mkfifo(file)
        return
    if damage == "a flipped bit":
        data[len(data) // 2] ^= 4
    elif damage == "a flipped bit at the end":
        data[-65] ^= 128
    elif damage == "a page of zeros":
        data[8192:12288] = bytes(4096)
    elif damage == "pages that have changed places":
        data[8192:12288], data[16384:20480] = data[16384:20480], data[8192:12288]
    elif damage == "cut short":
        del data[-5000:]
    elif damage == "empty":
        data.clear()
    elif damage == "no GGUF":
        data[:4] = b"gguf"
    elif damage == "another origin":
        at = data.index(kept_weights.MADE_FROM.encode()) + len(kept_weights.MADE_FROM) + 12
        data[at] = ord("0") if data[at] != ord("0") else ord("1")
    elif damage == "another format's":
        other = next(path for path in room.iterdir() if "-q4_1-" in path.name)
        data = bytearray(other.read_bytes())
    elif damage == "a hostile head":
        data[8:24] = b"\xff" * 16
    file.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        "a flipped bit", "a flipped bit at the end", "a page of zeros", "pages that have changed places", "cut short",
        "empty", "no GGUF", "another origin", "another format's", "a hostile head", "a directory", "a pipe",
    ],
)  # fmt: skip
def test_what_cannot_be_trusted_is_made_again(damage: str, poet: Path, room: Path, computed: list[str]) -> None:
    if damage == "a pipe" and not hasattr(os, "mkfifo"):
        pytest.skip("no pipes in folders here")
    load(poet, "Q4_1"), load(poet)
    computed.clear()
    (file,) = (path for path in room.iterdir() if "-q4_0-" in path.name)
    damaged(file, damage, room)
    check_against(load(poet, None), load(poet), "Q4_0")
    assert computed == ["Q4_0"]
    if damage != "a directory":  # which nothing can take the place of
        load(poet)
        assert computed == ["Q4_0"]


def test_the_checksum_is_of_every_byte() -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (7, 34 * 41), np.uint8)
    matrices = {"a": Matrix(data, "Q8_0", 32 * 41)}
    whole = kept_weights.checksum(matrices)
    assert whole == kept_weights.checksum({"a": Matrix(data.copy(), "Q8_0", 32 * 41)})
    assert whole != kept_weights.checksum({"b": matrices["a"]})
    for at in [*rng.integers(0, data.size, 200), 0, data.size - 1]:
        data.reshape(-1)[at] ^= 16
        assert kept_weights.checksum(matrices) != whole
        data.reshape(-1)[at] ^= 16
    assert kept_weights.checksum(matrices) == whole


def test_a_model_that_changes_while_it_is_quantised_is_not_kept(
    poet: Path, room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compute = quantizing._computed

    def changing(*arguments: object) -> dict:
        found = compute(*arguments)
        os.utime(poet / "model.safetensors", (1, 1))
        return found

    monkeypatch.setattr(quantizing, "_computed", changing)
    load(poet)
    assert list(room.iterdir()) == []
    assert capsys.readouterr().err == f"{NOT_KEPT}the model has changed meanwhile\n"


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fails", ["write_gguf", "os.replace", "tempfile.mkstemp"])
def test_a_full_disk_costs_a_line(
    fails: str, poet: Path, room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"ringlet.core.quantizing.kept_weights.{fails}", full)
    check_against(load(poet, None), load(poet), "Q4_0")
    assert list(room.iterdir()) == []
    assert capsys.readouterr().err == f"{NOT_KEPT}{room}: {os.strerror(errno.ENOSPC)}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="a device that is always full")
def test_a_disk_that_is_really_full(
    poet: Path, room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        kept_weights.tempfile, "mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), str(room / "x.part"))
    )
    (room.parent).mkdir()
    room.mkdir(mode=0o700)
    (room / "x.part").write_text("")
    check_against(load(poet, None), load(poet), "Q4_0")
    assert list(room.iterdir()) == []
    assert "No space left on device" in capsys.readouterr().err


def test_an_interrupt_leaves_nothing_half_written(poet: Path, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(file: io.BufferedWriter, *_: object) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(kept_weights, "write_gguf", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(poet)
    assert list(room.iterdir()) == []


def test_an_interrupt_ends_the_computing(poet: Path, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def slow(*arguments: object) -> None:
        begun.append(arguments)
        time.sleep(0.01)
        if len(begun) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(quantizing, "WEIGHTS_OF_A_TASK", 1000)
    monkeypatch.setattr(quantizing, "_quantize_rows", slow)
    with pytest.raises(KeyboardInterrupt):
        load(poet)
    assert len(begun) < 100


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="POSIX permissions")
def test_a_folder_that_others_can_write_to_is_not_used(
    poet: Path, room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    room.mkdir(parents=True)
    room.chmod(0o777)
    load(poet)
    assert list(room.iterdir()) == []
    assert "others could have written to" in capsys.readouterr().err


def test_a_cache_that_is_a_file(poet: Path, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    room.parent.write_text("")
    check_against(load(poet, None), load(poet), "Q4_0")
    assert capsys.readouterr().err.count("cannot be kept") == 1


def aged(path: Path, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(path, (then, then))


def test_what_nothing_has_used_for_long_is_removed(poet: Path, room: Path) -> None:
    load(poet)
    (used,) = room.iterdir()
    for name, days in (("old-q4_0-1.gguf", 31), ("new-q4_0-2.gguf", 29), ("a.part", 2), ("b.part", 0.5)):
        (room / name).write_bytes(b"")
        aged(room / name, days)
    aged(used, 400)
    load(poet)  # notes the use, writes nothing
    load(poet, "Q8_0")
    assert {path.name for path in room.iterdir()} >= {used.name, "new-q4_0-2.gguf", "b.part"}
    assert len(list(room.iterdir())) == 4


def test_several_processes_at_once(poet: Path, room: Path) -> None:
    program = (
        "import sys; from ringlet import Pipeline;"
        "pipe = Pipeline.from_pretrained(sys.argv[1], backend='numpy', quantize='q4_0');"
        "print(pipe.logits([1, 2, 3]).tobytes().hex())"
    )
    command = [sys.executable, "-c", program, str(poet)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [process.communicate() for process in running]
    assert {err for _, err in printed} == {""}
    assert len({out for out, _ in printed}) == 1
    assert len(list(room.iterdir())) == 1
    check_against(load(poet, None), load(poet), "Q4_0")


# --- the writer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [1, 3])
def test_what_is_written_is_read_again(n_rows: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    matrices = {
        "a": Matrix(rng.integers(0, 256, (n_rows, 34), np.uint8), "Q8_0", 32),
        "layers.0.W_q": Matrix(rng.integers(0, 256, (n_rows, 288), np.uint8)[:, ::2], "Q4_K", 256),
    }
    path = tmp_path / "file.gguf"
    with path.open("wb") as file:
        write_gguf(file, {"ringlet.poem": "床前明月光"}, matrices)
    opened = open_gguf(path)
    assert opened.metadata["ringlet.poem"] == "床前明月光"
    for name, matrix in matrices.items():
        held = opened.tensors[name].matrix()
        assert (held.format, held.shape) == (matrix.format, matrix.shape)
        assert np.array_equal(held.data, matrix.data)
        assert held.data.ctypes.data % 64 == 0
    assert [tensor.name for tensor in gguf.GGUFReader(path).tensors] == list(matrices)


# --- as llama.cpp does it --------------------------------------------------------------------------------------------


@pytest.mark.reference
@pytest.mark.real_model
@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "number", "pure"),
    [("q4_0", 2, False), ("q4_1", 3, False), ("q8_0", 7, False), ("q6_k", 18, False), ("q4_k", 14, True)],
)
def test_llama_cpp_s_own_tool_makes_the_same_of_smollm2(
    word: str, number: int, pure: bool, smollm2_path: Path, tmp_path: Path
) -> None:
    """Formats and bytes of every matrix. (Its Q4_K_S and Q4_K_M give some layers more bits; "pure" does not.)"""
    llama_cpp = pytest.importorskip("llama_cpp")
    from float_copy import write_float_copy

    source, target = tmp_path / "f16.gguf", tmp_path / "theirs.gguf"
    write_float_copy(smollm2_path, source)
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.pure = number, pure
    assert llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(options)) == 0
    mine, theirs = load(source, FORMATS[word]).matrices(), load(target, None).matrices()
    if pure:  # which makes the embedding Q5_0 too
        del mine["embedding"], theirs["embedding"]
    assert {name: matrix.format for name, matrix in mine.items()} == {name: m.format for name, m in theirs.items()}
    assert all(np.array_equal(matrix.data, theirs[name].data) for name, matrix in mine.items())
