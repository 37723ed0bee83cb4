"""`warmup`: what is compiled and quantised, and what is said of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from random_models import random_model

from ringlet.cli import main
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.plugins.backends.cpu import backend as cpu
from ringlet.plugins.backends.cpu import units
from ringlet.plugins.backends.cpu.tables import all_units, needed_units


def test_all_units_are_those_that_some_model_needs() -> None:
    names = all_units()
    assert len(names) == len(set(names))
    assert names[0] == "step"  # the largest is begun first
    assert {name for name in names if "_" in name} == {
        *(f"{use}_{format}" for use in ("multiply", "unpack") for format in BLOCK_FORMATS),
        *(f"attend_{numbers}" for numbers in units.RING_NUMBERS),
    }
    assert set(needed_units(random_model()[1])) < set(names)
    for name in names:
        assert hasattr(units.source(name), "py_func"), name  # a kernel


@pytest.mark.parametrize("everything", [False, True])
def test_a_backend_compiles_what_is_asked_for(everything: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    config, weights = random_model()
    made = cpu.CpuBackend(config, weights, threads=1)
    asked: list[str] = []
    monkeypatch.setattr(cpu, "machine_code", lambda names: asked.extend(names))
    said = made.warm_up(everything)
    assert asked == (all_units() if everything else needed_units(weights))
    folder, _ = cpu.kernels_folder()
    assert said == f"has its kernels compiled, kept in {folder}"
    monkeypatch.setattr(cpu, "kernels_folder", lambda: (None, "there is no home"))
    assert made.warm_up(everything) == "has its kernels compiled, but not kept: there is no home"


def test_a_backend_that_compiles_nothing_quantises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path))
    result = CliRunner().invoke(main, ["warmup", "--backend", "numpy", "--quantize", "q4_0"])
    assert (result.exit_code, result.output) == (0, "poet (embedded): backend numpy has nothing to compile\n")
    (kept,) = (tmp_path / "quantized").iterdir()
    assert kept.name.startswith("poet-q4_0-")


@pytest.mark.slow
@pytest.mark.parametrize("kv_dtype", ["auto", "f32"])
def test_after_it_nothing_is_compiled_or_quantised(kv_dtype: str, tmp_path: Path) -> None:
    environment = os.environ | {"RINGLET_CACHE": str(tmp_path), "PYTHONUTF8": "1"}
    options = ["--backend", "cpu", "--quantize", "q4_k", "--kv-dtype", kv_dtype]

    def ringlet(*arguments: str) -> str:
        command = [sys.executable, "-m", "ringlet", *arguments, *options]
        done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
        assert done.stderr == ""
        return done.stdout

    def kept() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/**/*") if path.is_file()}

    line = ringlet("warmup")
    assert re.fullmatch(r"poet \(embedded\): backend cpu has its kernels compiled, kept in (.*)\n", line)
    assert line.split()[-1] in {str(path.parent) for path in kept()}
    before = kept()
    ringlet("generate", "春", "--max-tokens", "2")
    assert kept() == before
