"""What `plugins list` shows: a table where the terminal is wide enough, else one thing below the other."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from ringlet.core.errors import RingletError
from ringlet.core.parameters import ParameterOf, parameters_of
from ringlet.core.plugin_manager import KINDS, PluginManager, Registered, unknown_name
from ringlet.core.sampler_spec import spec_text
from ringlet.core.terminal.columns import aligned, page_width, width_of, wrapped

HEADER = ["KIND", "NAME", "TYPE", "RANGE", "DEFAULT", "WHAT IT DOES", "ORIGIN", "VERSION"]
PROSE = HEADER.index("WHAT IT DOES")  # the column that is wrapped
NARROWEST_PROSE = 30  # characters


def plugin_rows(
    plugins: PluginManager, commands: Iterable[Registered] = (), name: str | None = None
) -> list[dict[str, Any]]:
    """Everything registered, by kind and name, as plain values. usage: how a sampler is written, others' names.

    commands: those that plugins have added. name: only what has it. Raises RingletError where nothing has.
    """
    return [_row(registered) for registered in _named(_all(plugins, commands), name, plugins)]


def plugin_lines(plugins: PluginManager, commands: Iterable[Registered] = (), width: int | None = None) -> list[str]:
    """The same for people: what each does, and what its parameters mean and take.

    width: columns that may be filled; None: those of the terminal.
    """
    listed, width = _all(plugins, commands), width or get_terminal_size().columns
    if not (lines := _table(listed, width)):
        lines = [line for one in listed for line in _stack(one, width, [_summary(one)])]
    return lines


def lines_of_one(plugins: PluginManager, commands: Iterable[Registered], name: str) -> list[str]:
    """What is registered under a name, with all that is said of it. Raises RingletError where nothing is."""
    return [
        line
        for one in _named(_all(plugins, commands), name, plugins)
        for line in _stack(one, page_width(), _description(one).split("\n\n"))
    ]


def _all(plugins: PluginManager, commands: Iterable[Registered]) -> list[Registered]:
    groups = [*(plugins.registry(kind).values() for kind in KINDS), commands]
    return [registered for group in groups for registered in sorted(group, key=lambda one: one.name)]


def _named(listed: list[Registered], name: str | None, plugins: PluginManager) -> list[Registered]:
    """Those of that name, whatever their kind; all for None."""
    found = [registered for registered in listed if name in (None, registered.name)]
    if name is not None and not found:
        raise RingletError(unknown_name("plugin", name, {one.name for one in listed}, plugins.faults))
    return found


def _table(listed: list[Registered], width: int) -> list[str]:
    """No lines where the table would be wider."""
    cells = [HEADER, *(row for registered in listed for row in _table_rows(registered))]
    others = [max(map(width_of, column)) for at, column in enumerate(zip(*cells, strict=True)) if at != PROSE]
    room = width - sum(others) - 2 * len(others)
    if room < NARROWEST_PROSE:
        return []
    lines = []
    for row in cells:
        first, *more = wrapped(row[PROSE], room) or [""]
        lines.append([*row[:PROSE], first, *row[PROSE + 1 :]])
        lines += [[*[""] * PROSE, text, *[""] * (len(HEADER) - PROSE - 1)] for text in more]
    return aligned(lines, [False] * len(HEADER))


def _table_rows(registered: Registered) -> Iterator[list[str]]:
    """One for the class, one for each of its parameters."""
    name, version = registered.name, registered.version or ""
    yield [registered.kind, name, "", "", "", _summary(registered), _shown(registered.origin), version]
    for parameter in _parameters(registered):
        takes = [_type(parameter), _range(parameter), _default(parameter)]
        yield ["", f"  {parameter.name}", *takes, _meaning(parameter), "", ""]


def _stack(registered: Registered, width: int, paragraphs: Iterable[str]) -> Iterator[str]:
    """A line with the name, and below it what there is to say. paragraphs: of its docstring."""
    version = f" {registered.version}" if registered.version else ""
    yield f"{registered.kind} {registered.name} ({_shown(registered.origin)}{version})"
    for paragraph in paragraphs:
        yield from _paragraph(paragraph, width, "  ")
    for parameter in _parameters(registered):
        takes = ", ".join(text for text in (_type(parameter), _range(parameter)) if text)
        default = "must be given" if parameter.required else f"default {_default(parameter)}"
        yield from _paragraph(f"{parameter.name}: {takes}; {default}", width, "  ")
        yield from _paragraph(_meaning(parameter), width, "    ")


def _paragraph(text: str, width: int, indent: str) -> list[str]:
    return [indent + line for line in wrapped(text, width - len(indent))]


def _shown(origin: str) -> str:
    """A file below the current directory without the way there."""
    file, here = Path(origin), Path.cwd()
    return str(file.relative_to(here)) if file.is_absolute() and file.is_relative_to(here) else origin


def _parameters(registered: Registered) -> tuple[ParameterOf, ...]:
    return parameters_of(registered.cls) if registered.kind == "sampler" else ()


def _type(parameter: ParameterOf) -> str:
    return f"{parameter.type.__name__} or none" if parameter.optional else parameter.type.__name__


def _range(parameter: ParameterOf) -> str:
    low, high, above = parameter.minimum, parameter.maximum, parameter.above
    if above is not None:
        return f"above {above:g}" if high is None else f"above {above:g}, to {high:g}"
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    if low is not None:
        return f"{low:g} or more"
    return "" if high is None else f"{high:g} or less"


def _meaning(parameter: ParameterOf) -> str:
    """Its help, and the texts that it may be where there are only these."""
    choices = f"one of {', '.join(parameter.choices)}" if parameter.choices else ""
    return "; ".join(text for text in (parameter.help, choices) if text)


def _default(parameter: ParameterOf) -> str:
    """As it would be written in a chain."""
    if parameter.required:
        return ""
    if parameter.default is None or isinstance(parameter.default, bool):
        return str(parameter.default).lower()
    return repr(parameter.default)


def _summary(registered: Registered) -> str:
    return _description(registered).partition("\n")[0]


def _description(registered: Registered) -> str:
    """Its docstring, its own and no base class's; of a command, its help."""
    text = registered.cls.help if registered.kind == "command" else vars(registered.cls).get("__doc__")
    return inspect.cleandoc(text) if isinstance(text, str) else ""


def _row(registered: Registered) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": registered.kind,
        "name": registered.name,
        "usage": registered.name,
        "origin": registered.origin,
        "version": registered.version,
        "summary": _summary(registered),
    }
    if registered.kind == "sampler":
        parameters = parameters_of(registered.cls)
        row["usage"] = usage(registered.name, parameters)
        row["parameters"] = [_described(parameter) for parameter in parameters]
    return row


def usage(name: str, parameters: tuple[ParameterOf, ...]) -> str:
    """ "top_k(k=40)", as it may stand in a chain; a parameter that must be given stands without a value."""
    if not parameters:
        return name
    written = (
        parameter.name if parameter.required else f"{parameter.name}={spec_text(parameter.default)}"
        for parameter in parameters
    )
    return f"{name}({', '.join(written)})"


def _described(parameter: ParameterOf) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "type": parameter.type.__name__,
        "optional": parameter.optional,
        "required": parameter.required,
        "default": parameter.default,
        "help": parameter.help,
        "minimum": parameter.minimum,
        "maximum": parameter.maximum,
        "above": parameter.above,
        "choices": list(parameter.choices),
    }
