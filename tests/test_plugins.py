"""Plugins from files, packages and RINGLET_PLUGINS; and what a faulty one gets."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny_models import PLUGIN as PHI
from whole_models import write_whole_directory

from ringlet import PluginError, RingletError, SamplerChain
from ringlet.cli import main
from ringlet.core import plugin_manager
from ringlet.core.plugin_manager import MOST_MANAGERS, PluginManager, load_plugins

SAMPLER = """
from ringlet import hookimpl

class {cls}:
    name = "{name}"
    def __call__(self, logits, context):
        return logits

@hookimpl
def register_samplers(register):
    register({cls})
"""
HOOK = "from ringlet import hookimpl\n\n@hookimpl\ndef "


@pytest.fixture(autouse=True)
def _no_plugins_from_outside(monkeypatch):
    monkeypatch.delenv("RINGLET_PLUGINS", raising=False)


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes an installed distribution with one entry point, its module holding the text."""

    def make(name: str, module_text: str, version: str = "1.2") -> None:
        folder = tmp_path / "site"
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[ringlet]\nplugin = {name}_module\n")
        (folder / f"{name}_module.py").write_text(module_text)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, f"{name}_module", raising=False)

    return make


def silent(files=()) -> tuple[PluginManager, list[str]]:
    lines: list[str] = []
    return PluginManager(files, lines.append), lines


def test_built_in_plugins_are_there_by_name():
    manager, lines = silent()
    assert {"greedy", "temperature", "top_k", "top_p", "min_p"} <= set(manager.registry("sampler"))
    assert "numpy" in manager.registry("backend")
    assert {"llama", "gpt2", "gemma3", "qwen3"} <= set(manager.registry("architecture"))
    assert dict(manager.registry("observer")) == {}
    assert {found.origin for found in manager.registry("sampler").values()} == {"built-in"}
    assert lines == []


def test_a_file(write):
    path = write("mine.py", '__version__ = "3.1"\n' + SAMPLER.format(cls="Mine", name="mine"))
    found = silent([path])[0].find("sampler", "mine")
    assert (found.cls.__name__, found.kind, found.origin, found.version) == ("Mine", "sampler", path, "3.1")
    assert SamplerChain("mine,greedy", plugins=[path]).sample([1.0, 2.0]) == 1


def test_an_installed_package(package):
    package("shiny", SAMPLER.format(cls="Shiny", name="shiny"))
    manager, lines = silent()
    found = manager.find("sampler", "shiny")
    assert (found.origin, found.version, lines) == ("shiny", "1.2", [])


def test_the_same_plugin_as_a_file_and_as_a_package_says_what_to_drop(package, write, monkeypatch):
    """Whichever of the places it comes from; the one that came first stays."""
    text = SAMPLER.format(cls="Shiny", name="shiny")
    package("shiny", text)
    path = write("shiny.py", text)
    where = "register_samplers: the name 'shiny' is already taken by Shiny"
    leave_out = "leave out --plugin shiny.py (plugins= in Python)"
    with pytest.raises(PluginError) as raised:
        silent([path])
    assert str(raised.value) == f"plugin {path}: {where} (shiny): {leave_out}, or pip uninstall shiny"
    monkeypatch.setenv("RINGLET_PLUGINS", path)
    manager, lines = silent()
    assert manager.find("sampler", "shiny").origin == "shiny"
    said = f"plugin {path}: {where} (shiny): take {path} out of RINGLET_PLUGINS, or pip uninstall shiny"
    assert lines == [f"{said} (skipped)"]
    other = write("other.py", text)
    with pytest.raises(PluginError) as raised:
        silent([path, other])
    assert str(raised.value).startswith(f"plugin {path}: {where} (shiny)")


def test_what_two_files_and_one_alone_clash_over(write, monkeypatch):
    text = SAMPLER.format(cls="Shiny", name="shiny")
    first, second = write("first.py", text), write("second.py", text)
    with pytest.raises(PluginError) as raised:
        silent([first, second])
    drop = "leave out --plugin second.py (plugins= in Python), or leave out --plugin first.py (plugins= in Python)"
    assert str(raised.value) == (
        f"plugin {second}: register_samplers: the name 'shiny' is already taken by Shiny ({first}): {drop}"
    )
    monkeypatch.setenv("RINGLET_PLUGINS", first)
    with pytest.raises(PluginError, match=f"or take {first} out of RINGLET_PLUGINS$"):
        silent([second])
    monkeypatch.delenv("RINGLET_PLUGINS")
    twice = write("twice.py", f"{text}    register(type('Again', (Shiny,), {{}}))\n")
    with pytest.raises(PluginError, match=r"already taken by Shiny \(.*twice.py\): this plugin registers it twice$"):
        silent([twice])
    with pytest.raises(PluginError, match=r"already taken by TopK \(built-in\): give yours another$"):
        silent([write("taken.py", SAMPLER.format(cls="Mine", name="top_k"))])


BACKEND = """
from ringlet import hookimpl
from ringlet.plugins.backends.numpy import NumpyBackend

class Twin(NumpyBackend):
    name = "twin"
    rank = 0

@hookimpl
def register_backends(register):
    register(Twin)
"""


def outcomes(folder: Path, **environment: str) -> tuple[list[dict], dict, str]:
    """What the command line lists, generates with the backend "twin", and says of the model's architecture."""

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, list(arguments), env=environment)
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        return done.stdout

    rows = json.loads(run("plugins", "list", "--json"))
    options = ["--sampler", "greedy", "--max-tokens", "3", "--ignore-eos", "--json"]
    completion = json.loads(run("generate", "the ring", "--model", str(folder), "--backend", "twin", *options))
    return rows, completion, json.loads(run("inspect", str(folder), "--json"))["architecture"]


def test_a_backend_and_an_architecture_from_the_environment(write, tmp_path):
    folder = write_whole_directory(tmp_path / "phi", "phi")
    files = [write("twin.py", BACKEND), str(PHI)]
    rows, completion, architecture = outcomes(folder, RINGLET_PLUGINS=os.pathsep.join(files))
    origins = {(row["kind"], row["name"]): row["origin"] for row in rows}
    assert [origins["backend", "twin"], origins["architecture", "phi"]] == files
    assert (len(completion["token_ids"]), architecture) == (3, "phi")


def test_a_backend_and_an_architecture_from_installed_packages(package, tmp_path, monkeypatch):
    folder = write_whole_directory(tmp_path / "phi", "phi")
    package("twins", BACKEND, version="2.0")
    package("phi_models", PHI.read_text(), version="0.3")
    monkeypatch.setattr(plugin_manager, "_managers", {})  # packages are looked for once in a process
    rows, completion, architecture = outcomes(folder)
    found = {(row["kind"], row["name"]): (row["origin"], row["version"]) for row in rows}
    assert found["backend", "twin"] == ("twins", "2.0")
    assert found["architecture", "phi"] == ("phi_models", "0.3")
    assert (len(completion["token_ids"]), architecture) == (3, "phi")


def test_paths_in_the_environment(write, monkeypatch):
    paths = [write(f"{name}.py", SAMPLER.format(cls="S", name=name)) for name in ("one", "two")]
    monkeypatch.setenv("RINGLET_PLUGINS", os.pathsep.join([*paths, "", " "]))
    registry = silent()[0].registry("sampler")
    assert [registry["one"].origin, registry["two"].origin] == paths
    assert SamplerChain("one,two").sample([0.0]) == 0


def test_files_of_the_same_name_do_not_clash(write):
    first = write("a/plugin.py", SAMPLER.format(cls="A", name="a"))
    second = write("b/plugin.py", SAMPLER.format(cls="B", name="b"))
    registry = silent([first, second])[0].registry("sampler")
    assert registry["a"].cls.__name__ == "A"
    assert registry["b"].cls.__name__ == "B"
    assert registry["a"].cls.__module__ != registry["b"].cls.__module__


def test_a_file_named_twice_is_loaded_once(write, monkeypatch, tmp_path):
    log = tmp_path / "log"
    path = write("mine.py", f"open({str(log)!r}, 'a').write('x')\n" + SAMPLER.format(cls="Mine", name="mine"))
    monkeypatch.setenv("RINGLET_PLUGINS", path)
    (tmp_path / "sub").mkdir()
    manager, lines = silent([path, str(tmp_path / "sub" / ".." / "mine.py")])
    assert "mine" in manager.registry("sampler")
    assert lines == []
    assert silent([path])[0].find("sampler", "mine").cls is manager.find("sampler", "mine").cls
    assert log.read_text() == "x"


def test_a_changed_file_is_loaded_again(write):
    path = write("mine.py", SAMPLER.format(cls="Mine", name="mine"))
    assert "mine" in load_plugins([path]).registry("sampler")
    write("mine.py", SAMPLER.format(cls="Mine", name="four"))  # of the same size, in the same second
    registry = load_plugins([path]).registry("sampler")
    assert "four" in registry
    assert "mine" not in registry
    assert load_plugins([path]) is load_plugins([path])


def test_a_changed_file_of_the_environment_is_loaded_again(write, monkeypatch):
    path = write("mine.py", SAMPLER.format(cls="Mine", name="mine"))
    monkeypatch.setenv("RINGLET_PLUGINS", path)
    assert "mine" in load_plugins().registry("sampler")
    assert load_plugins() is load_plugins()
    write("mine.py", SAMPLER.format(cls="Mine", name="four"))
    registry = load_plugins().registry("sampler")
    assert "four" in registry
    assert "mine" not in registry


def test_the_managers_of_old_files_are_not_kept(write):
    kept = []
    for name in "abcdefghijkl":
        kept.append(weakref.ref(load_plugins([write(f"{name}.py", SAMPLER.format(cls="S", name=name))])))
    gc.collect()
    assert sum(manager() is not None for manager in kept) == MOST_MANAGERS


def test_a_faulty_package_is_reported_with_its_name(package):
    package("rusty", "import nothing_of_this_name")
    _, lines = silent()
    assert lines == ["plugin rusty: import: ModuleNotFoundError: No module named 'nothing_of_this_name' (skipped)"]


def test_an_unknown_name_says_which_plugins_failed(write, monkeypatch):
    path = write("faulty.py", "import nothing_of_this_name")
    monkeypatch.setenv("RINGLET_PLUGINS", path)
    with pytest.raises(RingletError, match=f"unknown sampler 'faulty'.*; plugin {path}: import: ModuleNotFoundError"):
        silent()[0].find("sampler", "faulty")


def test_a_plugin_whose_hook_fails_registers_nothing_of_it(write, monkeypatch):
    text = SAMPLER.format(cls="Half", name="half") + "    1 / 0\n"
    monkeypatch.setenv("RINGLET_PLUGINS", write("half.py", text))
    manager, lines = silent()
    assert "half" not in manager.registry("sampler")
    assert len(lines) == 1


def test_an_interrupt_while_hooks_run_leaves_nothing_half_done(write, monkeypatch):
    interrupted = SAMPLER.format(cls="Mine", name="mine").replace(
        "    register(Mine)",
        "    if first:\n        first.clear()\n        raise KeyboardInterrupt\n    register(Mine)",
    )
    monkeypatch.setenv("RINGLET_PLUGINS", write("mine.py", interrupted + "\nfirst = [True]\n"))
    manager, lines = silent()
    with pytest.raises(KeyboardInterrupt):
        manager.registry("sampler")
    registry = manager.registry("sampler")
    assert set(registry) == {*silent()[0].registry("sampler"), "mine"}
    assert "top_k" in registry
    assert lines == []


def test_a_long_fault_is_cut(write):
    path = write("long.py", "raise TypeError('no match ' * 1000)")
    with pytest.raises(PluginError) as raised:
        PluginManager([path])
    line = str(raised.value)
    assert line.startswith(f"plugin {Path(path).resolve()}: import: TypeError: no match no match")
    assert line.endswith("…")
    assert len(line.partition("TypeError: ")[2]) <= 300


def test_a_missing_file(tmp_path):
    with pytest.raises(PluginError, match=r"import: FileNotFoundError: there is no file .*gone.py"):
        PluginManager([tmp_path / "gone.py"])


def test_reports_go_to_standard_error(write, monkeypatch, capsys):
    monkeypatch.setenv("RINGLET_PLUGINS", write("faulty.py", "1 / 0"))
    PluginManager()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Warning: plugin ")


def test_built_in_plugins_are_cheap_to_import():
    """Neither Numba nor anything as slow comes with the registries."""
    code = (
        "import sys\n"
        "from ringlet.core.plugin_manager import PluginManager\n"
        "manager = PluginManager()\n"
        "print([len(manager.registry(kind)) > 0 for kind in ('sampler', 'backend', 'architecture')])\n"
        "print([name for name in ('numba', 'llvmlite', 'torch', 'tokenizers') if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.home())
    assert ran.stdout.splitlines() == ["[True, True, True]", "[]"]
