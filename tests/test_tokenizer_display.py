"""The table of `tokenize`."""

from __future__ import annotations

import unicodedata

from ringlet.tokenization.display import token_rows
from ringlet.tokenization.tokenizer import Tokenizer


def columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def test_ids_stand_in_one_column_beside_chinese(embedded_path):
    tokenizer = Tokenizer.from_directory(embedded_path)
    ids = tokenizer.encode("我爱你，明月 ok")
    rows = token_rows(tokenizer, ids)
    assert [int(row.split()[-1]) for row in rows] == ids
    assert len({columns(row) for row in rows}) == 1
    assert any(row.startswith("'我'") for row in rows)


def test_no_token_breaks_a_line_or_moves_the_cursor(embedded_path):
    tokenizer = Tokenizer.from_directory(embedded_path)
    rows = token_rows(tokenizer, tokenizer.encode("\n\x1b[2J\r", add_special=False))
    assert all(row.isprintable() for row in rows)


def test_no_tokens_no_rows(embedded_path):
    assert token_rows(Tokenizer.from_directory(embedded_path), []) == []
