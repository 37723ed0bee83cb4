"""What the sections of a walk share: a token's name, prose, lines of numbers, tables with bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ringlet.core.explanation.walk import Walk
from ringlet.core.readable import number, visible
from ringlet.core.terminal.columns import aligned, bar, cut, fitting_numbers, padded, painted, width_of, wrapped

MOST_KEYS = 16  # rows of a table about keys; where there are more, the heaviest are shown
LONGEST_PIECE = 12  # columns
INDENT = "   "


def length(vector: np.ndarray) -> float:
    """‖vector‖, the Euclidean norm."""
    return float(np.sqrt(np.square(vector.astype(np.float64)).sum()))


def shape(*sizes: int) -> str:
    return f"({', '.join(f'{size:,}' for size in sizes)})"


class WalkPage:
    """A walk to be told in lines of at most `width` columns. shown: the columns of S and α that tables have."""

    def __init__(self, walk: Walk, width: int) -> None:
        self.walk, self.width, self.trace, self.config = walk, width, walk.trace, walk.trace.config
        self.arrays, self.step = walk.arrays, walk.step
        self.asking = self.piece(walk.position)
        self.shown = self.columns_to_show()

    def piece(self, position: int) -> str:
        """The token at a position, as it is called in the text."""
        return cut(visible(self.trace.pieces[position]), LONGEST_PIECE)

    def named(self, token_id: int) -> str:
        return cut(visible(self.trace.texts[token_id]), LONGEST_PIECE)

    def prose(self, text: str) -> Iterator[str]:
        """A paragraph that is indented as the sections are."""
        for line in wrapped(text, self.width - len(INDENT)):
            yield f"{INDENT}{line}"

    def columns_to_show(self) -> list[int]:
        """Which keys the tables show: all, or the heaviest for the asking token, in order."""
        alpha = self.walk.scores("alpha")
        if len(alpha) <= MOST_KEYS:
            return list(range(len(alpha)))
        return sorted(np.argsort(-alpha, kind="stable")[:MOST_KEYS].tolist())

    def left_out(self) -> Iterator[str]:
        """A line on the keys that the tables do not show."""
        alpha = self.walk.scores("alpha")
        others = len(alpha) - len(self.shown)
        if others:
            share = 1 - float(alpha[self.shown].sum())
            yield from self.prose(f"… and {others} more, whose weights sum to {share:.3f}")

    def vectors(self, rows: Sequence[tuple[str, np.ndarray]]) -> Iterator[str]:
        """A line for each vector: label, length, and the first of its numbers, as many as fit."""
        label_width = max(width_of(label) for label, _ in rows)
        for label, vector in rows:
            start = f"{INDENT}{padded(label, label_width)} {number(length(vector)).rjust(7)} "
            yield f"{start}{painted(fitting_numbers(vector, self.width - width_of(start)), dim=True)}"

    def with_bars(self, rows: list[list[str]], shares: list[float]) -> Iterator[str]:
        """A table whose last column is a share, with a bar for it."""
        lines = self.table(rows, [False] * (len(rows[0]) - 2) + [True, True])
        room = min(self.width - max(map(width_of, lines)) - 2, 40)
        for line, share in zip(lines, shares, strict=True):
            yield f"{line}  {painted(bar(share / max(shares), room), fg='green')}".rstrip()

    def table(self, rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
        """Rows in columns, indented. right: which of them stand at the right."""
        return [f"{INDENT}{line}" for line in aligned(rows, right)]
