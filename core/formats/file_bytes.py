"""A model file's bytes: mapped into memory, or read into it."""

from __future__ import annotations

import os
import stat
import weakref
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ringlet.core.errors import FormatError, cause_of


class MappedFile(mmap):
    """A file mapped into memory, which tells when the file is no longer what it was then.

    A file that takes its place under the same name changes nothing: what is mapped stays.
    """

    _path: Path
    _file: BinaryIO
    _stamp: tuple[int, int]

    @classmethod
    def of(cls, path: Path, file: BinaryIO) -> MappedFile:
        """file: open for reading, not empty; it stays open as long as the map."""
        mapped = cls(file.fileno(), 0, access=ACCESS_READ)
        mapped._path, mapped._file, mapped._stamp = path, file, stamp(file)
        weakref.finalize(mapped, file.close)
        return mapped

    def check(self) -> None:
        """Raises FormatError where the file was written to or cut since: to read it then would end the process."""
        if stamp(self._file) != self._stamp:
            raise FormatError(
                f"{self._path}: changed while it was in use: load the model again "
                "(--no-mmap, or mmap=False, reads it into memory, and does not mind)"
            )


def stamp(file: BinaryIO) -> tuple[int, int]:
    """Size and time of the last change."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def mapped_file_of(array: np.ndarray) -> MappedFile | None:
    """The mapped file that an array is a view of, if it is."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, MappedFile) else None


def file_bytes(path: Path, map_file: bool = True) -> np.ndarray:
    """The whole file, uint8, read-only. A mapped file is read as its pages are touched and stays open while used.

    Raises FormatError where the file is missing, empty, no regular file, or cannot be opened.
    """
    try:
        check_regular(path)
        file = path.open("rb")
        try:
            if not stamp(file)[0]:
                raise FormatError(f"{path}: the file is empty")
            data = np.frombuffer(MappedFile.of(path, file) if map_file else file.read(), np.uint8)
        except BaseException:
            file.close()
            raise
        if not map_file:
            file.close()
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file or directory") from None
    except OSError as error:
        hint = "; without memory-mapping it may still work" if map_file and path.is_file() else ""
        raise FormatError(f"{path}: cannot be read: {cause_of(error)}{hint}") from None
    except MemoryError:
        raise FormatError(f"{path}: too large to read into memory; map it instead") from None
    return data


def check_regular(path: Path) -> None:
    """Raises FormatError for a directory, a device or a pipe: to open a pipe would wait for whoever writes to it."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise FormatError(f"{path}: not a regular file")
