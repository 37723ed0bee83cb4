"""A text's token ids, spelled as they were before: so that what a model has drawn need not be computed again.

A model may draw "Hel" and "lo" where the tokenizer makes "Hello" one token. The text is the same, but not the ids, and
a ring serves only the ids that it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringlet.core.errors import RingletError
from ringlet.core.generation.idle_ring import shared_length
from ringlet.tokenization.tokenizer import Tokenizer


def respelled(ids: Sequence[int], known: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """`ids`, whose beginning is taken from `known` as far as both are the same text.

    Special tokens are the same only as ids. The result ends one of `known`'s tokens where it ends one of the text's.
    """
    at = known_at = shared_length(ids, known)
    taken, taken_known = at, known_at  # up to here both are the same text
    rest, known_rest = b"", b""  # the text of either after that
    while True:
        if rest == known_rest:
            taken, taken_known, rest, known_rest = at, known_at, b"", b""
            if at == len(ids) or known_at == len(known):
                break
            if ids[at] == known[known_at]:
                at, known_at = at + 1, known_at + 1
                continue
        if len(rest) <= len(known_rest):
            if at == len(ids) or (text := _text(ids[at], tokenizer)) is None:
                break
            rest, at = rest + text, at + 1
        else:
            if known_at == len(known) or (text := _text(known[known_at], tokenizer)) is None:
                break
            known_rest, known_at = known_rest + text, known_at + 1
        shorter = min(len(rest), len(known_rest))
        if rest[:shorter] != known_rest[:shorter]:
            break
    return [*known[:taken_known], *ids[taken:]]


def _text(token_id: int, tokenizer: Tokenizer) -> bytes | None:
    """The token's bytes; None where it has none, or is no text."""
    if token_id in tokenizer.special_ids:
        return None
    try:
        return tokenizer.token_bytes(token_id) or None
    except RingletError:  # a vocabulary of whole words
        return None
