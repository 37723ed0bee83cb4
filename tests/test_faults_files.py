"""A model's file that changes while it is mapped, and memory that is not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from whole_models import write_whole_gguf

from ringlet.core.errors import FormatError
from ringlet.core.pipeline import Pipeline

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
BACKENDS = ["numpy", "cpu"]


def rewrite(path: Path) -> None:
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(data[:-1] + b"\0")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))  # where clocks are coarse


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def empty(path: Path) -> None:
    path.write_bytes(b"")


CHANGES = {"written to": rewrite, "cut": cut, "longer": grow, "emptied": empty}


@pytest.fixture
def folder(tmp_path: Path, embedded_path: Path) -> Path:
    """A model in a directory of its own."""
    return Path(shutil.copytree(embedded_path, tmp_path / "model"))


def weights_of(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


@pytest.mark.skipif(os.name == "nt", reason="Windows does not let a mapped file be changed")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_changes_while_it_is_mapped_is_told_before_it_is_read(
    change: Callable[[Path], None], backend: str, folder: Path, tmp_path: Path
) -> None:
    pipe = Pipeline.from_pretrained(folder, backend=backend, context=64)
    pipe.generate("春", 4, seed=1)
    change(weights_of(folder))
    for use in (
        lambda: pipe.generate("春", 4, seed=1),
        lambda: list(pipe.stream("春风", 4)),
        lambda: pipe.generate(["春", "秋"], 4),
        lambda: pipe.logits([1, 2]),
        lambda: pipe.trace("春"),
        lambda: pipe.save_session(tmp_path / "session"),
    ):
        with pytest.raises(FormatError) as caught:
            use()
        assert str(caught.value).startswith(f"{weights_of(folder)}: changed while it was in use: load the model again")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "session").exists()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_is_not_mapped_may_change(change: Callable[[Path], None], backend: str, folder: Path) -> None:
    pipe = Pipeline.from_pretrained(folder, backend=backend, context=64, mmap=False)
    first = pipe.generate("春", 8, seed=1).token_ids
    change(weights_of(folder))
    assert pipe.generate("春", 8, seed=1).token_ids == first


@pytest.mark.skipif(os.name == "nt", reason="Windows does not let a mapped file be replaced")
def test_a_file_that_another_takes_the_place_of_is_still_what_it_was(folder: Path) -> None:
    pipe = Pipeline.from_pretrained(folder, context=64)
    first = pipe.generate("春", 8, seed=1).token_ids
    other = folder / "other"
    other.write_bytes(b"no model")
    os.replace(other, weights_of(folder))
    assert pipe.generate("春", 8, seed=1).token_ids == first
    weights_of(folder).unlink()
    assert pipe.generate("春", 8, seed=1).token_ids == first


@pytest.mark.skipif(os.name == "nt", reason="Windows does not let a mapped file be changed")
def test_a_gguf_file_is_watched_too(tmp_path: Path) -> None:
    write_whole_gguf(tmp_path / "model.gguf")
    pipe = Pipeline.from_pretrained(tmp_path / "model.gguf")
    before = pipe.logits([1, 2])
    np.testing.assert_array_equal(pipe.logits([1, 2]), before)
    cut(tmp_path / "model.gguf")
    with pytest.raises(FormatError, match=r"model\.gguf: changed while it was in use"):
        pipe.logits([1, 2])


NO_MEMORY = """
import resource, sys
from ringlet import Pipeline
from ringlet.core.errors import RingletError

def tokens(pipe):
    return pipe.generate("春", 8, seed=1).token_ids

fresh = Pipeline.from_pretrained(backend=sys.argv[1], context=64)
expected = tokens(fresh)  # and all is imported
pipe = Pipeline.from_pretrained(backend=sys.argv[1], context=int(sys.argv[2]), overflow="slide", threads=2)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size, most))
try:
    tokens(pipe)
    said = "done"
except (RingletError, MemoryError) as error:
    said = f"{type(error).__name__}: {error}"
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(said)
if len(sys.argv) > 3:
    print(tokens(pipe) == tokens(fresh) == expected)
"""


@LINUX
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_memory_beyond_the_weights_is_told_in_one_line_and_not_the_end(backend: str) -> None:
    """Small needs may find room in what is held already; a ring that finds none says so."""
    small = subprocess.run([sys.executable, "-c", NO_MEMORY, backend, "64", "again"], capture_output=True, text=True)
    assert small.returncode == 0, small.stderr
    assert small.stdout.splitlines()[0].startswith(("done", "RingletError: ", "MemoryError: ", "PluginError: "))
    assert small.stdout.splitlines()[1:] == ["True"]
    large = subprocess.run([sys.executable, "-c", NO_MEMORY, backend, "2000000"], capture_output=True, text=True)
    assert large.stdout.startswith("RingletError: the ring needs "), large.stderr
    assert large.stdout.endswith(" GiB and there is less: choose a smaller context\n")
