"""The documentation: its code runs, its commands exist, its tables are complete, its links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import ringlet
from ringlet import Chunk, Completion, Pipeline, SamplerChain, Tokenizer
from ringlet.cli import main
from ringlet.core import hookspecs, plugin_manager
from ringlet.core.batch import Batch
from ringlet.core.candidates import Candidates
from ringlet.core.config import ModelConfig
from ringlet.core.generation.strategies import STRATEGIES
from ringlet.core.loading import architecture
from ringlet.core.loading.layers import Layers
from ringlet.core.parameters import parameters_of
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.sampling import SamplerContext
from ringlet.core.terminal.plugin_listing import plugin_rows, usage
from ringlet.plugins.backends.numpy import NumpyBackend
from ringlet.testing.checks import outcome_of
from ringlet.testing.suite import checks_for, from_files

ENGLISH, CHINESE = "README.md", "README.zh-CN.md"
PYTHON, PYTHON_CHINESE = "docs/python.md", "docs/python.zh-CN.md"
PLUGINS, COMMANDS, GENERATION = "docs/plugins.md", "docs/commands.md", "docs/generation.md"
RELIABILITY = "docs/reliability.md"
TUTORIAL, EXAMPLES = "docs/tutorial.md", "docs/examples.md"
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
PREFIXES = (["ringlet"], ["python", "cli.py"])
SHELL_MARKS = {"|", "<", ">", "&&", ";"}


@dataclass(frozen=True)
class Block:
    """A fenced block. mark: the comment in the line before it."""

    mark: str
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["mark"] or "", match["language"], match["text"]) for match in found]


def command_lines(text: str) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Each command of a shell block, as its own environment variables and its words."""
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        while words:
            end = next((at for at, word in enumerate(words) if word in SHELL_MARKS), len(words))
            command, words = words[:end], words[end + 1 :]
            variables = {}
            while command and re.fullmatch(r"[A-Z_]+=\S*", command[0]):
                name, _, value = command.pop(0).partition("=")
                variables[name] = value
            yield variables, command


def arguments_of(command: list[str]) -> list[str] | None:
    """What Ringlet's command line gets; None where the command is another program's."""
    for prefix in PREFIXES:
        if command[: len(prefix)] == prefix:
            return command[len(prefix) :]
    return None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run a page in. The backend "auto" is numpy, which needs no compiling."""
    monkeypatch.delenv("RINGLET_PLUGINS", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(NumpyBackend, "rank", 1000)
    return tmp_path


# --- the pages' code runs --------------------------------------------------------------------------------------------


class PageRunner:
    """Runs a page's blocks one after the other in a folder, as a reader would."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.installed: list[str] = []  # folders on the path

    def run(self, blocks: list[Block]) -> None:
        for at, block in enumerate(blocks):
            if block.mark.startswith("file: "):
                (self.folder / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                script = self.folder / "block.py"
                script.write_text(block.text, encoding="utf-8")
                runpy.run_path(str(script))
            elif block.language == "sh":
                shown = blocks[at + 1] if at + 1 < len(blocks) and blocks[at + 1].language == "text" else None
                self.run_commands(block, shown)
            elif block.language not in ("text", "toml"):
                raise AssertionError(f"nobody runs a block of {block.language!r}: {block.text}")

    def run_commands(self, block: Block, shown: Block | None) -> None:
        """shown: the error that the page says comes of it; without one the commands succeed.

        A mark such as "exit 1" says otherwise. A line "…" of what is shown stands for any lines.
        """
        code = int(block.mark.removeprefix("exit ")) if block.mark.startswith("exit ") else 2 if shown else 0
        printed = ""
        for variables, command in command_lines(block.text):
            arguments = arguments_of(command)
            if command[:2] == ["pip", "install"]:
                self.install(self.folder / command[-1].partition("[")[0], editable="-e" in command)
            elif command[:3] == ["python", "-m", "pytest"]:
                environment = os.environ | {"PYTHONPATH": os.pathsep.join(self.installed)}
                done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, env=environment)
                assert done.returncode == 0, done.stdout + done.stderr
                assert re.search(r"[1-9]\d* passed", done.stdout)
            else:
                assert arguments is not None, f"nobody runs {command}"
                result = self.ringlet(arguments, variables)
                assert result.exit_code == code, result.output
                assert result.output.strip()
                printed += result.output
        if shown is not None:
            wanted = "".join(
                r"(?:.*\n)*" if line == "…" else f"{re.escape(line)}\n" for line in shown.text.splitlines()
            )
            assert re.fullmatch(wanted, printed.replace(f"{self.folder.resolve()}{os.sep}", "…/")), printed

    def ringlet(self, arguments: list[str], variables: dict[str, str]) -> Result:
        with self.monkeypatch.context() as patched:
            patched.setattr(
                plugin_manager, "_managers", {}
            )  # each command looks for plugins, as in a process of its own
            for name, value in variables.items():
                patched.setenv(name, value)
            return CliRunner().invoke(main, arguments)

    def install(self, package: Path, editable: bool = False) -> None:
        """Build the wheel of a folder with pyproject.toml and put its content on the path.

        An editable one holds what leads Python from site-packages to the folder; here that is put on the path itself.
        """
        kind = "build_editable" if editable else "build_wheel"
        build = f"import sys; from setuptools import build_meta; print(build_meta.{kind}(sys.argv[1]))"
        command = [sys.executable, "-c", build, str(self.folder)]
        done = subprocess.run(command, cwd=package, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        with zipfile.ZipFile(self.folder / done.stdout.splitlines()[-1]) as archive:
            archive.extractall(self.folder / "site")
        for path in (self.folder / "site", *([package] if editable else [])):
            self.installed.insert(0, str(path))
            self.monkeypatch.syspath_prepend(str(path))


def test_the_blocks_of_the_plugin_page_run(
    repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    shutil.copytree(repository / "tests" / "fixtures" / "models" / "phi", folder / "tiny-phi")
    shutil.copy(repository / "data" / "poet" / "tokenizer.json", folder / "tiny-phi")
    PageRunner(folder, monkeypatch).run(blocks_of(repository / PLUGINS))
    assert "[ 0.  1. -1.]" in capsys.readouterr().out


def test_the_blocks_of_the_generation_page_run(
    repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("llguidance")
    PageRunner(folder, monkeypatch).run(blocks_of(repository / GENERATION))
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith('{"title"')]
    assert set(json.loads(printed[-1])) == {"title", "lines", "season"}


def test_the_generation_page_has_every_strategy(repository: Path) -> None:
    usages = {cells[0].strip("`") for cells in rows((repository / GENERATION).read_text(encoding="utf-8"))}
    for cls in STRATEGIES.values():
        assert usage(cls.name, parameters_of(cls)) in usages


@pytest.mark.parametrize("page", [PYTHON, PYTHON_CHINESE])
def test_the_blocks_of_the_python_page_are_one_session_that_prints_what_it_shows(
    page: str, repository: Path, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    blocks, session = blocks_of(repository / page), {"__name__": "__main__"}
    capsys.readouterr()
    n_shown = 0
    for at, block in enumerate(blocks):
        if block.language == "python":
            exec(compile(block.text, f"{page}, block {at}", "exec"), session)
            shown = blocks[at + 1].text if blocks[at + 1 : at + 2] and blocks[at + 1].language == "text" else ""
            assert capsys.readouterr().out == shown
            n_shown += bool(shown)
    assert n_shown >= 15


def public_members(cls: type) -> set[str]:
    return {name for name in {*vars(cls), *getattr(cls, "__dataclass_fields__", ())} if not name.startswith("_")}


@pytest.mark.parametrize("page", [PYTHON, PYTHON_CHINESE])
def test_the_python_page_names_every_public_name_and_method(page: str, repository: Path) -> None:
    """A name in code, in a block or between backticks, alone, with arguments or after a dot."""
    text = (repository / page).read_text(encoding="utf-8")
    code = "\n".join([*(block.text for block in blocks_of(repository / page)), *re.findall(r"`[^`\n]+`", text)])
    named = set(re.findall(r"\w+", code))
    inner = {"observable_backend", "idle_ring", "removed_ids", "check_files", "of_chunks"}  # for Ringlet itself
    wanted = {*ringlet.__all__, *inspect.signature(Pipeline.from_pretrained).parameters} - {"source"}
    wanted |= {*inspect.signature(Pipeline.generate).parameters} - {"self", "prompt"}
    for cls in (Pipeline, Tokenizer, SamplerChain, Completion, Chunk):
        wanted |= public_members(cls)
    assert wanted - inner - named == set()


def test_the_blocks_of_the_examples_run(repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = blocks_of(repository / EXAMPLES)
    PageRunner(folder, monkeypatch).run(blocks)
    assert sum(block.mark.startswith("file: ") for block in blocks) == 3


def test_the_blocks_of_the_tutorial_run_and_end_in_a_package(
    repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package that it ends in is tidy, and found with what its files say of it."""
    runner = PageRunner(folder, monkeypatch)
    runner.run(blocks_of(repository / TUTORIAL))
    rows = json.loads(runner.ringlet(["plugins", "list", "--json"], {}).stdout)
    (meter,) = (row for row in rows if row["name"] == "meter")
    assert (meter["origin"], meter["version"], meter["usage"]) == ("ringlet-meter", "0.1.0", "meter(n=7)")
    runner.install(folder / "ringlet-meter")  # again, now with its own pyproject.toml and README
    metadata = (folder / "site" / "ringlet_meter-0.1.0.dist-info" / "METADATA").read_text(encoding="utf-8")
    assert "Summary: A sampler for Ringlet that writes verse in lines of n characters" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    if shutil.which("ruff") is not None:
        for command in (["check", "--select", "E,F,I,B,UP,SIM,W"], ["format", "--check"]):
            done = subprocess.run(["ruff", *command, folder / "ringlet-meter"], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout


def test_the_model_family_on_the_plugin_page_is_the_tested_one(repository: Path) -> None:
    (shown,) = (block.text for block in blocks_of(repository / PLUGINS) if block.mark == "file: phi.py")
    assert shown == (repository / "tests" / "fixtures" / "plugins" / "phi.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [ENGLISH, CHINESE])
def test_the_readme_s_sampler_and_python_run(
    page: str, repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    sampler, script = (block for block in blocks_of(repository / page) if block.language == "python")
    commands = [block for block in blocks_of(repository / page) if "--plugin top_a.py" in block.text]
    assert len(commands) == 1
    runner = PageRunner(folder, monkeypatch)
    runner.run([Block("file: top_a.py", "python", sampler.text), *commands])
    listed = runner.ringlet(["plugins", "list", "--plugin", "top_a.py"], {}).stdout
    assert "  a: float, 0 to 1; default 0.2" in listed.partition("sampler top_a (top_a.py)\n")[2].splitlines()
    capsys.readouterr()
    if page == ENGLISH:  # the other page's differs in comments only
        runner.run([script])
        assert re.search(r"(stop|length) \d+$", capsys.readouterr().out, re.MULTILINE)


FAULTY = {"faulty.py", "meter.py"}  # of the pages that show how faults are told, and how a draft is made right


def shown_samplers(repository: Path) -> Iterator[tuple[str, str]]:
    """Each sampler on a page, under the page's name and its file's."""
    for page in (ENGLISH, CHINESE, PLUGINS, TUTORIAL, EXAMPLES):
        for block in blocks_of(repository / page):
            name = block.mark.removeprefix("file: ") or "top_a.py"
            if block.language == "python" and "def register_samplers" in block.text and name not in FAULTY:
                yield f"{page} {name}", block.text


def test_every_sampler_shown_passes_the_conformance_suite(repository: Path, folder: Path) -> None:
    samplers = dict(shown_samplers(repository))
    assert len(samplers) >= 8
    for at, (about, text) in enumerate(samplers.items()):
        file = folder / f"shown_{at}.py"
        file.write_text(text, encoding="utf-8")
        plugins = PluginManager([file])
        for subject in from_files(plugins, [file]):
            outcomes = [outcome_of(check) for check in checks_for(subject, plugins)]
            assert [(about, outcome) for outcome in outcomes if outcome.status == "failed"] == []


def test_the_table_of_candidates_says_what_they_have(repository: Path) -> None:
    """Methods are written with their arguments, and what is no method without."""
    text = (repository / PLUGINS).read_text(encoding="utf-8").partition("**Candidates**")[2].partition("<!-- file")[0]
    candidates = Candidates(np.arange(3), np.zeros(3, np.float32), 3)
    members = re.findall(r"`(\w+)(\([^`]*\))?`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)))
    assert len(members) > 10
    for name, arguments in members:
        assert callable(getattr(candidates, name)) == bool(arguments), name
        if arguments:
            names = list(inspect.signature(getattr(candidates, name)).parameters)
            assert arguments == f"({', '.join(names)})"


# --- both languages say the same -------------------------------------------------------------------------------------


def without_comments(block: Block) -> str:
    """What a block does. Python's docstrings count as comments."""
    if block.language == "python":
        tree = ast.parse(block.text)
        for node in ast.walk(tree):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                del node.body[0]
        return ast.dump(tree)
    return re.sub(r"(^|\s)#.*$", "", block.text, flags=re.MULTILINE)


TWINS = pytest.mark.parametrize("twins", [(ENGLISH, CHINESE), (PYTHON, PYTHON_CHINESE)], ids=lambda twins: twins[0])


@TWINS
def test_both_languages_hold_the_same_blocks(twins: tuple[str, str], repository: Path) -> None:
    english, chinese = (blocks_of(repository / page) for page in twins)
    assert [(block.mark, block.language) for block in chinese] == [(block.mark, block.language) for block in english]
    for mine, theirs in zip(english, chinese, strict=True):
        assert without_comments(theirs) == without_comments(mine)


@TWINS
def test_both_languages_have_the_same_outline(twins: tuple[str, str], repository: Path) -> None:
    levels = []
    for page in twins:
        prose = BLOCK.sub("", (repository / page).read_text(encoding="utf-8"))
        levels.append(re.findall(r"^(#+) |^(\| --- )", prose, re.MULTILINE))
    assert levels[0] == levels[1]


def prose_of(page: Path) -> str:
    """A page's text without blocks, code, comments and where its links lead."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"<!--.*?-->|`[^`\n]*`|\]\([^)\n]*\)", "", text, flags=re.DOTALL)


def chinese_pages(repository: Path) -> list[Path]:
    found = [page for page in pages(repository) if page.name.endswith(".zh-CN.md")]
    assert len(found) >= 4
    return found


def test_a_chinese_paragraph_is_one_line(repository: Path) -> None:
    """A line break inside it would be shown as a blank, where Chinese has none."""
    for page in chinese_pages(repository):
        paragraphs = re.split(r"\n\s*\n", BLOCK.sub("\n\n", (repository / page).read_text(encoding="utf-8")))
        lines = (paragraph.strip().splitlines()[1:] for paragraph in paragraphs if paragraph.strip())
        broken = [line for rest in lines for line in rest if not re.match(r"\s*(?:[-*|>#]|\d+\. |!\[|<!--)", line)]
        assert broken == [], page


def test_chinese_pages_have_one_word_for_a_token_and_explain_it_once(repository: Path) -> None:
    for page in chinese_pages(repository):
        found = re.findall(r"(词元（)?\btokens?\b(?! id)", prose_of(repository / page))
        assert found == ["词元（"], page


@pytest.mark.parametrize("page", [ENGLISH, CHINESE])
@pytest.mark.parametrize("mark", ["run", "test"])
def test_the_marked_commands_are_one_line_each(page: str, mark: str, repository: Path) -> None:
    text = (repository / page).read_text(encoding="utf-8")
    assert text.count(f"<!-- {mark} -->") == 1
    (block,) = (block for block in blocks_of(repository / page) if block.mark == mark)
    assert block.language == "sh"
    assert block.text.count("\n") == 1


def test_the_reliability_page_names_tests_that_exist(repository: Path) -> None:
    text = (repository / RELIABILITY).read_text(encoding="utf-8")
    named = set(re.findall(r"\btest_\w+\.py\b", text))
    assert len(named) > 5
    assert not {name for name in named if not (repository / "tests" / name).is_file()}


def test_the_reliability_page_s_measurements_can_be_run(repository: Path) -> None:
    """Their options are parsed; what they measure takes minutes."""
    found = 0
    for block in blocks_of(repository / RELIABILITY):
        for _, command in command_lines(block.text if block.language == "sh" else ""):
            if command[0] == "python" and command[1].startswith("benchmarks/"):
                script = importlib.import_module(Path(command[1]).stem)
                script.main.make_context(command[1], command[2:])
                found += 1
    assert found >= 2


# --- commands and options --------------------------------------------------------------------------------------------


def commands_below(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands that do something, by the words that call them."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for word, below in command.commands.items():
        yield from commands_below(below, f"{name} {word}".strip())


COMMANDS_BY_NAME = dict(commands_below(main))
EVERYWHERE = {"--plugin", "--help", "-h"}  # told once on the page


def section(repository: Path, title: str) -> str:
    """The text under a heading of docs/commands.md."""
    text = (repository / COMMANDS).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{COMMANDS} has no section {title}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of a Markdown text's table rows."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def options_on_page(repository: Path, name: str) -> dict[str, str]:
    """Option → the default that its row gives, of a command's own table and of those that its section links to."""
    text = section(repository, name)
    taken = re.search(r"^It takes .*$", text, re.MULTILINE)
    for title in re.findall(r"\(#(\w+)-options\)", taken[0]) if taken else ():
        text += section(repository, f"{title.capitalize()} options")
    found = {}
    for cells in rows(text):
        for option in re.findall(r"`(--[a-z-]+)", cells[0]):
            assert option not in found, f"{name}: {option} stands in two rows"
            found[option] = cells[1].strip("`")
    return found


@pytest.mark.parametrize("name", COMMANDS_BY_NAME)
def test_every_option_of_a_command_is_on_the_page_and_no_other(name: str, repository: Path) -> None:
    options = {
        option: parameter
        for parameter in COMMANDS_BY_NAME[name].params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if option not in EVERYWHERE
    }
    on_page = options_on_page(repository, name)
    assert set(on_page) == set(options)
    for option, parameter in options.items():
        if parameter.show_default is True:
            assert on_page[option] == str(parameter.default), option


def test_the_page_lists_every_command(repository: Path) -> None:
    text = (repository / COMMANDS).read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`([a-z ]+)`\]", text, re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS_BY_NAME)


@pytest.mark.parametrize("page", [ENGLISH, CHINESE, PLUGINS, COMMANDS, GENERATION, TUTORIAL, EXAMPLES])
def test_every_command_line_on_a_page_can_be_parsed(page: str, repository: Path, folder: Path) -> None:
    for block in blocks_of(repository / page):
        if block.mark.startswith("file: ") and "/" not in block.mark:
            (folder / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
    (folder / "top_a.py").write_text("")
    parsed = 0
    for block in blocks_of(repository / page):
        for _, command in command_lines(block.text) if block.language == "sh" else ():
            arguments = arguments_of(command)
            if arguments is None or arguments[:1] == ["poem"]:
                continue
            called: click.Command = main
            while isinstance(called, click.Group):
                called = called.commands[arguments.pop(0)]
            called.make_context("ringlet", without_plugins(arguments))
            parsed += 1
    assert parsed >= 3


def without_plugins(arguments: list[str]) -> list[str]:
    """The root command takes --plugin out of every command's arguments."""
    return [word for before, word in zip(["", *arguments], arguments, strict=False) if "--plugin" not in (before, word)]


def keys_of(value: object) -> set[str]:
    """Names of all fields of a JSON value."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("generate", ["春", "--max-tokens", "2", "--backend", "numpy", "--logprobs", "1"]),
        ("tokenize", ["春"]),
        ("inspect", []),
        ("explain", ["春"]),
        ("explain", ["--softmax"]),
        ("explain", ["--scaling", "--context", "64", "--backend", "numpy"]),
        ("perplexity", ["text.txt", "--context", "16", "--backend", "numpy"]),
        ("bench", ["--prompt", "2", "--generate", "1", "--repeat", "1", "--backend", "numpy"]),
        ("plugins list", []),
    ],
)
def test_every_field_of_json_is_on_the_page(name: str, arguments: list[str], repository: Path, folder: Path) -> None:
    (folder / "text.txt").write_text("床前明月光，疑是地上霜。" * 4, encoding="utf-8")
    result = CliRunner().invoke(main, [*name.split(), *arguments, "--json"])
    assert result.exit_code == 0, result.output
    value = json.loads(result.stdout)
    if name == "inspect":  # names of weights and of formats are data
        value["weights"] = [group | {"formats": None} for group in value["weights"].values()]
    named = set(re.findall(r"`([a-z_A-Z0-9]+)`", section(repository, name)))
    assert keys_of(value) - named == set()


def test_the_page_has_every_sampler(repository: Path) -> None:
    on_page = {cells[0].strip("`") for cells in rows(section(repository, "Samplers"))} - {"sampler", "---"}
    built_in = {
        row["usage"] for row in plugin_rows(PluginManager()) if (row["kind"], row["origin"]) == ("sampler", "built-in")
    }
    assert on_page == built_in


def test_the_page_has_the_environment_variables_that_are_read(repository: Path) -> None:
    on_page = set(re.findall(r"`(RINGLET_[A-Z_]+)`", section(repository, "Environment variables")))
    rooms = [repository, *(repository / room for room in ("core", "plugins", "tokenization"))]
    files = [path for room in rooms for path in room.glob("*.py" if room is repository else "**/*.py")]
    read = {name for path in files for name in re.findall(r'"(RINGLET_[A-Z_]+)"', path.read_text(encoding="utf-8"))}
    assert on_page == read


# --- the reference on the plugin page is complete --------------------------------------------------------------------


def public_fields(*kinds: type) -> set[str]:
    return {item.name for kind in kinds for item in fields(kind)}


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("## Samplers", public_fields(SamplerContext)),
        ("## Backends", public_fields(Batch)),
        ("### The source table", public_fields(architecture.SourceTable) | architecture.WEIGHT_NAMES),
        ("### Layers", public_fields(Layers)),
        ("### The recipe", public_fields(ModelConfig) - {"architecture", "layers"}),
        ("## How a plugin is found", {name for name in vars(hookspecs) if name.startswith("register_")}),
    ],
)
def test_the_plugin_page_names_everything(title: str, names: set[str], repository: Path) -> None:
    text = (repository / PLUGINS).read_text(encoding="utf-8")
    found = re.search(rf"^{title}\n(.*?)(?=^#+ |\Z)", BLOCK.sub("", text), re.DOTALL | re.MULTILINE)
    assert found is not None
    named = set(re.findall(r"`(\w+)(?:\([\w, ]*\))?`", found[1]))
    assert names - named == set()


# --- links -----------------------------------------------------------------------------------------------------------


def pages(repository: Path) -> list[Path]:
    """Every Markdown page of the repository, but none of what a build or a virtual environment left there."""
    outside = {"build", "dist", "node_modules", "site-packages", "venv"}
    found = (path.relative_to(repository) for path in repository.rglob("*.md"))
    return sorted(p for p in found if not any(part.startswith(".") or part in outside for part in p.parts[:-1]))


def anchors(page: Path) -> set[str]:
    """The fragments that GitHub makes of the page's headings."""
    titles = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_to_files_and_headings_that_exist(repository: Path) -> None:
    checked, broken = 0, []
    for page in pages(repository):
        for link in LINK.finditer(BLOCK.sub("", (repository / page).read_text(encoding="utf-8"))):
            target, _, fragment = link["target"].partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            file = (repository / page).parent / target if target else repository / page
            checked += 1
            if not file.exists() or (fragment and fragment not in anchors(file)):
                broken.append(f"{page}: {link['target']}")
    assert broken == []
    assert checked >= 20
