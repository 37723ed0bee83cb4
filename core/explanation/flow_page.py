"""What the sections of a drawn attention step share: its columns, one a token, and labels, vectors and shades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import category

import numpy as np

from ringlet.core.explanation.walk import Question
from ringlet.core.pictures.drawing import SIZES, Drawing, lines_of, text_width
from ringlet.core.readable import number, visible

WIDTH, MARGIN = 960.0, 24.0
LABEL, WORDS, LABEL_ROOM = 40.0, 64.0, 134.0  # where a row's number and words begin, and how wide they may be
QUERY = 242.0  # the middle of the column of Q
GRID, GRID_END = 292.0, 718.0  # the columns of tokens
ASIDE, ASIDE_ROOM = 740.0, 180.0  # notes, the ring, and what comes out
GAP = 24.0  # between panels, for arrows
MOST_COLUMNS = 6
WIDEST_COLUMN = 104.0
FIRST = 3  # numbers of a vector
SHADES = 8  # numbers of a vector, as shades
LINE = 14.0
MOST_MARKS = 2  # combining marks on one character
VECTOR = FIRST * LINE + 12  # height of a drawn vector


@dataclass(frozen=True)
class Column:
    """One key, or all that have no column of their own.

    x: its middle. keys: its columns in S and α. position: None where they are several. computed: by this step.
    """

    x: float
    keys: list[int]
    position: int | None
    computed: bool


def digits(value: float, decimals: int = 2) -> str:
    """A number in a few characters, its sign a real minus."""
    return number(float(value), decimals).replace("-", "−")


def flat(piece: str) -> str:
    """A token as it is shown; marks that would pile up over a character, or have none, are escaped."""
    found, marks = "", MOST_MARKS
    for character in visible(piece):
        marks = marks + 1 if category(character) in ("Mn", "Me") else 0
        found += character if marks <= MOST_MARKS else f"\\u{ord(character):04x}"
    return found


def shape(*sizes: int) -> str:
    return f"({', '.join(f'{size:,}' for size in sizes)})"


def norm_of(vector: np.ndarray) -> float:
    """‖vector‖, the Euclidean norm."""
    return float(np.sqrt(np.square(vector.astype(np.float64)).sum()))


class FlowPage:
    """A question and the drawing of it; `y` is how far down it has come."""

    def __init__(self, asked: Question, name: str) -> None:
        self.asked, self.trace, self.config = asked, asked.trace, asked.trace.config
        self.arrays, self.step, self.ring = asked.arrays, asked.step, asked.arrays.ring
        self.drawing = Drawing(WIDTH, name)
        self.columns = columns_of(asked)
        self.asking = next(column for column in self.columns if column.position == asked.position)
        self.column_width = min((GRID_END - GRID) / len(self.columns), WIDEST_COLUMN)
        self.y = 0.0

    def piece(self, position: int) -> str:
        return flat(self.trace.pieces[position])

    def named(self, token_id: int) -> str:
        return flat(self.trace.texts[token_id])

    def own(self, name: str, column: Column, head: int | None = None) -> np.ndarray:
        """The row of a layer's array for a column's token, of one of its heads where it has heads."""
        assert column.position is not None
        row: np.ndarray = self.trace.rows(name, self.asked.layer, np.array([column.position]))[0]
        return row if head is None else row[head]

    def panel(self, y: float, height: float, x: float = MARGIN, end: float = WIDTH - MARGIN) -> None:
        self.drawing.ground(x, y, end - x, height, "panel")

    def arrows_down(self, kind: str, columns: Sequence[Column]) -> None:
        """From the panel that ends here to the next."""
        for column in columns:
            self.drawing.arrow([(column.x, self.y), (column.x, self.y + GAP)], kind)

    def badge(self, x: float, y: float, step: int) -> None:
        """The number of a step in the theory, beside words that begin at y."""
        self.drawing.box(x, y - 12, 17, 17, "badge", 8.5)
        self.drawing.text(x + 8.5, y + 0.5, str(step), "on-badge bold", "small", "middle")

    def label(self, y: float, formulas: Sequence[str], facts: Sequence[str] = (), step: int | None = None) -> None:
        """What a row is: formulas, and facts in small below them. step: its number in the theory."""
        if step is not None:
            self.badge(LABEL, y, step)
        for at, formula in enumerate(formulas):
            self.drawing.formula(WORDS, y + 20 * at, formula)
        for at, fact in enumerate(facts):
            words_y = y + 20 * max(len(formulas) - 1, 0) + (16 if formulas else 0) + 14 * at
            self.drawing.text(WORDS, words_y, fact, "faint", "small", room=LABEL_ROOM)

    def vector(self, x: float, y: float, vector: np.ndarray, kind: str) -> None:
        """Its first numbers as a column in brackets, whose top is y and whose middle x."""
        shown = [digits(value) for value in vector[:FIRST]]
        widest = max(text_width(value, SIZES["number"]) for value in shown)
        half = max(widest / 2, 16) + 4
        height = LINE * len(shown) + (10 if len(vector) > FIRST else 2)
        for at, value in enumerate(shown):
            self.drawing.text(x + widest / 2 - 2, y + 12 + LINE * at, value, kind, "number", "end")
        if len(vector) > FIRST:
            for at in range(3):
                self.drawing.box(x - 1, y + 4 + LINE * FIRST + 3.5 * at - 1, 1.8, 1.8, kind, 0.9)
        for side in (-1, 1):
            edge = x + side * half
            self.drawing.path(f"M{edge - 4 * side:.1f} {y:.1f}H{edge:.1f}v{height:.1f}h{-4 * side}", f"stroke-{kind}")

    def shades(self, x: float, y: float, vector: np.ndarray, width: float) -> None:
        """Its first numbers as cells: the darker the larger, and minus in another colour."""
        shown = vector[:SHADES].astype(float)
        largest = max(float(np.abs(shown).max()), 1e-9)
        cell = width / len(shown)
        for at, value in enumerate(shown):
            share = min(1.0, 0.06 + 0.9 * abs(value) / largest)
            self.drawing.shade(x - width / 2 + cell * at, y, cell - 1, 11, "plus" if value >= 0 else "minus", share)

    def notes(self, y: float, notes: Sequence[str]) -> float:
        """Words in small at the right, each in as many lines as it needs; returns where the next would stand."""
        for note in notes:
            for line in lines_of(note, ASIDE_ROOM, SIZES["small"]):
                self.drawing.text(ASIDE, y, line, "faint", "small")
                y += LINE
            y += 4
        return y


def columns_of(asked: Question) -> list[Column]:
    """A column for each key, where there are many for the heaviest and the asking one, and one for all others."""
    positions, alpha = asked.arrays.key_positions, asked.scores("alpha")
    own = list(range(len(positions)))
    asking = int(np.flatnonzero(positions == asked.position)[0])
    if len(own) > MOST_COLUMNS:
        heaviest = [key for key in np.argsort(-alpha, kind="stable").tolist() if key != asking]
        own = sorted([asking, *heaviest[: MOST_COLUMNS - 2]])
    others = sorted(set(range(len(positions))) - set(own))
    n = len(own) + bool(others)
    width = min((GRID_END - GRID) / n, WIDEST_COLUMN)
    first = (GRID + GRID_END - n * width) / 2 + width / 2
    added = set(asked.arrays.ring.added.tolist())
    columns = [
        Column(first + width * at, [key], int(positions[key]), int(positions[key]) in added)
        for at, key in enumerate(own)
    ]
    if others:
        computed = all(int(positions[key]) in added for key in others)
        columns.append(Column(first + width * len(own), others, None, computed))
    return columns
