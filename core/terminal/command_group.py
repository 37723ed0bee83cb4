"""The command line's root: plugins are read before commands are resolved, and errors become exit codes inside it.

Exit codes: 0 done; 2 the user's mistake, in one line; 1 anything else; 130 after Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ringlet.core.errors import PluginError, RingletError, fault_text, one_line
from ringlet.core.terminal.interrupts import INTERRUPTED, awaited, quiet_elsewhere
from ringlet.core.terminal.usage_errors import usage_text

if TYPE_CHECKING:
    from ringlet.core.plugin_manager import PluginManager, Registered

DEBUG_VARIABLE = "RINGLET_DEBUG"
PLUGIN_OPTION = "--plugin"
SHOWS_HELP: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.2 and later


@dataclass
class CommandState:
    """What every command finds in `ctx.obj`. plugin_files: those named by --plugin."""

    plugin_files: tuple[str, ...] = ()
    _commands: Mapping[str, Registered] | None = field(default=None, repr=False)

    def plugin_commands(self, taken: Collection[str]) -> Mapping[str, Registered]:
        """The plugins' commands by name, asked for once, so that a faulty plugin is reported once."""
        if self._commands is None:
            added = self.plugins.add_commands(lambda: PluginCommands(taken))
            self._commands = {registered.name: registered for registered in added}
        return self._commands

    @property
    def plugins(self) -> PluginManager:
        from ringlet.core.plugin_manager import load_plugins

        return load_plugins(self.plugin_files)


class RootGroup(click.Group):
    """A click Group whose commands may come from plugins; it and every one of them takes --plugin FILE."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        take_plugin_option(self)

    def main(self, *arguments: Any, **options: Any) -> Any:
        open_missing_streams()
        with quiet_elsewhere():
            return super().main(*arguments, **options)

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        if info_name is not None and info_name.endswith(".py"):
            info_name = f"python {info_name}"
        with errors_become_exit_codes(lambda: info_name):
            return super().make_context(info_name, args, *rest, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = CommandState(plugin_files(args))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with errors_become_exit_codes(lambda: f"{ctx.command_path} {ctx.invoked_subcommand}"):
            prepare_streams()
            with self._faults_of_plugins_named(ctx):
                result = super().invoke(ctx)
            sys.stdout.flush()
            return result

    @contextmanager
    def _faults_of_plugins_named(self, ctx: click.Context) -> Iterator[None]:
        """What a plugin's command raises, and was not meant for the user, names the command and the plugin."""
        try:
            yield
        except (click.ClickException, click.exceptions.Exit, click.Abort, KeyboardInterrupt, SystemExit, RingletError):
            raise
        except BaseException as error:
            name = ctx.invoked_subcommand
            if name is None or name in self.commands or is_closed_pipe(error) or is_full_disk(error):
                raise
            label = ctx.obj.plugin_commands(self.commands)[name].label
            raise PluginError(f"command {label}: {fault_text(error)} (set {DEBUG_VARIABLE}=1 to see where)") from error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is None or ctx.ensure_object(CommandState).plugin_files:
            # Even for a command of ours, so that the faults of a plugin that the user named come at once.
            from_plugins = self._from_plugins(ctx)
            command = command or from_plugins.get(cmd_name)
        if command is not None:
            take_plugin_option(command)
        return command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self._from_plugins(ctx)})

    def _from_plugins(self, ctx: click.Context) -> Mapping[str, click.Command]:
        added = ctx.ensure_object(CommandState).plugin_commands(taken=self.commands)
        return {name: registered.cls for name, registered in added.items()}


class PluginCommands(click.Group):
    """What plugins are handed to add their commands to. taken: names they may not use."""

    def __init__(self, taken: Collection[str]) -> None:
        super().__init__()
        self._taken = taken

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        name = name or cmd.name
        if name in self._taken or name in self.commands:
            raise PluginError(f"the name {name!r} is already taken by another command")
        super().add_command(cmd, name)


def plugin_files(args: list[str]) -> tuple[str, ...]:
    """Every --plugin FILE of a command line, wherever it stands."""
    found = []
    until = args.index("--") if "--" in args else len(args)
    for at, argument in enumerate(args[:until]):
        if argument == PLUGIN_OPTION and at + 1 < until:
            found.append(args[at + 1])
        elif argument.startswith(f"{PLUGIN_OPTION}="):
            found.append(argument.removeprefix(f"{PLUGIN_OPTION}="))
    return tuple(found)


def take_plugin_option(command: click.Command) -> None:
    """Let the command, and those below it, take the option; `RootGroup.parse_args` has read it already."""
    if not any(PLUGIN_OPTION in parameter.opts for parameter in command.params):
        option = click.Option(
            [PLUGIN_OPTION],
            multiple=True,
            metavar="FILE",
            expose_value=False,
            help="A plugin file; may be given several times.",
        )
        command.params.append(option)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            take_plugin_option(below)


class OneLineError(click.ClickException):
    """Printed as "Error: …"; exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class UserError(OneLineError):
    exit_code = 2


@contextmanager
def errors_become_exit_codes(called: Callable[[], str | None]) -> Iterator[None]:
    """Whatever a command raises, as what click ends the process with. called: its name, where an error has none."""
    try:
        with awaited():
            yield
    except SHOWS_HELP:
        raise
    except click.UsageError as error:
        raise UserError(usage_text(error, called())) from error
    except (click.ClickException, click.exceptions.Exit, click.Abort, SystemExit):
        raise
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except RingletError as error:
        print_traceback_if_wanted()
        raise UserError(str(error)) from error
    except BaseException as error:  # a command may come from a plugin
        if is_closed_pipe(error):
            discard_output()
            raise click.exceptions.Exit(0) from None
        if is_full_disk(error):
            discard_output()
            raise OneLineError(f"the output cannot be written: {os.strerror(errno.ENOSPC)}") from None
        print_traceback_if_wanted()
        raise OneLineError(f"{fault_text(error)} (set {DEBUG_VARIABLE}=1 to see where)") from error


def is_full_disk(error: BaseException) -> bool:
    """Whether there is no space left for the output, which is of no file that we opened."""
    return isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None


def is_closed_pipe(error: BaseException) -> bool:
    """Whether the reader of standard output has gone; Windows calls that an invalid argument, of no file."""
    if isinstance(error, BrokenPipeError):
        return True
    return isinstance(error, OSError) and os.name == "nt" and error.errno == errno.EINVAL and error.filename is None


def print_traceback_if_wanted() -> None:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()


def open_missing_streams() -> None:
    """A standard stream that was closed before we began is None: put one in its place that reads and writes nothing.

    It takes the lowest free number, so that no file of ours becomes standard output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open as long as the process


def prepare_streams() -> None:
    """Files and pipes get UTF-8, whatever the locale; a terminal that cannot show a character shows "?" for it."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(**({"errors": "replace"} if stream.isatty() else {"encoding": "utf-8"}))


def discard_output() -> None:
    """The reader of standard output has gone; what Python still flushes at its end must not fail again."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
