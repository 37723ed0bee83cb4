"""Files that a command writes: whole, or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ringlet.core.errors import RingletError, cause_of


def check_writable(path: str) -> None:
    """Fail now, in one line, not after long work: raises RingletError where no such file can be written."""
    target = Path(path).expanduser()
    if target.is_dir():
        raise RingletError(f"{path} is a directory: name a file")
    folder = target.absolute().parent
    if not folder.is_dir():
        raise RingletError(f"{path}: there is no directory {folder}")
    if not os.access(folder, os.W_OK):
        raise RingletError(f"{path}: the directory {folder} cannot be written to")


def write_text_file(path: str, text: str) -> None:
    """The text as UTF-8, under a temporary name until it is complete. Raises RingletError where that cannot be."""
    from tempfile import mkstemp

    check_writable(path)
    target = Path(path).expanduser()
    try:
        handle, temporary = mkstemp(dir=target.absolute().parent, prefix=f".{target.name}.")
    except OSError as error:
        raise RingletError(f"{path}: {cause_of(error)}") from None
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        raise RingletError(f"{path}: {cause_of(error)}") from None
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
