"""`plugins`: what is registered, whether it does as it should, and a package for a new one."""

from __future__ import annotations

from pathlib import Path

import click

from ringlet.core.commands.options import json_option
from ringlet.core.terminal.command import Command
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import print_json, print_lines


@click.group(short_help="List, check and write samplers, backends and model families.")
def plugins() -> None:
    """Samplers, backends and architectures, from inside and outside; commands from outside."""


@plugins.command("list", cls=Command, short_help="List what is registered, and where it comes from.")
@click.argument("name", required=False)
@json_option
@click.pass_context
def list_plugins(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """List what is registered, and where it comes from; of what has the NAME, all that there is to say."""
    from ringlet.core.terminal.plugin_listing import lines_of_one, plugin_lines, plugin_rows

    state: CommandState = ctx.obj
    root = ctx.find_root().command
    taken = root.commands if isinstance(root, click.Group) else ()
    commands = state.plugin_commands(taken).values()
    if as_json:
        print_json(plugin_rows(state.plugins, commands, name))
    elif name is not None:
        print_lines(lines_of_one(state.plugins, commands, name))
    else:
        print_lines(plugin_lines(state.plugins, commands))


@plugins.command("check", cls=Command, short_help="Run the conformance suite on plugins.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--model",
    metavar="MODEL",
    help="For an architecture, a model to read besides the one made up: a GGUF file, a directory, or org/name.",
)
@json_option
@click.pass_context
def check_plugins(ctx: click.Context, names: tuple[str, ...], model: str | None, as_json: bool) -> None:
    """Run the conformance suite on what is registered under NAME, or on all that --plugin FILE registers.

    A sampler may be named with its parameters, as in a chain: "calm(target=3)". Exit code 1 where a check fails.
    """
    from shutil import get_terminal_size

    from ringlet.core.terminal.check_report import passed, report_lines, report_rows
    from ringlet.core.terminal.console import passing_lines
    from ringlet.testing.checks import outcome_of
    from ringlet.testing.suite import checks_for, from_files, named

    state: CommandState = ctx.obj
    if not names and not state.plugin_files:
        raise click.UsageError("nothing to check: give a NAME, or a file with --plugin FILE", ctx)
    subjects = [subject for name in names for subject in named(name, state.plugins)]
    if not names:
        subjects = from_files(state.plugins, state.plugin_files)
    checked = []
    for subject in subjects:
        outcomes = []
        with passing_lines() as tell:
            for check in checks_for(subject, state.plugins, model):
                tell(f"{subject.label}: {check}")
                outcomes.append(outcome_of(check))
        checked.append((subject.registered, outcomes))
        if not as_json:
            print_lines(report_lines(subject.registered, outcomes, get_terminal_size().columns))
    if as_json:
        print_json(report_rows(checked))
    if not all(passed(outcomes) for _, outcomes in checked):
        ctx.exit(1)


@plugins.command("new", cls=Command, short_help="Write a package for a new plugin.")
@click.argument("kind", type=click.Choice(["sampler", "backend", "architecture"]))
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=".",
    show_default=True,
    help="Where the package's folder, ringlet-NAME, is made.",
)
@click.pass_obj
def new_plugin(state: CommandState, kind: str, name: str, directory: Path) -> None:
    """Write a package for a new plugin: it installs, passes its own tests, and is yours to change."""
    from ringlet.core.new_plugin.writer import write_package

    folder = write_package(kind, name, directory, state.plugins)
    print_lines(str(path) for path in sorted(folder.rglob("*")) if path.is_file())
    click.echo(f'Next: cd {folder}, pip install -e ".[test]", python -m pytest', err=True)
