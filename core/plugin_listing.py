"""What `plugins list` shows."""

from __future__ import annotations

import textwrap
from typing import Any

from ringlet.core.parameters import ParameterOf, parameters_of
from ringlet.core.plugin_manager import KINDS, PluginManager, Registered
from ringlet.core.text_tables import table_lines

WIDTH = 80  # columns, for what can be wrapped


def plugin_rows(plugins: PluginManager) -> list[dict[str, Any]]:
    """Everything registered, by kind, as plain values. usage: how a sampler is written, others' names."""
    return [_row(registered) for registered in _all(plugins)]


def plugin_lines(plugins: PluginManager) -> list[str]:
    """The same for people: a table, and under each sampler what its parameters mean and take."""
    cells = [[row["kind"], row["usage"], row["origin"], row["version"] or ""] for row in plugin_rows(plugins)]
    header, *lines = table_lines([["KIND", "NAME", "ORIGIN", "VERSION"], *cells])
    indent = " " * header.index("NAME")
    found = [header]
    for registered, line in zip(_all(plugins), lines, strict=True):
        found.append(line)
        if registered.kind == "sampler":
            for parameter in parameters_of(registered.cls):
                text = f"{parameter.name}: {parameter.help} ({parameter.accepts})"
                if not parameter.help:
                    text = f"{parameter.name}: {parameter.accepts}"
                found += textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")
    return found


def _all(plugins: PluginManager) -> list[Registered]:
    return [registered for kind in KINDS for registered in plugins.registry(kind).values()]


def _row(registered: Registered) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": registered.kind,
        "name": registered.name,
        "usage": registered.name,
        "origin": registered.origin,
        "version": registered.version,
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
