"""What `plugins list` shows."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable
from typing import Any

from ringlet.core.parameters import ParameterOf, parameters_of
from ringlet.core.plugin_manager import KINDS, PluginManager, Registered
from ringlet.core.terminal.text_tables import table_lines

WIDTH = 80  # columns, for what can be wrapped


def plugin_rows(plugins: PluginManager, commands: Iterable[Registered] = ()) -> list[dict[str, Any]]:
    """Everything registered, by kind, as plain values. usage: how a sampler is written, others' names.

    commands: those that plugins have added.
    """
    return [_row(registered) for registered in _all(plugins, commands)]


def plugin_lines(plugins: PluginManager, commands: Iterable[Registered] = ()) -> list[str]:
    """The same for people: a table; under each sampler what it does, and what its parameters mean and take."""
    listed = _all(plugins, commands)
    cells = [[row["kind"], row["usage"], row["origin"], row["version"] or ""] for row in map(_row, listed)]
    header, *lines = table_lines([["KIND", "NAME", "ORIGIN", "VERSION"], *cells])
    indent = " " * header.index("NAME")
    found = [header]
    for registered, line in zip(listed, lines, strict=True):
        found.append(line)
        for text in _explanations(registered):
            found += textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")
    return found


def _all(plugins: PluginManager, commands: Iterable[Registered]) -> list[Registered]:
    return [*(registered for kind in KINDS for registered in plugins.registry(kind).values()), *commands]


def _explanations(registered: Registered) -> list[str]:
    """A paragraph about a sampler, and one about each of its parameters."""
    if registered.kind != "sampler":
        return []
    texts = [summary] if (summary := _summary(registered)) else []
    for parameter in parameters_of(registered.cls):
        about = f"{parameter.help} ({parameter.accepts})" if parameter.help else parameter.accepts
        texts.append(f"{parameter.name}: {about}")
    return texts


def _summary(registered: Registered) -> str:
    """The first line of its docstring, its own and no base class's; of a command, that of its help."""
    text = registered.cls.help if registered.kind == "command" else vars(registered.cls).get("__doc__")
    return inspect.cleandoc(text).partition("\n")[0] if isinstance(text, str) else ""


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
    """ "top_k(k=40)"; a parameter that must be given stands without a value."""
    if not parameters:
        return name
    written = (
        parameter.name if parameter.required else f"{parameter.name}={parameter.default}" for parameter in parameters
    )
    return f"{name}({', '.join(written)})"


def _described(parameter: ParameterOf) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "type": parameter.type.__name__,
        "required": parameter.required,
        "default": parameter.default,
        "help": parameter.help,
        "minimum": parameter.minimum,
        "maximum": parameter.maximum,
    }
