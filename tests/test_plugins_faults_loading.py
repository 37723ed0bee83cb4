"""The matrix: what cannot be loaded or registered, in plugins that the user names and in plugins that are found.

A plugin that the user names (with --plugin, or by using what it brings) ends the command with exit code 2 and one line;
one that is only found is reported, if it cannot be loaded, and the command goes on as if it were not there.
"""

from __future__ import annotations

import json
import os

import pytest
from plugin_texts import architecture, assert_ends, assert_goes_on, backend, commands, hook, run, sampler
from whole_models import write_whole_directory

GENERATE = ["generate", "the king", "--max-tokens", "3", "--ignore-eos", "--seed", "1", "--json"]

LOADING = {
    "import error": ("import nothing_of_this_name", "import: ModuleNotFoundError: No module named 'nothing"),
    "syntax": ("def f(:", "import: SyntaxError: "),
    "no text": ("\0", "import: "),
    "exit": ("import sys; sys.exit(0)", "import: SystemExit: 0"),
    "recursion": ("def f(): f()\nf()", "import: RecursionError: maximum recursion depth"),
    "memory": ("raise MemoryError", "import: MemoryError"),
    "two lines": ("raise OSError('two\\nlines')", "import: OSError: two lines"),
    "generator exit": ("raise GeneratorExit", "import: GeneratorExit"),
    "own kind": ("class Own(BaseException): ...\nraise Own('mine')", "import: Own: mine"),
    "no hook": ("x = 1", "import: no function is marked @hookimpl; the hooks are register_"),
    "unknown hook": (hook("register_sampler", "..."), "import: there is no hook register_sampler; the hooks are"),
    "hook's argument": (
        hook("register_samplers", "...").replace("(register)", "(wrong)"),
        "import: PluginValidationError: ",
    ),
    "hook raises": (hook("register_samplers", "raise GeneratorExit"), "register_samplers: GeneratorExit"),
    "no class": (hook("register_samplers", "register(5)"), "register_samplers: register() takes a class, not int 5"),
    "no name": (hook("register_samplers", "register(object)"), "register_samplers: object has no name: write name ="),
    "a name of two words": (sampler(name="a b"), "register_samplers: Bad: the name 'a b' is not made of letters"),
    "no method": (
        sampler().replace("__call__", "call"),
        "register_samplers: Bad has neither __call__(logits, context) nor pick",
    ),
    "no backend": (
        hook("register_backends", "register(type('B', (), {'name': 'b'}))"),
        "register_backends: B is no sub",
    ),
    "no forward": (
        "from ringlet import Backend\n" + hook("register_backends", "register(type('B', (Backend,), {'name': 'b'}))"),
        "register_backends: B lacks forward",
    ),
    "a rank in words": (backend(line='rank = "high"'), "register_backends: Bad: rank is 'high': a whole number is"),
    "kv_dtype": (
        backend(line='kv_dtype = "q9"'),
        "register_backends: Bad: kv_dtype is 'q9', which is not in kv_dtypes",
    ),
    "no architecture": (
        hook("register_architectures", "register(type('A', (), {'name': 'a'}))"),
        "register_architectures: A is no subclass of ringlet.Architecture",
    ),
    "taken sampler": (sampler(name="top_k"), "register_samplers: the name 'top_k' is already taken by TopK (built-in)"),
    "taken backend": (
        backend().replace('name = "bad"', 'name = "numpy"'),
        "register_backends: the name 'numpy' is already taken by NumpyBackend (built-in)",
    ),
    "taken architecture": (
        architecture("").replace('name = "bad"', 'name = "qwen3"'),
        "register_architectures: the name 'qwen3' is already taken by Qwen3 (built-in)",
    ),
    "taken model type": (
        architecture('hf = replace(Llama.hf, names=("bad", "llama"))'),
        "register_architectures: the model_type 'llama' is already taken by Llama (built-in)",
    ),
    "names in a text": (
        architecture('hf = replace(Llama.hf, names="bad")'),
        "register_architectures: Bad: names is 'bad': a tuple of texts is needed",
    ),
    "recipe": (
        architecture('recipe = {"norm": "rsm"}'),
        "register_architectures: Bad: recipe: norm is 'rsm': choose from rms, layer",
    ),
    "recipe's field": (architecture('recipe = {"normm": "rms"}'), "import: architecture Bad: recipe knows no 'normm'"),
    "parameter": (
        sampler(line="def __init__(self, x: dict): ..."),
        "register_samplers: Bad: parameter x is <class 'dict'>: use int, float, bool or str",
    ),
    "taken command": (
        commands('cli.command("generate")(lambda: None)'),
        "register_commands: the name 'generate' is already taken by another command",
    ),
    "no command": (commands('cli.commands["x"] = 5'), "register_commands: the command 'x' is of type int"),
    "command's name": (
        commands('cli.command("a b")(lambda: None)'),
        "register_commands: the command's name 'a b' is not made of letters",
    ),
    "half a hook": (
        commands('cli.command("half-done")(lambda: None); 1 / 0'),
        "register_commands: ZeroDivisionError: division by zero",
    ),
}
# Faults that a command which needs neither samplers, backends, architectures nor plugins' commands does not meet.
UNSEEN = {name for name, (_, message) in LOADING.items() if message.startswith("register_commands")}


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch):
    for variable in ("RINGLET_PLUGINS", "RINGLET_DEBUG"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "bad.py") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


@pytest.fixture(scope="module")
def generate(tmp_path_factory) -> list[str]:
    """A command, with a tiny Llama."""
    folder = write_whole_directory(tmp_path_factory.mktemp("tiny"))
    return [*GENERATE, "--backend", "numpy", "--model", str(folder)]


@pytest.fixture(scope="module")
def expected_ids(generate) -> list[int]:
    """What the command draws without a plugin."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return json.loads(run(*generate, monkeypatch=monkeypatch).stdout)["token_ids"]


@pytest.mark.parametrize("case", LOADING)
def test_what_cannot_be_loaded_ends_the_command_that_names_it(case, write, generate, monkeypatch):
    text, message = LOADING[case]
    path = write(text)
    assert_ends(run(*generate, "--plugin", path, monkeypatch=monkeypatch), f"plugin {path}: {message}")


@pytest.mark.parametrize("case", LOADING)
def test_what_cannot_be_loaded_is_skipped_where_it_is_only_found(case, write, generate, expected_ids, monkeypatch):
    text, message = LOADING[case]
    path = write(text)
    result = run(*generate, monkeypatch=monkeypatch, RINGLET_PLUGINS=path)
    assert_goes_on(result, expected_ids, None if case in UNSEEN else f"plugin {path}: {message}")
    helped = run("--help", monkeypatch=monkeypatch, RINGLET_PLUGINS=path)
    assert helped.exit_code == 0
    assert "generate" in helped.stdout
    assert "half-done" not in helped.stdout  # of half a hook nothing counts
    if case in UNSEEN:
        assert f"Warning: plugin {path}: {message}" in helped.stderr


@pytest.mark.parametrize("path", ["~nobody_of_this_name/x.py", "gone.py", "x\0.py", "."])
def test_paths_that_lead_to_no_file(path, generate, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert_ends(run(*generate, "--plugin", path, monkeypatch=monkeypatch), "import: ")
    if "\0" not in path:  # which no environment variable can hold
        found = run(*generate, monkeypatch=monkeypatch, RINGLET_PLUGINS=path)
        assert (found.exit_code, found.stderr.count("(skipped)\n")) == (0, 1)


def test_a_plugin_that_prints_does_not_spoil_the_output(write, generate, monkeypatch):
    path = write("print('hello')\n" + sampler("print('drawing'); return logits") + "    print('registered')\n")
    found = run(*generate, "--plugin", path, monkeypatch=monkeypatch)
    assert found.exit_code == 0
    assert len(json.loads(found.stdout)["token_ids"]) == 3
    assert found.stderr == "hello\nregistered\n"


def test_register_may_not_be_kept(write, generate, monkeypatch):
    """A class that comes after its hook has ended is refused where it is registered."""
    kept = sampler().replace("    register(Bad)\n", "    kept.append(register)\n") + "\nkept = []\n"
    late = kept + "\n@hookimpl\ndef register_backends(register):\n    kept[0](Bad)\n"
    message = "register_backends: register() was called when register_samplers had ended"
    assert_ends(run(*generate, "--plugin", write(late), monkeypatch=monkeypatch), message)


def test_two_plugins_that_clash(write, monkeypatch):
    """The first one stays; the second is named."""
    command = commands('cli.command("poem")(lambda: print("first"))')
    one, two = write(command, "one.py"), write(command.replace("first", "second"), "two.py")
    message = f"plugin {two}: register_commands: the name 'poem' is already taken by a command of {one}"
    drop = "leave out --plugin two.py (plugins= in Python), or leave out --plugin one.py (plugins= in Python)"
    assert_ends(run("poem", "--plugin", one, "--plugin", two, monkeypatch=monkeypatch), f"{message}: {drop}")
    message += f": take {two} out of RINGLET_PLUGINS, or take {one} out of RINGLET_PLUGINS"
    found = run("poem", monkeypatch=monkeypatch, RINGLET_PLUGINS=os.pathsep.join([one, two]))
    assert (found.exit_code, found.stdout, found.stderr) == (0, "first\n", f"Warning: {message} (skipped)\n")


def test_a_package_whose_metadata_is_broken(tmp_path, generate, monkeypatch):
    """It hides neither the others nor itself."""
    for name, entry_points in (("good", "[ringlet]\nplugin = good_module\n"), ("broken", "[ringlet]\nplugin\n")):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)
    (tmp_path / "good_module.py").write_text(sampler(name="good"))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = run(*generate, "--sampler", "good", monkeypatch=monkeypatch)
    assert found.exit_code == 0, found.output
    assert "plugin broken: import: " in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("text", [sampler("1 / 0"), backend("1 / 0"), architecture("hf = None")])
def test_what_fails_only_at_work_stands_in_no_other_command_s_way(text, write, generate, expected_ids, monkeypatch):
    path = write(text)
    for environment, named in (({"RINGLET_PLUGINS": path}, []), ({}, ["--plugin", path])):
        result = run(*generate, *named, monkeypatch=monkeypatch, **environment)
        assert_goes_on(result, expected_ids, None)


def test_what_an_error_quotes_moves_no_cursor(tmp_path, monkeypatch):
    """The text of an error may be a stranger's: a file's, a plugin's."""
    loud = tmp_path / "loud.py"
    loud.write_text(r"raise ValueError('a\nb\x1b[2J\x07')")
    found = run("plugins", "list", monkeypatch=monkeypatch, RINGLET_PLUGINS=str(loud))
    assert (found.exit_code, found.stderr.count("\n"), "\x1b" in found.stderr) == (0, 1, False)
    assert r"import: ValueError: a b\x1b[2J\x07 (skipped)" in found.stderr
    found = run("plugins", "list", "--plugin", str(loud), monkeypatch=monkeypatch)
    assert (found.exit_code, found.stderr.count("\n"), "\x1b" in found.stderr) == (2, 1, False)
    assert r"import: ValueError: a b\x1b[2J\x07" in found.stderr
