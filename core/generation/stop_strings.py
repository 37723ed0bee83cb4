"""Cuts a text that comes in pieces before the first stop string, and lets none of it out."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """A filter: text goes in piece by piece, and comes out as soon as it can no longer be part of a stop string.

    The text is cut where the first stop string begins in the whole of it, wherever the pieces' borders lie. Held back
    is only the longest end of the text with which a stop string begins.

    which: the stop string that has come, of several in one place the shortest; nothing comes out after it. stops: not
    empty, each of them.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.which: str | None = None
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""

    @property
    def found(self) -> bool:
        return self.which is not None

    def push(self, piece: str) -> str:
        """The text that has become certain."""
        if self.found:
            return ""
        text = self._held + piece
        begins, stop = self._first_stop(text)
        may_begin = self._first_that_may_become_one(text)
        if stop is not None and begins <= may_begin:
            return self._cut(text, begins, stop)
        # A stop string that has come whole still waits while one that began before it may come too.
        self._held = text[may_begin:]
        return text[:may_begin]

    def flush(self) -> str:
        """The rest, when the text has ended."""
        if self.found:
            return ""
        text, self._held = self._held, ""
        begins, stop = self._first_stop(text)
        return text if stop is None else self._cut(text, begins, stop)

    def _cut(self, text: str, at: int, stop: str) -> str:
        self.which, self._held = stop, ""
        return text[:at]

    def _first_stop(self, text: str) -> tuple[int, str | None]:
        """Where the first stop string in the text begins, and which it is; the text's end and None without one."""
        found = ((text.find(stop), stop) for stop in self._stops)
        return min(
            ((at, stop) for at, stop in found if at >= 0),
            key=lambda one: (one[0], len(one[1])),
            default=(len(text), None),
        )

    def _first_that_may_become_one(self, text: str) -> int:
        """Where the longest end of the text begins that is a proper beginning of a stop string; else the text's end."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            end = text[at:]
            if any(len(stop) > len(end) and stop.startswith(end) for stop in self._stops):
                return at
        return len(text)
