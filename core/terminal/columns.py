"""Text in the columns of a terminal, where a Chinese character takes two: padded, cut, wrapped; bars and numbers."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence

import click
from rich.cells import cell_len, chop_cells, set_cell_size

from ringlet.core.readable import number

USUAL_WIDTH = 80  # columns, where the output is no terminal
WIDEST = 100  # no line is longer, however wide the terminal is
NARROWEST = 40
EIGHTHS = " ▏▎▍▌▋▊▉"


def page_width() -> int:
    """Columns to fill: the terminal's, within reason; 80 where the output goes elsewhere, unless COLUMNS says."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    columns = shutil.get_terminal_size((USUAL_WIDTH, 24)).columns if known else USUAL_WIDTH
    return max(NARROWEST, min(columns, WIDEST))


def width_of(text: str) -> int:
    """Columns that the text takes; colours take none."""
    return cell_len(click.unstyle(text))


def padded(text: str, width: int, right: bool = False) -> str:
    """The text and blanks; a longer text stays as it is. right: the text stands at the right end."""
    blanks = " " * (width - width_of(text))
    return f"{blanks}{text}" if right else f"{text}{blanks}"


def cut(text: str, width: int) -> str:
    """The text, or as much of it as fits before an ellipsis."""
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The words of a text in lines; those after the first begin with the indent. What is too long for one is broken."""
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
            continue
        for part in chop_cells(word, width - len(indent)) if width_of(word) > width - len(indent) else [word]:
            lines.append(f"{indent if lines else ''}{part}")
    return lines


def bar(share: float, width: int) -> str:
    """A bar of as many columns as the share, from 0 to 1, has of the width, in eighths of a column."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()


def fitting_numbers(values: Iterable[float], width: int, cell: int = 7) -> str:
    """The first of the values, as many as fit, each in a cell; an ellipsis where some are left out."""
    values = list(values)
    n = min(len(values), max(1, width // cell))
    if n < len(values):
        n = max(1, min(n, (width - 2) // cell))
    shown = "".join(number(value).rjust(cell) for value in values[:n])
    return f"{shown} …" if n < len(values) else shown


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool], gap: str = "  ") -> list[str]:
    """Rows of as many cells each, in columns of their own width. right: which columns stand at the right."""
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(padded(cell, w, r) for cell, w, r in zip(row, widths, right, strict=True)).rstrip() for row in rows
    ]


def heading(number_: int, title: str, formula: str, width: int) -> list[str]:
    """A section's title, and beside it, or below, its formula."""
    title = f"{number_}  {title}"
    plain_width = width_of(title) + 3 + width_of(formula)
    styled, dim = painted(title, bold=True, fg="cyan"), painted(formula, dim=True)
    if plain_width <= width:
        return ["", f"{styled}   {dim}"]
    indent = " " * min(3, max(0, width - width_of(formula)))
    return ["", styled, *(f"{indent}{painted(line, dim=True)}" for line in wrapped(formula, width - len(indent)))]


def painted(text: str, **style: object) -> str:
    """Coloured, unless the user wants none; where the output is no terminal, click takes colours away."""
    return text if not text or os.environ.get("NO_COLOR") else click.style(text, **style)  # type: ignore[arg-type]
