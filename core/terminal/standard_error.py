"""Lines for whoever watches, on standard error; from code that the command line is not the only one to call."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ringlet.core.errors import one_line


def warn(text: str) -> None:
    """A line about what the user may not have meant, or may want to mend; the program goes on."""
    if sys.stderr is not None:
        print(f"Warning: {one_line(text)}", file=sys.stderr)


@contextmanager
def passing_lines() -> Iterator[Callable[[str], None]]:
    """A function that shows a line until the next one comes, where standard error is a terminal; else it shows nothing.

    It may be called from several threads. Nothing is left of the last line.
    """
    stream = sys.stderr
    shown = stream is not None and stream.isatty()

    def tell(text: str) -> None:
        if shown:
            width = shutil.get_terminal_size().columns - 1  # a longer line would not be wiped out whole
            stream.write(f"\r\033[K{text[:width]}")
            stream.flush()

    try:
        yield tell
    finally:
        tell("")
