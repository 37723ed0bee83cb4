"""benchmarks/gpu.py and gpu_bytes.py, as far as they go without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import gpu
import gpu_bytes
import pytest
from click.testing import CliRunner
from on_gpu.models import SHAPES, bytes_read, config_of, operations, ring_bytes_read, synthetic
from on_gpu.report import Report, Share, shown

from ringlet.core.backend import Missing

MOST_SECONDS = 120  # one minute where nothing else runs


@pytest.mark.slow
def test_every_part_runs_in_the_simulator(repository: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("no numba-cuda, whose simulator this needs")
    command = [sys.executable, "benchmarks/gpu.py", "--tiny", "--json", str(tmp_path / "found.json")]
    environment, begin = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}, time.monotonic()
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - begin < MOST_SECONDS
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["faults"] == []
    kernels, logits, model = (
        found["parts"][title]["tables"] for title in ("Every kernel against NumPy", "Logits", "A model of tiny")
    )
    assert {row["family"] for row in kernels[0]} == set(FAMILIES)
    assert all(row["wrong"] == "–" and row["kernels"] >= 1 for row in kernels[0])
    assert all(0 < row["KL cuda"] < 0.01 for row in logits[0])
    assert [(row["work"], row["depth"], row["batch"]) for row in model[0]] == [
        ("decode", 0, 1),
        ("decode", 40, 2),
        ("prompt", 10, 1),
    ]
    assert len(model) == 4  # the speeds, and three steps kernel by kernel
    assert all(row["moved / least"] >= 1 for table in model[1:] for row in table)


FAMILIES = (
    "repack", "angles", "normalise", "hidden", "soft_cap", "likeliest", "lookup", "byte_product", "float_product",
    "tile_product", "attention", "float_attention",
)  # fmt: skip


def test_without_a_gpu_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "missing", lambda: Missing("no GPU is here"))
    done = CliRunner().invoke(gpu.main, [])
    assert done.exit_code == 2
    assert done.stderr == "Error: no GPU is here\n"
    assert done.stdout == ""


def test_all_parts_together_stay_under_eight_minutes() -> None:
    assert sum(gpu.SECONDS.values()) <= gpu.MOST_SECONDS < 480
    assert set(SHAPES) <= set(gpu.SECONDS)


def test_a_part_that_fails_is_told_and_the_next_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    report = Report(60, tmp_path / "found.json")

    def fails(part) -> None:
        part.fact("before", 3)
        raise RuntimeError("no luck")

    report.run("first", 1, fails)
    report.run("second", 1, lambda part: part.table("a", "b").row("x", 0.5))
    assert report.end() == 1
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["faults"] == ["first: RuntimeError: no luck"]
    assert found["parts"]["first"]["facts"] == {"before": 3}
    assert found["parts"]["second"]["tables"] == [[{"a": "x", "b": 0.5}]]
    assert "| x | 0.5 |" in capsys.readouterr().out


def test_how_numbers_are_shown() -> None:
    assert [shown(value) for value in (None, Share(0.734), 12345.6, 0.01234, "x", 7)] == [
        "–",
        "73%",
        "12,346",
        "0.0123",
        "x",
        "7",
    ]


def test_bytes_and_operations_of_a_model() -> None:
    """From the published sizes: 8.03e9 weights, of which the embedding's 0.53e9 are not multiplied."""
    config, weights = synthetic("8B", SHAPES["8B"], filled=False)
    embedding = config.d_vocab * config.d_model
    n_weights = sum(matrix.shape[0] * matrix.shape[1] for matrix in weights.matrices().values())
    assert n_weights == pytest.approx(8.03e9, rel=0.001)
    assert operations(config, 1, 1) == pytest.approx(2 * (n_weights - embedding), rel=0.001)
    assert bytes_read(config, weights) == weights.nbytes - weights.embedding.nbytes
    assert ring_bytes_read(config, 1000) == 1000 * 32 * 8 * 256 * 2
    tied = config_of("1.5B", SHAPES["1.5B"])
    assert operations(tied, 4096, 1) > 4096 * operations(tied, 1, 0)


@pytest.mark.slow
def test_the_page_holds_the_tables_of_bytes(repository: Path) -> None:
    page = (repository / "docs" / "cuda.md").read_text(encoding="utf-8")
    kept = re.search(r"<!-- bytes -->\n\n(.*?)\n\n<!-- /bytes -->", page, re.DOTALL)
    assert kept is not None
    assert kept[1] == "\n\n".join(gpu_bytes.tables())


@pytest.mark.slow
def test_the_page_holds_the_table_of_what_leaves_the_gpu(repository: Path) -> None:
    page = (repository / "docs" / "cuda.md").read_text(encoding="utf-8")
    assert f"<!-- leaving -->\n\n{gpu_bytes.table_of_leaving()}\n\n<!-- /leaving -->" in page
