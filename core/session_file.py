"""Session files: arrays by name with a description, in the safetensors format, written whole or not at all.

A file is: N as a little-endian uint64, N bytes of JSON, the arrays' bytes one after the other. The JSON maps each name
to dtype, shape and place as safetensors has it; its "__metadata__" holds "format", "version", "session" (a JSON object
of ours) and "digest", the BLAKE2b of that object and of all arrays. Nothing of a file is believed before the digest is
right, and nothing is allocated that the reader does not expect.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from math import prod
from pathlib import Path
from tempfile import mkstemp
from typing import Any, BinaryIO

import numpy as np

from ringlet.core.errors import FormatError, RingletError, cause_of
from ringlet.core.formats.file_bytes import check_regular
from ringlet.core.formats.json_object import parse_json_object

FORMAT, VERSION = "ringlet session", "1"
LONGEST_HEADER = 1 << 20  # bytes
DTYPES = {"F32": "<f4", "F16": "<f2", "I32": "<i4", "I8": "|i1", "U8": "|u1", "U16": "<u2"}
DTYPE_NAMES = {np.dtype(code): name for name, code in DTYPES.items()}
PRIVATE = 0o600  # a session is a conversation

Shapes = Mapping[str, tuple[np.dtype, tuple[int, ...]]]


def write_session_file(
    path: str | os.PathLike[str], session: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Raises RingletError, in one line, where the file cannot be written; one that was there is then as it was."""
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    strange = next((array.dtype for array in arrays.values() if array.dtype not in DTYPE_NAMES), None)
    if strange is not None:
        raise RingletError(f"{os.fspath(path)}: a ring of {strange} cannot be kept in a file")
    header: dict[str, Any] = {}
    at = 0
    for name, array in arrays.items():
        places = [at, at + array.nbytes]
        header[name] = {"dtype": DTYPE_NAMES[array.dtype], "shape": list(array.shape), "data_offsets": places}
        at += array.nbytes
    described = json.dumps(session, ensure_ascii=False, sort_keys=True)
    digest = _new_digest(described)
    for array in arrays.values():
        digest.update(array.reshape(-1).view(np.uint8))
    header["__metadata__"] = {
        "format": FORMAT,
        "version": VERSION,
        "session": described,
        "digest": digest.hexdigest(),
    }
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with _replacing(Path(path).expanduser(), os.fspath(path)) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(array.reshape(-1).view(np.uint8).data)


@contextmanager
def _replacing(path: Path, name: str) -> Iterator[BinaryIO]:
    """A file under a temporary name, which takes the path's place when all is written, and else is removed.

    A link stays, and what it leads to is replaced; a device, which has no old contents, is not.
    """
    try:
        path = path.resolve()
        if path.exists():
            check_regular(path)
        handle, temporary = mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.", suffix=".part")
    except FormatError:
        raise RingletError(f"{name}: cannot be written: not a regular file") from None
    except (OSError, RuntimeError) as error:  # a RuntimeError: links in a circle, until Python 3.12
        raise RingletError(f"{name}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    try:
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise RingletError(f"{name}: cannot be written: {cause_of(error)}") from None
    finally:
        with suppress(OSError):
            os.unlink(temporary)


class SessionFile:
    """A session file that is open for reading. Its description is checked for its form; its arrays, when they are read.

    session: the JSON object of ours. shapes: dtype and shape of each array, by name.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(LONGEST_HEADER, size - 8):
            raise self.error("no session of Ringlet's, or cut short")
        header = parse_json_object(file.read(length), f"{name}: no session of Ringlet's")
        metadata = header.pop("__metadata__", None)
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            raise self.error("no session of Ringlet's")
        if metadata.get("version") != VERSION:
            raise self.error(f"a session in format {metadata.get('version')!r}: this version reads {VERSION!r}")
        described, digest = metadata.get("session"), metadata.get("digest")
        if not isinstance(described, str) or not isinstance(digest, str):
            raise self.error("damaged: its description is missing")
        self._described, self._digest = described, digest
        self.session = parse_json_object(self._described.encode("utf-8", "replace"), f"{name}: damaged")
        self.shapes = self._read_shapes(header, size - 8 - length)

    def error(self, text: str) -> FormatError:
        return FormatError(f"{self._name}: {text}")

    def _read_shapes(self, header: dict[str, Any], n_bytes: int) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """What the arrays are; they stand one after the other, and fill the file."""
        shapes, at = {}, 0
        for name, entry in header.items():
            entry = entry if isinstance(entry, dict) else {}
            dtype, shape = DTYPES.get(str(entry.get("dtype"))), entry.get("shape")
            if dtype is None or not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
                raise self.error(f"damaged: the entry of {name!r} cannot be read")
            end = at + prod(shape) * np.dtype(dtype).itemsize
            if entry.get("data_offsets") != [at, end]:
                raise self.error(f"damaged: {name!r} is not where it should be")
            shapes[name] = np.dtype(dtype), tuple(shape)
            at = end
        if at != n_bytes:
            raise self.error(f"damaged or cut short: {n_bytes} bytes of arrays, {at} are described")
        return shapes

    def read(self, expected: Shapes) -> dict[str, np.ndarray]:
        """All arrays. expected: what they must be. Raises FormatError where they are not, or the digest is wrong."""
        if self.shapes != dict(expected):
            wrong = sorted(set(self.shapes.items()) ^ set(expected.items()), key=str)
            raise self.error(f"damaged: {wrong[0][0]!r} is not as it should be")
        digest, arrays = _new_digest(self._described), {}
        for name, (dtype, shape) in self.shapes.items():
            arrays[name] = np.empty(shape, dtype)
            data = arrays[name].reshape(-1).view(np.uint8)
            if self._file.readinto(data) != len(data):  # type: ignore[attr-defined]
                raise self.error("cut short while it was read")
            digest.update(data)
        if digest.hexdigest() != self._digest:
            raise self.error("damaged: its digest is wrong")
        return arrays


def _new_digest(described: str) -> Any:
    digest = blake2b(digest_size=16)
    digest.update(described.encode("utf-8", "replace") + b"\0")
    return digest


@contextmanager
def open_session_file(path: str | os.PathLike[str]) -> Iterator[SessionFile]:
    """Raises FormatError, which names the file, where it cannot be read or is no session."""
    name = os.fspath(path)
    file_path = Path(path).expanduser()
    try:
        check_regular(file_path)
        with file_path.open("rb") as file:
            yield SessionFile(file, name)
    except FileNotFoundError:
        raise FormatError(f"{name}: no such file or directory") from None
    except OSError as error:
        raise FormatError(f"{name}: cannot be read: {cause_of(error)}") from None
