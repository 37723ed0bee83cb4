"""Numbers, texts and arrays in a GGUF file's header, read with a cursor that never looks past the file's end.

Source: the GGUF specification (ggml, docs/gguf.md). A value is a number that names its type, then the value; a text is
a uint64 length and UTF-8; an array is its elements' type, a uint64 count, and the elements.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import Struct

import numpy as np

from ringlet.core.errors import FormatError, quoted

# The numbers of value types; the letters are those of `struct` and of NumPy.
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 10: "<Q", 11: "<q", 12: "<d"}
UINT32, BOOL, TEXT, ARRAY = 4, 7, 8, 9
SMALLEST = {BOOL: 1, TEXT: 8, ARRAY: 12} | {kind: Struct(letter).size for kind, letter in NUMBERS.items()}
DEEPEST_ARRAY = 4  # arrays inside arrays
LONGEST_NAME = 1024  # bytes; ggml itself takes 64
# Each of these takes many times more memory, and time, than the file has bytes for it: far more than any model has.
MOST_PAIRS = 1 << 16
MOST_ARRAYS = 1 << 16  # inside arrays, in the whole file
STRUCTS = {letter: Struct(letter) for letter in NUMBERS.values()}


class Cursor:
    """A place in a file's bytes that moves forward as values are read; every failure names the file."""

    def __init__(self, path: Path, data: np.ndarray) -> None:
        self.path, self.data, self.at = path, data, 0
        self._n_arrays = 0
        self._view = data.data

    def error(self, message: str) -> FormatError:
        return FormatError(f"{self.path}: {message}")

    @property
    def left(self) -> int:
        """Bytes from here to the file's end."""
        return len(self.data) - self.at

    def skip(self, n_bytes: int, what: str) -> int:
        """Move on; returns where we were. FormatError where the file ends before."""
        if n_bytes > self.left:
            raise self.error(f"the file ends inside {what}: it is cut short or damaged")
        start = self.at
        self.at += n_bytes
        return start

    def number(self, letter: str, what: str) -> int | float:
        packed = STRUCTS[letter]
        return packed.unpack_from(self._view, self.skip(packed.size, what))[0]

    def count(self, what: str, smallest: int, most: int | None = None) -> int:
        """How many things of at least `smallest` bytes follow; FormatError for more than `most` or than can follow."""
        count = int(self.number("<Q", f"the number of {what}"))
        if count * smallest > self.left:
            raise self.error(f"{count} {what} cannot fit the {self.left} bytes left: the file is cut short or damaged")
        if most is not None and count > most:
            raise self.error(f"{count} {what}; {most} are possible: the file is damaged")
        return count

    def name(self, what: str) -> str:
        """A text short enough to stand in a message."""
        start = self.at
        if self.number("<Q", what) > LONGEST_NAME:
            raise self.error(f"{what} is over {LONGEST_NAME} bytes long: the file is damaged")
        self.at = start
        return self.text(what)

    def text(self, what: str) -> str:
        length = self.count(f"bytes of {what}", 1)
        start = self.skip(length, what)
        try:
            return str(self._view[start : self.at], "utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not valid UTF-8") from None

    def value(self, kind: int, what: str, depth: int = 0) -> object:
        """A value of the type numbered `kind`: int, float, bool, str, an array, list of arrays, or `Texts`."""
        if kind in NUMBERS:
            return self.number(NUMBERS[kind], what)
        if kind == BOOL:
            return bool(self._bools(1, what)[0])
        if kind == TEXT:
            return self.text(what)
        if kind == ARRAY:
            return self._array(what, depth)
        raise self.error(f"{what} has the unknown value type {kind}")

    def _array(self, what: str, depth: int) -> object:
        kind = int(self.number("<I", what))
        if kind not in SMALLEST:
            raise self.error(f"{what} is an array of the unknown value type {kind}")
        count = self.count(f"elements of {what}", SMALLEST[kind])
        if kind == TEXT:
            texts = self._texts(count, what)
            return texts.decode() if depth else texts
        if kind == BOOL:
            return self._bools(count, what)
        if kind == ARRAY:
            if depth == DEEPEST_ARRAY:
                raise self.error(f"{what} holds arrays inside arrays, more than {DEEPEST_ARRAY} deep")
            self._n_arrays += count
            if self._n_arrays > MOST_ARRAYS:
                raise self.error(f"{what} holds arrays inside arrays, more than {MOST_ARRAYS} in all")
            return [self.value(ARRAY, what, depth + 1) for _ in range(count)]
        dtype = np.dtype(NUMBERS[kind])
        start = self.skip(count * dtype.itemsize, what)
        return self.data[start : self.at].copy().view(dtype)  # a copy: the file need not align it

    def _bools(self, count: int, what: str) -> np.ndarray:
        start = self.skip(count, what)
        data = self.data[start : self.at]
        if count and data.max() > 1:
            raise self.error(f"{what} holds a truth value that is neither 0 nor 1")
        return data.astype(np.bool_)

    def _texts(self, count: int, what: str) -> Texts:
        """Only finds where each begins: a vocabulary of 262,144 tokens passes here at each start."""
        start, last, length_at = self.at, len(self.data) - 8, STRUCTS["<Q"].unpack_from
        at, view, starts = start, self._view, array("q")
        for _ in range(count):
            if at > last:
                raise self.error(f"the file ends inside {what}: it is cut short or damaged")
            at += 8
            starts.append(at - start)
            at += length_at(view, at - 8)[0]
        self.at = start
        self.skip(at - start, what)
        return Texts(self.path, what, self.data[start:at], starts)


class Texts:
    """An array of texts, decoded when it is first wanted."""

    def __init__(self, path: Path, what: str, data: np.ndarray, starts: array[int]) -> None:
        self._path, self._what, self._data, self._starts = path, what, data, starts

    def __len__(self) -> int:
        return len(self._starts)

    def decode(self) -> list[str]:
        packed = self._data.tobytes()
        ends = [start - 8 for start in self._starts[1:]]
        ends.append(len(packed))
        try:
            return [packed[start:end].decode() for start, end in zip(self._starts, ends, strict=False)]
        except UnicodeDecodeError:
            raise FormatError(f"{self._path}: {self._what} holds a text that is not valid UTF-8") from None


class Metadata(Mapping[str, object]):
    """Keys and values of a header: int, float, bool, str, list[str], or a NumPy array (bool or a number's type).

    Arrays of arrays are lists. A list of texts is decoded when it is first asked for, and kept.
    """

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> object:
        value = self._values[key]
        if isinstance(value, Texts):
            value = self._values[key] = value.decode()
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def count(self, key: str) -> int:
        """How many elements a list or an array has, without decoding it; 0 for anything else, and where it is not."""
        value = self._values.get(key)
        return len(value) if isinstance(value, (Texts, list, np.ndarray)) else 0


def read_metadata(cursor: Cursor, n_pairs: int) -> tuple[Metadata, int]:
    """The header's key-value pairs, and the alignment of the tensors' data that they set."""
    values: dict[str, object] = {}
    alignment = 32
    for _ in range(n_pairs):
        key = cursor.name("a metadata key")
        if key in values:
            raise cursor.error(f"metadata key {quoted(key)} appears twice")
        kind = int(cursor.number("<I", f"metadata {quoted(key)}"))
        values[key] = value = cursor.value(kind, f"metadata {quoted(key)}")
        if key == "general.alignment":
            if kind != UINT32 or not isinstance(value, int) or value < 1 or value & (value - 1):
                raise cursor.error(f"general.alignment is {quoted(value)}: a uint32 that is a power of two is needed")
            alignment = value
    return Metadata(values), alignment
