"""What `plugins list` shows: a table, one thing below the other, JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringlet.cli import main
from ringlet.core.terminal.columns import width_of

MANY = """
from typing import Annotated, Literal
import click
from ringlet import Parameter, hookimpl

__version__ = "3.1"

class Many:
    \"\"\"Does nothing, with 我爱你 many parameters.

    More of it.
    \"\"\"

    name = "many"

    def __init__(
        self,
        mark: Annotated[str, Parameter("where to end")],
        share: Annotated[float, Parameter("of everything " * 10, minimum=0, maximum=1)] = 0.5,
        most: Annotated[int | None, Parameter(maximum=9)] = None,
        loud: bool = False,
        side: Annotated[Literal["left", "right"], Parameter("where")] = "left",
        rate: Annotated[float, Parameter("how fast", above=0)] = 1.0,
    ): ...

    def __call__(self, logits, context):
        return logits

@hookimpl
def register_samplers(register):
    register(Many)

@hookimpl
def register_commands(cli):
    @cli.command()
    def greet():
        "Greets."
"""


@pytest.fixture(autouse=True)
def _no_plugins_from_outside(monkeypatch):
    monkeypatch.delenv("RINGLET_PLUGINS", raising=False)


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    path = tmp_path / "many.py"
    path.write_text(MANY, encoding="utf-8")
    return str(path)


def listed(*arguments: str, columns: int = 80) -> Result:
    result = CliRunner().invoke(main, ["plugins", "list", *arguments], env={"COLUMNS": str(columns)})
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result


def test_json_has_everything(plugin):
    rows = json.loads(listed("--json", "--plugin", plugin).stdout)
    (top_k,) = [row for row in rows if row["name"] == "top_k"]
    assert (top_k["kind"], top_k["origin"], top_k["version"]) == ("sampler", "built-in", None)
    (k,) = top_k["parameters"]
    assert (k["name"], k["type"], k["default"], k["minimum"]) == ("k", "int", 40, 0)
    (many,) = [row for row in rows if row["name"] == "many"]
    assert (many["origin"], many["version"]) == (plugin, "3.1")
    assert many["summary"] == "Does nothing, with 我爱你 many parameters."
    told = {parameter["name"]: parameter for parameter in many["parameters"]}
    assert told["mark"]["required"]
    assert told["most"]["optional"]
    assert (told["side"]["choices"], told["rate"]["above"]) == (["left", "right"], 0)
    assert {row["kind"] for row in rows} >= {"sampler", "backend", "architecture", "command"}


def test_one_alone_is_told_with_all_of_its_docstring(plugin):
    lines = listed("many", "--plugin", plugin).stdout.splitlines()
    assert lines[:3] == [
        f"sampler many ({plugin} 3.1)",
        "  Does nothing, with 我爱你 many parameters.",
        "  More of it.",
    ]
    shown = listed("--plugin", plugin).stdout.splitlines()
    at = shown.index(lines[0])
    assert lines[3:] == shown[at + 2 : at + 2 + len(lines[3:])]  # its parameters, as in the list
    assert "More of it." not in "\n".join(shown)
    assert listed("many", "--plugin", plugin, columns=200).stdout.startswith(lines[0])
    (row,) = json.loads(listed("many", "--json", "--plugin", plugin).stdout)
    assert row in json.loads(listed("--json", "--plugin", plugin).stdout)
    assert listed("greet", "--plugin", plugin).stdout.splitlines()[1:] == ["  Greets."]


def test_a_name_that_nothing_has(plugin):
    result = CliRunner().invoke(main, ["plugins", "list", "mony", "--plugin", plugin])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: unknown plugin 'mony': did you mean many?\n"


def test_names_are_in_order(plugin):
    rows = json.loads(listed("--json", "--plugin", plugin).stdout)
    kinds = ["sampler", "backend", "architecture", "observer", "command"]
    assert rows == sorted(rows, key=lambda row: (kinds.index(row["kind"]), row["name"]))


def test_the_commands_of_plugins(plugin):
    rows = json.loads(listed("--json", "--plugin", plugin).stdout)
    (greet,) = [row for row in rows if row["kind"] == "command"]
    assert (greet["name"], greet["origin"], greet["summary"]) == ("greet", plugin, "Greets.")
    assert f"command greet ({plugin} 3.1)" in listed("--plugin", plugin).stdout.splitlines()
    assert "command" not in listed().stdout


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_narrow_terminals_get_one_thing_below_the_other(plugin, columns):
    lines = listed("--plugin", plugin, columns=columns).stdout.splitlines()
    at = lines.index(f"sampler many ({plugin} 3.1)")
    told = " ".join(" ".join(lines[at + 1 : -2]).split())
    assert told.startswith("Does nothing, with 我爱你 many parameters.")
    assert "mark: str; must be given where to end" in told
    assert "share: float, 0 to 1; default 0.5 " + "of everything " * 10 in told
    assert "most: int or none, 9 or less; default none" in told
    assert "loud: bool; default false" in told
    assert "side: str; default 'left' where; one of left, right" in told
    assert "rate: float, above 0; default 1.0 how fast" in told
    assert max(width_of(line) for line in lines if line.startswith(" ")) <= columns


def test_wide_terminals_get_a_table(plugin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the file is shown without the way to it
    lines = listed("--plugin", plugin, columns=150).stdout.splitlines()
    assert lines[0].split() == ["KIND", "NAME", "TYPE", "RANGE", "DEFAULT", "WHAT", "IT", "DOES", "ORIGIN", "VERSION"]
    at = next(at for at, line in enumerate(lines) if re.match("sampler +many ", line))
    assert re.fullmatch(r"sampler +many +Does nothing, with 我爱你 many parameters. +many.py +3.1", lines[at])
    assert re.fullmatch(r" +mark +str +where to end", lines[at + 1])
    assert re.match(r" +share +float +0 to 1 +0.5 +of everything of everything", lines[at + 2])
    assert max(map(width_of, lines)) <= 150
    prose = lines[0].index("WHAT IT DOES")
    assert all(len(line) < prose or line[prose - 1] == " " for line in lines)
    told = " ".join(line[prose : lines[0].index("ORIGIN")] for line in lines)
    assert "of everything " * 10 in " ".join(told.split())
