"""`plugins check`, and the same suite in pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_texts import run, sampler
from tiny_models import FOLDER
from tiny_models import PLUGIN as PHI

GOOD = sampler(line='__doc__ = "Does nothing."')
BAD = sampler("logits[logits < 1e30] = np.nan; return logits", line='__doc__ = "Does harm."')


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch):
    """No plugins, and no terminal whose width would break words of what is told."""
    monkeypatch.delenv("RINGLET_PLUGINS", raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "bad.py") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def test_a_sampler_that_does_as_it_should(write, monkeypatch):
    path = write(GOOD)
    result = run("plugins", "check", "bad", "--plugin", path, monkeypatch=monkeypatch)
    assert (result.exit_code, result.stderr) == (0, "")
    first, *checks, last = result.stdout.splitlines()
    assert first == f"sampler bad ({path})"
    assert len(checks) > 15
    assert {line[:11] for line in checks} == {"  ok       "}
    assert last == f"{len(checks)} checks: {len(checks)} ok"


def test_one_that_does_not(write, monkeypatch):
    """The reason stands below the check; a file alone is checked whole; exit code 1."""
    path = write(BAD)
    result = run("plugins", "check", "--plugin", path, monkeypatch=monkeypatch, COLUMNS="60")
    assert (result.exit_code, result.stderr) == (1, "")
    lines = result.stdout.splitlines()
    at = lines.index("  FAILED   it can be made")
    told = "".join(line.strip() for line in lines[at + 1 : at + 4])
    assert told.replace(" ", "").startswith(f"samplerbad({path}):__call__:returnedNaN")
    assert lines[at + 1].startswith(" " * 13)
    assert "failed" in lines[-1]


def test_json(write, monkeypatch):
    path = write(BAD)
    result = run("plugins", "check", "bad", "top_k(3)", "--json", "--plugin", path, monkeypatch=monkeypatch)
    assert result.exit_code == 1
    bad, top_k = json.loads(result.stdout)
    assert (bad["kind"], bad["name"], bad["origin"], bad["version"]) == ("sampler", "bad", path, None)
    assert (bad["passed"], top_k["name"], top_k["passed"]) == (False, "top_k", True)
    failed = [check for check in bad["checks"] if check["status"] == "failed"]
    assert failed[0]["name"] == "it can be made"
    assert "returned NaN" in failed[0]["reason"]
    assert {check["status"] for check in top_k["checks"]} == {"ok"}
    assert {check["reason"] for check in top_k["checks"]} == {""}


def test_an_architecture_with_a_model(monkeypatch):
    arguments = ["plugins", "check", "phi", "--plugin", str(PHI), "--model", str(FOLDER / "phi")]
    result = run(*arguments, monkeypatch=monkeypatch)
    assert result.exit_code == 0, result.output
    assert f"  ok       {FOLDER / 'phi'}: all of it is read" in result.stdout.splitlines()
    result = run(*arguments[:-1], str(FOLDER / "llama"), monkeypatch=monkeypatch)
    assert result.exit_code == 1
    assert "the architecture 'llama' is not supported" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to check: give a NAME, or a file with --plugin FILE"),
        (["nothing"], "unknown sampler, backend or architecture 'nothing'"),
        (["top_kk"], "did you mean top_k"),
        (["top_k=-1"], "k is -1: a whole number, 0 or more is needed"),
        (["top_k", "--plugin", "gone.py"], "gone.py: import: FileNotFoundError"),
    ],
)
def test_what_cannot_be_checked_is_told_in_a_line(arguments, message, monkeypatch):
    result = run("plugins", "check", *arguments, monkeypatch=monkeypatch)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line


# --- in pytest -------------------------------------------------------------------------------------------------------

TESTS = """
import pytest
from ringlet.testing import checks_of

@pytest.mark.ringlet("bad", plugins=["bad.py"])
def test_marked(ringlet_check):
    ringlet_check()

@pytest.mark.parametrize("check", checks_of("bad_words(words='x')"), ids=str)
def test_plain(check):
    check()

@pytest.mark.ringlet("top_k=3")
@pytest.mark.ringlet("bad_words(words='x')")
def test_two_marks(ringlet_check):
    ringlet_check()
"""
WRONG = """
import pytest

@pytest.mark.ringlet("nothing")
def test_unknown(ringlet_check): ...
"""
UNMARKED = "def test_no_mark(ringlet_check): ...\n"


def pytest_in(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "-ra", *arguments]
    environment = os.environ | {"COLUMNS": "400"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment).stdout


def test_the_suite_in_pytest(write, tmp_path):
    """Asked for by the root's conftest.py; packages that `plugins new` makes ask with -p."""
    write('pytest_plugins = ["ringlet.testing"]\n', "conftest.py")
    write(BAD)
    write(TESTS, "test_it.py")
    write(WRONG, "test_wrong.py")
    write(UNMARKED, "test_unmarked.py")
    told = pytest_in(tmp_path, "--continue-on-collection-errors")
    assert "FAILED test_it.py::test_marked[it can be made] - ringlet.core.errors.PluginError: sampler bad" in told
    assert "FAILED test_it.py::test_marked[one token left]" in told
    assert "test_two_marks[every k in its range works]" not in told  # it passed
    assert "refused: sampler bad_words: the text 'x' needs a tokenizer" in told  # skipped
    assert "FAILED test_it.py::test_two_marks" not in told
    assert "unknown sampler, backend or architecture 'nothing'" in told
    assert 'needs a mark that says what is checked: @pytest.mark.ringlet("name")' in told


def test_nobody_s_pytest_loads_the_suite_unasked():
    from importlib.metadata import entry_points

    assert [entry for entry in entry_points(group="pytest11") if entry.value.startswith("ringlet")] == []
