"""`plugins`: what is registered."""

from __future__ import annotations

import click

from ringlet.core.commands.options import json_option
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import print_json, print_lines


@click.group()
def plugins() -> None:
    """Samplers, backends and architectures, from inside and outside; commands from outside."""


@plugins.command("list")
@json_option
@click.pass_context
def list_plugins(ctx: click.Context, as_json: bool) -> None:
    """List what is registered, and where it comes from."""
    from ringlet.core.terminal.plugin_listing import plugin_lines, plugin_rows

    state: CommandState = ctx.obj
    root = ctx.find_root().command
    taken = root.commands if isinstance(root, click.Group) else ()
    commands = state.plugin_commands(taken).values()
    if as_json:
        print_json(plugin_rows(state.plugins, commands))
    else:
        print_lines(plugin_lines(state.plugins, commands))
