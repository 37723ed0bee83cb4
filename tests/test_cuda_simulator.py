"""The cuda backend in Numba's simulator: files of tests that run in processes of their own, since the simulator has to
be chosen before Numba is imported."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parent / "cuda_simulator").glob("simulated_*.py"))


def run(files: list[Path], marks: str, repository: Path) -> None:
    """The tests of the files that have these marks; all have to pass."""
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("no numba-cuda, whose simulator this needs: pip install 'ringlet[test]' on Linux")
    command = [sys.executable, "-m", "pytest", "-q", "-m", marks, "-p", "no:cacheprovider", *map(str, files)]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, encoding="utf-8")
    if done.returncode == 5:
        pytest.skip("no test has these marks")  # pytest's code for an empty choice
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]


@pytest.mark.slow  # several minutes
def test_kernels(repository: Path) -> None:
    run(FILES, "not slow", repository)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_kernels_thoroughly(file: Path, repository: Path) -> None:
    run([file], "slow", repository)
