"""A GGUF file in parts that can be changed and put together again, however wrong they have become.

Source: the GGUF specification (ggml, docs/gguf.md). It reads valid files only, and shares no code with the reader that
is tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import pack, unpack_from

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, TEXT, ARRAY, UINT64, INT64, FLOAT64 = range(13)
LETTERS = dict(enumerate("BbHhIif?")) | {UINT64: "Q", INT64: "q", FLOAT64: "d"}
SIZES = {kind: len(pack(f"<{letter}", 0)) for kind, letter in LETTERS.items()}


@dataclass
class Pair:
    """value: as it stands in the file, after the number of its type."""

    key: bytes
    kind: int
    value: bytes


@dataclass
class Entry:
    """A tensor's description. sizes: innermost first, as in the file. offset: from where the data begin."""

    name: bytes
    sizes: list[int]
    number: int
    offset: int


@dataclass
class Parts:
    """counts: of tensors and pairs, as the header says them; None for the true ones."""

    pairs: list[Pair]
    entries: list[Entry]
    data: bytes
    alignment: int = 32
    version: int = 3
    counts: tuple[int, int] | None = None

    def pack(self) -> bytes:
        n_entries, n_pairs = self.counts or (len(self.entries), len(self.pairs))
        head = [b"GGUF", pack("<IQQ", self.version, n_entries, n_pairs)]
        for pair in self.pairs:
            head += [text(pair.key), pack("<I", pair.kind), pair.value]
        for entry in self.entries:
            sizes = pack(f"<I{len(entry.sizes)}Q", len(entry.sizes), *(size % (1 << 64) for size in entry.sizes))
            head += [text(entry.name), sizes, pack("<IQ", entry.number, entry.offset % (1 << 64))]
        header = b"".join(head)
        return header + bytes(-len(header) % self.alignment) + self.data

    def pair(self, key: bytes) -> Pair | None:
        return next((pair for pair in self.pairs if pair.key == key), None)

    def set(self, key: bytes, kind: int, value: bytes) -> None:
        """Change the pair of this key; where there is none, put one first."""
        found = self.pair(key)
        if found is None:
            self.pairs.insert(0, Pair(key, kind, value))
        else:
            found.kind, found.value = kind, value


def text(value: bytes) -> bytes:
    return pack("<Q", len(value)) + value


def texts(values: list[bytes]) -> bytes:
    """The value of an array of texts."""
    return pack("<IQ", TEXT, len(values)) + b"".join(map(text, values))


def numbers(kind: int, values: list) -> bytes:
    """The value of an array of numbers."""
    return pack(f"<IQ{len(values)}{LETTERS[kind]}", kind, len(values), *values)


def array_of(value: bytes) -> tuple[int, list]:
    """Type and elements of an array of numbers or of texts (bytes)."""
    kind, count = unpack_from("<IQ", value)
    if kind in LETTERS:
        return kind, list(unpack_from(f"<{count}{LETTERS[kind]}", value, 12))
    found, at = [], 12
    for _ in range(count):
        (size,) = unpack_from("<Q", value, at)
        found.append(value[at + 8 : at + 8 + size])
        at += 8 + size
    return kind, found


class Walk:
    """Reads a valid file, and notes every number of its header: (place, bytes) of counts, lengths, types, offsets."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 4
        self.fields: list[tuple[int, int]] = []
        self.parts = self._parts()

    def _number(self, letter: str) -> int:
        size = len(pack(f"<{letter}", 0))
        self.fields.append((self.at, size))
        self.at += size
        return unpack_from(f"<{letter}", self.data, self.at - size)[0]

    def _text(self) -> bytes:
        size = self._number("Q")
        self.at += size
        return self.data[self.at - size : self.at]

    def _pair(self) -> Pair:
        key, kind, start = self._text(), self._number("I"), self.at
        self._skip_value(kind)
        return Pair(key, kind, self.data[start : self.at])

    def _skip_value(self, kind: int) -> None:
        if kind == TEXT:
            self._text()
        elif kind == ARRAY:
            inner, count = self._number("I"), self._number("Q")
            if inner in SIZES:
                self.at += count * SIZES[inner]
            else:
                for _ in range(count):
                    self._skip_value(inner)
        else:
            self._number(LETTERS[kind])

    def _entry(self) -> Entry:
        name = self._text()
        sizes = [self._number("Q") for _ in range(self._number("I"))]
        return Entry(name, sizes, self._number("I"), self._number("Q"))

    def _parts(self) -> Parts:
        version, n_entries, n_pairs = self._number("I"), self._number("Q"), self._number("Q")
        pairs = [self._pair() for _ in range(n_pairs)]
        entries = [self._entry() for _ in range(n_entries)]
        alignment = next((unpack_from("<I", p.value)[0] for p in pairs if p.key == b"general.alignment"), 32)
        start = -(-self.at // alignment) * alignment
        return Parts(pairs, entries, self.data[start:], alignment, version)
