"""Quantised weights, kept in the user's cache folder as a GGUF file for each model and format.

A kept file says what it was made from: by which code, of which files (their path, size and time), and a sample of each
matrix as it was. It is used only if that is so now, and if its own checksum holds; it is written under another name and
then renamed. Files that nothing has used for a month are removed when another is written.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from ringlet.core.errors import FormatError
from ringlet.core.formats.gguf import open_gguf
from ringlet.core.formats.gguf_writer import write_gguf
from ringlet.core.user_cache import days_unused, note_use, own_folder
from ringlet.core.weights import Matrix

ROOM = "quantized"
MADE_FROM, CHECKSUM = "ringlet.made_from", "ringlet.checksum"
SUFFIX, SUFFIX_WHILE_WRITTEN = ".gguf", ".part"
MOST_DAYS_UNUSED, MOST_DAYS_WRITTEN = 30, 1
SAMPLE = 64  # bytes of a row
SUMS = 1021  # a prime: words that have changed places seldom fall in the same sum


class KeptWeights:
    """The place where one model's weights in one format are kept.

    model: its file or directory. files: that hold its weights. matrices: as they are in them. planned: names of those
    that are quantised, and to what. A path has one place, so that a model's new weights take that of its old ones.
    """

    def __init__(
        self,
        model: Path,
        format: str,
        files: Collection[Path],
        matrices: Mapping[str, Matrix],
        planned: Mapping[str, str],
    ) -> None:
        self._shapes = {name: (kind, matrices[name].shape) for name, kind in planned.items()}
        self._made_from = lambda: _made_from(files, matrices, self._shapes)
        self._origin = self._made_from()
        self._folder, self._why = own_folder(ROOM)
        readable = re.sub(r"[^\w.-]+", "_", model.name.removesuffix(SUFFIX))[:64]
        place = hashlib.sha256(os.fsencode(os.path.realpath(model))).hexdigest()[:16]
        self._name = f"{readable}-{format.lower()}-{place}"

    def read(self, mmap: bool) -> dict[str, Matrix] | None:
        """The matrices by name; None where there are none that can be trusted."""
        if self._folder is None:
            return None
        path = self._folder / f"{self._name}{SUFFIX}"
        try:
            if not path.is_file():
                return None
            opened = open_gguf(path, mmap)
            if opened.metadata.get(MADE_FROM) != self._origin or opened.tensors.keys() != self._shapes.keys():
                return None
            matrices = {name: opened.tensors[name].matrix() for name in self._shapes}
        except (FormatError, OSError):
            return None
        if {name: (matrix.format, matrix.shape) for name, matrix in matrices.items()} != self._shapes:
            return None
        if opened.metadata.get(CHECKSUM) != checksum(matrices):
            return None
        note_use(path)
        return matrices

    def write(self, matrices: Mapping[str, Matrix]) -> str:
        """Keep them; returns why not, where that cannot be done, and then leaves nothing behind."""
        if self._folder is None:
            return self._why
        if self._made_from() != self._origin:
            return "the model has changed meanwhile"
        _remove_unused(self._folder)
        try:
            self._write(self._folder, matrices)
        except OSError as error:
            return f"{self._folder}: {error.strerror or error}"
        return ""

    def _write(self, folder: Path, matrices: Mapping[str, Matrix]) -> None:
        metadata = {MADE_FROM: self._origin, CHECKSUM: checksum(matrices)}
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=self._name, suffix=SUFFIX_WHILE_WRITTEN)
        try:
            with open(handle, "wb") as file:
                write_gguf(file, metadata, matrices)
            os.replace(temporary, folder / f"{self._name}{SUFFIX}")
        except BaseException:
            os.unlink(temporary)
            raise


def _made_from(
    files: Collection[Path], matrices: Mapping[str, Matrix], shapes: Mapping[str, tuple[str, tuple[int, int]]]
) -> str:
    """A short name of all that decides what the quantised weights are."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    for file in files:
        digest.update(os.fsencode(os.path.realpath(file)) + _size_and_time(file))
    for name, (kind, _) in shapes.items():
        matrix = matrices[name]
        digest.update(f"{name} {matrix.format} {matrix.shape} {kind}\0".encode())
        digest.update(matrix.data[[0, len(matrix.data) // 2, -1], :SAMPLE].tobytes())
    return digest.hexdigest()


def _size_and_time(file: Path) -> bytes:
    try:
        status = file.stat()
    except OSError:
        return b"gone"
    return f"\0{status.st_size} {status.st_mtime_ns}\0".encode()


def checksum(matrices: Mapping[str, Matrix]) -> str:
    """Of all bytes, at the speed of memory: SHA-256 of the sums of every SUMS-th 8-byte word of each matrix."""
    digest = hashlib.sha256()
    for name, matrix in matrices.items():
        data = matrix.data.reshape(-1)
        whole = len(data) // (8 * SUMS) * 8 * SUMS
        sums = np.add.reduce(data[:whole].view(np.uint64).reshape(-1, SUMS), axis=0)
        digest.update(f"{name}\0".encode() + sums.tobytes() + data[whole:].tobytes())
    return digest.hexdigest()


def _remove_unused(folder: Path) -> None:
    """What nothing has used for long, and what a process that was ended had begun to write."""
    for suffix, days in ((SUFFIX, MOST_DAYS_UNUSED), (SUFFIX_WHILE_WRITTEN, MOST_DAYS_WRITTEN)):
        for path in folder.glob(f"*{suffix}"):
            if days_unused(path) > days:
                with suppress(OSError):  # Windows: another process has it open
                    path.unlink()
