"""Tokens and numbers as a reader takes them in, in a terminal, on a page and in a picture alike."""

from __future__ import annotations


def visible(piece: str) -> str:
    """A token as a reader can tell it from others: blanks show, control characters are escaped."""
    return repr(piece)[1:-1].replace(" ", "␣")


def number(value: float, digits: int = 2) -> str:
    """Of fixed digits while that is short, six columns at most; −∞ as it is written."""
    if value == -float("inf"):
        return "−∞"
    text = f"{value:.{digits if abs(value) < 100 else 1}f}" if abs(value) < 1e3 else f"{value:.0f}"
    text = text if len(text) <= 6 else f"{value:.0e}"
    return text.lstrip("-") if float(text) == 0 else text
