"""`plugins new`: what it writes installs, passes its own tests, and is listed; what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from plugin_texts import run

KINDS = ("sampler", "backend", "architecture")
BUILD = """
import os, sys
from setuptools import build_meta
for folder in sys.argv[1:]:
    os.chdir(folder)
    build_meta.build_wheel("..")
"""


@pytest.fixture(autouse=True)
def _no_plugins_from_outside(monkeypatch):
    monkeypatch.delenv("RINGLET_PLUGINS", raising=False)


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> list[Path]:
    """A new package of each kind."""
    directory = tmp_path_factory.mktemp("new") / "made" / "on the way"
    with pytest.MonkeyPatch.context() as monkeypatch:
        for kind in KINDS:
            result = run("plugins", "new", kind, f"my_{kind}", "--directory", str(directory), monkeypatch=monkeypatch)
            assert result.exit_code == 0, result.output
            assert [Path(line).exists() for line in result.stdout.splitlines()] == [True] * 5
            assert "Next: cd " in result.stderr
    return [directory / f"ringlet-my-{kind}" for kind in KINDS]


@pytest.fixture(scope="module")
def site(packages) -> Path:
    """The packages installed: their wheels, built as pip builds them."""
    done = subprocess.run([sys.executable, "-c", BUILD, *map(str, packages)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    site = packages[0].parent / "site"
    wheels = sorted(packages[0].parent.glob("*.whl"))
    assert len(wheels) == len(KINDS)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return site


def test_they_pass_their_own_tests(packages, site):
    """In a process of its own, with their own configuration of pytest, where they are installed."""
    for package in packages:
        config = (package / "pyproject.toml").read_text(encoding="utf-8")
        assert 'addopts = "-p ringlet.testing"' in config
    command = [sys.executable, "-m", "pytest", "-p", "ringlet.testing", "--strict-markers", "-c", os.devnull, "-q"]
    tests = [str(next((package / "tests").glob("test_*.py"))) for package in packages]
    environment = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *tests], cwd=site, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_they_are_listed_with_origin_and_version(site, monkeypatch):
    monkeypatch.syspath_prepend(str(site))
    rows = json.loads(run("plugins", "list", "--json", monkeypatch=monkeypatch).stdout)
    found = {(row["kind"], row["name"]): (row["origin"], row["version"]) for row in rows}
    for kind in KINDS:
        assert found[kind, f"my_{kind}"] == (f"ringlet-my-{kind}", "0.1.0")
    result = run("plugins", "check", "my_sampler(margin=2)", monkeypatch=monkeypatch)
    assert result.exit_code == 0, result.output


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_what_building_and_testing_leaves_is_ignored(packages, tmp_path):
    """Where the package stood before it was built is of no importance to git: a copy of its files is tracked whole."""
    for package in packages:
        folder = tmp_path / package.name
        shutil.copytree(package, folder)
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        for made in (
            ".pytest_cache/v",
            "tests/__pycache__",
            f"{package.name}.egg-info",
            "build/lib",
            "dist",
            ".venv/bin",
        ):
            (folder / made).mkdir(parents=True, exist_ok=True)
            (folder / made / "file.pyc").write_text("made")
        command = ["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=all"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (module,) = (path.name for path in package.glob("*.py"))
        tests = [f"tests/{path.name}" for path in (package / "tests").glob("*.py")]
        wanted = {".gitignore", "README.md", "pyproject.toml", module, *tests}
        assert {line.removeprefix("?? ") for line in found.splitlines()} == wanted


def test_the_wheels_have_a_licence_and_a_readme(packages):
    wheel = next(packages[0].parent.glob("ringlet_my_sampler*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("ringlet_my_sampler-0.1.0.dist-info/METADATA").decode()
        entry_points = archive.read("ringlet_my_sampler-0.1.0.dist-info/entry_points.txt").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Dist: ringlet" in metadata
    assert "# ringlet-my-sampler" in metadata
    assert entry_points == "[ringlet]\nmy_sampler = ringlet_my_sampler\n"


@pytest.mark.skipif(shutil.which("ruff") is None, reason="ruff is not installed (it comes with the extra `lint`)")
def test_they_are_tidy(packages):
    for command in (["check", "--select", "E,F,I,B,UP,RUF,SIM,W"], ["format", "--check"]):
        done = subprocess.run(["ruff", *command, *packages], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("sampler", "Top-A", "'Top-A' is no name for a plugin: .*, such as top_a$"),
        ("sampler", "9lives", "'9lives' is no name .*, such as lives$"),
        ("sampler", "a__b", "such as a_b$"),
        ("sampler", "爱", "'爱' is no name for a plugin"),
        ("sampler", "../x", "such as x$"),
        ("sampler", "", "'' is no name for a plugin"),
        ("sampler", "a" * 41, "40 at most$"),
        ("sampler", "lambda", "'lambda' is a word of Python"),
        ("sampler", "top_k", r"the name 'top_k' is already taken by TopK \(built-in\)"),
        ("backend", "numpy", r"the name 'numpy' is already taken by NumpyBackend \(built-in\)"),
        ("architecture", "gemma3_text", r"the model_type 'gemma3_text' is already taken by Gemma3 \(built-in\)"),
        ("stopper", "x", "'stopper' is not one of 'sampler', 'backend', 'architecture'"),
    ],
)
def test_names_that_are_refused(kind, name, message, tmp_path, monkeypatch):
    result = run("plugins", "new", kind, name, "--directory", str(tmp_path), monkeypatch=monkeypatch)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert re.search(message, line)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_another_plugin_has_taken(tmp_path, monkeypatch):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from ringlet import hookimpl\nclass Mine:\n    name = 'mine'\n    def pick(self, logits, context): return 0\n"
        "@hookimpl\ndef register_samplers(register): register(Mine)\n"
    )
    arguments = ["plugins", "new", "sampler", "mine", "--directory", str(tmp_path / "out"), "--plugin", str(plugin)]
    result = run(*arguments, monkeypatch=monkeypatch)
    assert result.exit_code == 2
    assert f"the name 'mine' is already taken by Mine ({plugin})" in result.stderr
    (tmp_path / "ringlet_json.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run("plugins", "new", "sampler", "json", "--directory", str(tmp_path / "out"), monkeypatch=monkeypatch)
    assert "a module ringlet_json is installed already" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("there", ["folder", "empty folder", "file", "link to nothing"])
def test_nothing_is_overwritten(there, tmp_path, monkeypatch):
    target = tmp_path / "ringlet-mine"
    if there == "file":
        target.write_text("mine")
    elif there == "link to nothing":
        target.symlink_to(tmp_path / "nowhere")
    else:
        target.mkdir()
        if there == "folder":
            (target / "README.md").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    result = run("plugins", "new", "sampler", "mine", "--directory", str(tmp_path), monkeypatch=monkeypatch)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{target} exists already: choose another name" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    written = []

    def fails(path, text, **options):
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", fails)
    result = run("plugins", "new", "sampler", "mine", "--directory", str(tmp_path), monkeypatch=monkeypatch)
    assert result.exit_code == 2
    assert "no space left on device" in result.stderr
    assert len(written) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    arguments = ["plugins", "new", "sampler", "mine", "--directory", str(tmp_path / "file" / "below")]
    result = run(*arguments, monkeypatch=monkeypatch)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "choose another --directory" in result.stderr
