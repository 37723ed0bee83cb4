"""What the commands read and print: text to standard output, everything else to standard error."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ringlet.core.errors import RingletError, cause_of
from ringlet.core.terminal.interrupts import raise_lost_interrupt
from ringlet.core.terminal.standard_error import passing_lines as passing_lines
from ringlet.core.terminal.standard_error import warn as warn

if TYPE_CHECKING:
    from ringlet.core.completion import Chunk


def read_text_argument(text: str | None) -> str:
    """The argument itself; standard input for "-", and where there is no argument and no terminal to type at.

    Of standard input the last line break is left out: `echo` writes it, and nobody means it.
    Raises MissingParameter where nothing is given.
    """
    if text is None:
        piped = "" if sys.stdin.isatty() else read_standard_input()
        if not piped:
            ctx = click.get_current_context()
            missing = next(each for each in ctx.command.params if isinstance(each, click.Argument))
            raise click.MissingParameter(ctx=ctx, param=missing, param_hint=repr(missing.human_readable_name))
        return piped.removesuffix("\n")
    if text == "-":
        return read_standard_input().removesuffix("\n")
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes that the locale could not read, each a lone surrogate
        with suppress(UnicodeEncodeError):
            return decode(os.fsencode(text), "the text")
    return text


def read_text_file(path: str, most_bytes: int = -1) -> str:
    """A file's text; standard input for "-". most_bytes: that it may have, for there are devices without end."""
    if path == "-":
        return read_standard_input()
    try:
        with Path(path).open("rb") as file:
            data = file.read(most_bytes + 1 if most_bytes >= 0 else -1)
    except OSError as error:
        raise RingletError(f"{path}: {cause_of(error)}") from None
    if 0 <= most_bytes < len(data):
        raise RingletError(f"{path}: larger than {most_bytes} bytes")
    return with_plain_line_ends(decode(data, path))


def read_standard_input() -> str:
    return with_plain_line_ends(decode(sys.stdin.buffer.read(), "standard input"))


def decode(data: bytes, name: str) -> str:
    """UTF-8, with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RingletError(
            f"{name} is not UTF-8 text: byte 0x{data[error.start]:02x} at {error.start}; convert it first"
        ) from None


def with_plain_line_ends(text: str) -> str:
    """A file from Windows says the same as elsewhere: its line ends, of two characters, become those of one."""
    return text.replace("\r\n", "\n")


def print_json(value: Any) -> None:
    """Escaped where the terminal could not show every character."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(json.dumps(value, ensure_ascii=codecs.lookup(encoding).name != "utf-8"))


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def remark(text: str, verbose: bool) -> None:
    """A line for whoever watches: on standard error, where that is a terminal or the user wants it."""
    if verbose or sys.stderr.isatty():
        click.echo(text, err=True)


def print_chunks(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Their texts as they come, and the end of the line; on a terminal an interrupt or an error ends the line too."""
    printed, written = [], ""
    try:
        for chunk in chunks:
            raise_lost_interrupt()
            click.echo(chunk.text, nl=False)
            printed.append(chunk)
            written = chunk.text or written
    except (KeyboardInterrupt, RingletError) as error:
        is_open = isinstance(error, KeyboardInterrupt) or (written and not written.endswith("\n"))  # ^C is shown, too
        if is_open and sys.stdout.isatty():
            click.echo()
        raise
    if not written.endswith("\n"):
        click.echo()
    return printed


@contextmanager
def progress_bar(verbose: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A function that is told how much is done, of how much, and what there is to say of it.

    On a terminal a bar shows it on standard error until all is done; elsewhere each is a line there, if wanted.
    """
    if not sys.stderr.isatty():
        yield lambda done, total, text: remark(f"{text} ({done} of {total})", verbose)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)
