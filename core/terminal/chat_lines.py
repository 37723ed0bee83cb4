"""Messages as a person types them, or as a pipe brings them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ringlet.core.errors import RingletError
from ringlet.core.terminal.console import decode
from ringlet.core.user_cache import own_folder

HISTORY = "chat_history"
MOST_LINES_KEPT = 1000
FENCE = '"""'  # a line of it begins and ends a message of several lines
PRIVATE = 0o600


class Input(NamedTuple):
    """is_fenced: it is a message, whatever it begins with."""

    text: str
    is_fenced: bool


class ChatLines:
    """is_terminal: a person is there, to be asked for each line; else lines come from standard input as they are."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._is_first = True

    def next(self) -> Input | None:
        """The next line, or the lines between two lines of FENCE; None at the end."""
        line = self._line("> ")
        if line is None:
            return None
        return Input(self._fenced(line[len(FENCE) :]), True) if line.startswith(FENCE) else Input(line, False)

    def _fenced(self, first: str) -> str:
        """What follows a fence, up to the next one. first: the rest of its line."""
        if first.endswith(FENCE):
            return first[: -len(FENCE)]
        lines = [first] if first else []
        while (line := self._line("... ")) is not None and not line.endswith(FENCE):
            lines.append(line)
        if line is not None and line != FENCE:
            lines.append(line[: -len(FENCE)])
        return "\n".join(lines)

    def _line(self, prompt: str) -> str | None:
        if not self.is_terminal:
            return self._piped_line()
        try:
            return input(prompt)
        except EOFError:
            print()
            return None
        except UnicodeDecodeError:
            raise RingletError("the line is not text in the terminal's encoding") from None

    def _piped_line(self) -> str | None:
        data = sys.stdin.buffer.readline()
        if not data:
            return None
        text = decode(data, "standard input") if self._is_first else decode_plain(data)
        self._is_first = False
        return text.rstrip("\r\n")


def decode_plain(data: bytes) -> str:
    """UTF-8, in which a byte order mark is a character like others."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RingletError("standard input is not UTF-8 text; convert it first") from None


@contextmanager
def line_editing(is_wanted: bool) -> Iterator[None]:
    """Lines can be edited, and those of earlier sessions called back, where Python's readline is there.

    They are kept in the user's cache folder, in a file that only the user can read.
    """
    try:
        import readline
    except ImportError:
        readline = None  # type: ignore[assignment]
    folder = own_folder()[0] if is_wanted and readline is not None else None
    if folder is None:
        yield
        return
    path = folder / HISTORY
    with suppress(OSError, ValueError):
        readline.read_history_file(path)
    readline.set_history_length(MOST_LINES_KEPT)
    try:
        yield
    finally:
        with suppress(OSError):
            _make_private(path)
            readline.write_history_file(path)


def _make_private(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, PRIVATE))
    if hasattr(os, "getuid"):
        path.chmod(PRIVATE)
