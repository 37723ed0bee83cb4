"""A model file's bytes: mapped into memory, or read into it."""

from __future__ import annotations

import stat
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np

from ringlet.core.errors import FormatError


def file_bytes(path: Path, map_file: bool = True) -> np.ndarray:
    """The whole file, uint8, read-only. A mapped file is read as its pages are touched and stays open while used.

    Raises FormatError where the file is missing, empty, no regular file, or cannot be opened.
    """
    try:
        check_regular(path)
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise FormatError(f"{path}: the file is empty")
            data = np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_READ) if map_file else file.read(), np.uint8)
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except OSError as error:
        hint = "; without memory-mapping it may still work" if map_file and path.is_file() else ""
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}{hint}") from None
    except MemoryError:
        raise FormatError(f"{path}: too large to read into memory; map it instead") from None
    return data


def check_regular(path: Path) -> None:
    """Raises FormatError for a directory, a device or a pipe: to open a pipe would wait for whoever writes to it."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise FormatError(f"{path}: not a regular file")
