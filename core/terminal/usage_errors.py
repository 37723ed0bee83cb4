"""What is wrong with a command line, in a line with the way out."""

from __future__ import annotations

import re

import click

from ringlet.core.terminal.habits import ours_for

LIKE_AN_OPTION = re.compile(r"--[a-z][a-z_-]*")


def usage_text(error: click.UsageError, called: str | None) -> str:
    """What is wrong with a command line, and whose --help tells more."""
    text = error.format_message()
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter) and error.param:
        is_argument = isinstance(error.param, click.Argument)
        name = error.param.human_readable_name if is_argument else max(error.param.opts, key=len)
        text = f"{name}: {error.message}"
    if isinstance(error, click.NoSuchOption):
        text = unknown_option_text(error)
    command = error.ctx.command_path if error.ctx is not None else called
    return f"{text.rstrip('.')} (see: {command} --help)" if command else text


def unknown_option_text(error: click.NoSuchOption) -> str:
    """With the way out where another program's option was meant, or a text that begins with a dash."""
    name, text = error.option_name, error.format_message()
    parameters = error.ctx.command.params if error.ctx is not None else []
    ours = ours_for(name, {word for parameter in parameters for word in (*parameter.opts, parameter.name or "")})
    if ours is not None:
        return f"No such option {name!r}: write {ours}"
    takes_text = any(isinstance(parameter, click.Argument) for parameter in parameters)
    if takes_text and not LIKE_AN_OPTION.fullmatch(name):
        return f"{text.rstrip('.')}: put -- before a text that begins with a dash"
    return text
