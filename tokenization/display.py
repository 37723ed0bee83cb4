"""Tokens as a table for people, aligned on a terminal, where Chinese characters are two columns wide."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len

from ringlet.tokenization.tokenizer import Tokenizer

WIDEST = 40  # columns; a longer piece pushes its own id to the right


def token_rows(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    """A line for each token: its piece, quoted so that blanks show, and its id.

    Control characters are escaped, so no token can move the cursor or break a line.
    """
    ids = list(ids)
    pieces = [repr(tokenizer.piece(token_id)) for token_id in ids]
    width = max((w for w in map(cell_len, pieces) if w <= WIDEST), default=0)
    digits = max((len(str(token_id)) for token_id in ids), default=0)
    return [
        f"{piece}{' ' * (width - cell_len(piece))}  {token_id:>{digits}}"
        for piece, token_id in zip(pieces, ids, strict=True)
    ]
