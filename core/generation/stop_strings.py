"""Cuts a text that comes in pieces before the first stop string, and lets none of it out."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """A filter: text goes in piece by piece, and comes out as soon as it can no longer be part of a stop string.

    The text is cut where the first stop string begins in the whole of it, wherever the pieces' borders lie. Held back
    is only the longest end of the text with which a stop string begins.

    found: whether a stop string has come; nothing comes out after it. stops: not empty, each of them.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.found = False
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""

    def push(self, piece: str) -> str:
        """The text that has become certain."""
        if self.found:
            return ""
        text = self._held + piece
        begins, may_begin = self._first_stop(text), self._first_that_may_become_one(text)
        if begins is not None and begins <= may_begin:
            return self._cut(text, begins)
        # A stop string that has come whole still waits while one that began before it may come too.
        self._held = text[may_begin:]
        return text[:may_begin]

    def flush(self) -> str:
        """The rest, when the text has ended."""
        if self.found:
            return ""
        text, self._held = self._held, ""
        begins = self._first_stop(text)
        return text if begins is None else self._cut(text, begins)

    def _cut(self, text: str, at: int) -> str:
        self.found, self._held = True, ""
        return text[:at]

    def _first_stop(self, text: str) -> int | None:
        """Where the first stop string in the text begins."""
        return min((at for at in (text.find(stop) for stop in self._stops) if at >= 0), default=None)

    def _first_that_may_become_one(self, text: str) -> int:
        """Where the longest end of the text begins that is a proper beginning of a stop string; else the text's end."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            end = text[at:]
            if any(len(stop) > len(end) and stop.startswith(end) for stop in self._stops):
                return at
        return len(text)
