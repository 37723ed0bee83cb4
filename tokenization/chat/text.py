"""Texts that know which of their characters come from messages, and which the template wrote itself.

A template may cut, join and change a message as it likes; each operation here carries the origin of every character
along, so that a control token counts as one only where no character of it comes from a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

TEMPLATE, ANSWER, MESSAGE = range(3)  # who wrote a character: the template, an assistant's message, any other message


class Text(str):
    """A str with the origin of each character. Python's own operations on it give plain ones; use those below.

    origins: bytes, one a character: TEMPLATE, ANSWER or MESSAGE.
    """

    __slots__ = ("origins",)
    origins: bytes

    def __new__(cls, text: str, origins: bytes) -> Text:
        made = super().__new__(cls, text)
        made.origins = origins
        return made

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if not isinstance(key, slice):
            at = range(len(self))[key]  # IndexError as a str has it
            key = slice(at, at + 1)
        return with_origins(super().__getitem__(key), self.origins[key])

    def __iter__(self) -> Iterator[str]:
        return (self[at] for at in range(len(self)))


def with_origins(text: str, origins: bytes) -> str:
    """A Text, or a plain str where the template wrote it all."""
    return Text(text, origins) if origins.strip(b"\0") else text


def all_from(text: str, origin: int) -> str:
    return with_origins(str.__str__(text), bytes([origin]) * len(text))


def origins_of(text: str) -> bytes:
    return text.origins if isinstance(text, Text) else bytes(len(text))


def highest_origin(text: str) -> int:
    return max(text.origins, default=TEMPLATE) if isinstance(text, Text) else TEMPLATE


def derived(result: str, source: str) -> str:
    """What became of a text by an operation that keeps every character's place; by any other, all has one origin."""
    if len(result) == len(source):
        return with_origins(str.__str__(result), origins_of(source))
    return all_from(result, highest_origin(source))


def joined(parts: Iterable[str], separator: str = "") -> str:
    parts = list(parts)
    text = separator.join(parts)
    if not isinstance(separator, Text) and not any(isinstance(part, Text) for part in parts):
        return text
    return with_origins(str.__str__(text), origins_of(separator).join(map(origins_of, parts)))


def repeated(text: str, times: int) -> str:
    return with_origins(str.__str__(text) * times, origins_of(text) * times)


def stripped(text: str, chars: str | None = None, method: str = "strip") -> str:
    """method: "strip", "lstrip" or "rstrip"."""
    length = len(getattr(str, method)(text, chars))
    start = 0 if method == "rstrip" else len(text) - len(str.lstrip(text, chars))
    return text[start : start + length]


def split(text: str, separator: str | None = None, maxsplit: int = -1, method: str = "split") -> list[str]:
    """method: "split" or "rsplit"."""
    pieces, at = [], 0
    for piece in getattr(str, method)(text, separator, maxsplit):
        at = text.find(piece, at) if separator is None else at
        pieces.append(text[at : at + len(piece)])
        at += len(piece) + len(separator or "")
    return pieces


def split_lines(text: str, keepends: bool = False) -> list[str]:
    pieces, at = [], 0
    for piece, whole in zip(str.splitlines(text, keepends), str.splitlines(text, True), strict=True):
        pieces.append(text[at : at + len(piece)])
        at += len(whole)
    return pieces


def partitioned(text: str, separator: str, method: str = "partition") -> tuple[str, str, str]:
    """method: "partition" or "rpartition"."""
    before, middle, _ = getattr(str, method)(text, separator)
    at = len(before) + len(middle)
    return text[: len(before)], text[len(before) : at], text[at:]


def replaced(text: str, old: str, new: str, count: int = -1) -> str:
    if old == "":
        return all_from(str.replace(text, old, new, count), max(highest_origin(text), highest_origin(new)))
    return joined(split(text, old, count), new)


def indented(text: str, indention: str, first: bool, blank: bool) -> str:
    """As jinja2's filter does it: the first line, and lines that are empty, only where that is wanted."""
    lines = split_lines(joined([text, "\n"]))
    wanted = [first if at == 0 else blank or bool(line) for at, line in enumerate(lines)]
    return joined((joined([indention, line]) if yes else line for line, yes in zip(lines, wanted, strict=True)), "\n")


def padded(text: str, width: int, fill: str = " ", method: str = "center") -> str:
    """method: "center", "ljust", "rjust" or "zfill", which heeds no fill."""
    result: Any = getattr(str, method)(text, *((width,) if method == "zfill" else (width, fill)))
    return text if len(result) == len(text) else all_from(result, max(highest_origin(text), highest_origin(fill)))
