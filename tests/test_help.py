"""What `--help` shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from ringlet.cli import main
from ringlet.core.host_memory import HOST_DTYPES
from ringlet.core.quantizing.plan import FORMATS
from ringlet.core.terminal.command import OTHER, OWN


def help_of(*words: str) -> str:
    result = CliRunner().invoke(main, [*words, "--help"], terminal_width=80)
    assert result.exit_code == 0, result.output
    return result.stdout


def groups(text: str) -> dict[str, list[str]]:
    """Options by the heading above them."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if heading := re.fullmatch(r"(\w+(?: \w+)*):", line):
            found[heading[1]] = []
        elif found and (option := re.match(r"  (?:-h, )?(--[a-z-]+)", line)):
            found[list(found)[-1]].append(option[1])
    return {heading: options for heading, options in found.items() if options}


def commands(group: click.Group = main, *words: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)
        else:
            yield (*words, name)


def test_options_stand_in_groups() -> None:
    found = groups(help_of("generate"))
    headings = [f"{what} options" for what in ("Model", "Text", "Sampling", "Ring", "Output", "Other")]
    assert list(found) == headings
    for option, heading in (("--model", 0), ("--stop", 1), ("--sampler", 2), ("--sinks", 3), ("--json", 4)):
        assert option in found[headings[heading]]
    assert found[OTHER] == ["--plugin", "--help"]
    assert next(iter(groups(help_of("bench")))) == OWN
    assert list(groups(help_of("tokenize"))) == [OWN]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_option_stands_once_with_its_help_beside_it(words: tuple[str, ...]) -> None:
    command: click.Command = main
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    text = help_of(*words)
    shown = [option for options in groups(text).values() for option in options]
    wanted = [max(p.opts, key=len) for p in command.params if isinstance(p, click.Option)]
    assert sorted(shown) == sorted([*wanted, "--help"])
    columns = {m.end() for m in re.finditer(r"^  (?:-h, )?--[a-z-]+(?: \S+)? {2,}", text, re.MULTILINE)}
    starts = {end - text.rfind("\n", 0, end) for end in columns}
    assert len(starts) == 1


def test_the_choices_are_shown() -> None:
    text = " ".join(help_of("generate").split())
    for choice in (*HOST_DTYPES, *FORMATS, "cuda", "cpu", "numpy", "stop", "slide"):
        assert re.search(rf"\b{choice}\b", text.partition("Examples")[0])


@pytest.mark.parametrize("words", [(), ("plugins",)])
def test_no_summary_of_a_command_is_cut(words: tuple[str, ...]) -> None:
    listed = help_of(*words).partition("Commands:\n")[2].splitlines()
    assert len(listed) >= 3
    for line in listed:
        assert re.fullmatch(r"  [a-z]+ +[A-Z].*[^.]\.", line)
