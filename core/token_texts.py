"""Token ids and texts as a user writes them in a chain of samplers, and the token ids that a text may come as."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ringlet.core.errors import RingletError

if TYPE_CHECKING:
    from ringlet.tokenization.tokenizer import Tokenizer

LARGEST_BIAS = 1e6
ANCHOR = "\n"  # a token that joins no word


def split_texts(texts: str) -> list[str]:
    """ "foo|bar" as ["foo", "bar"]; || stands for a | itself, and empty texts for nothing."""
    return [text.replace("||", "|") for text in re.findall(r"(?:[^|]|\|\|)+", texts)]


def token_ids(text: str) -> tuple[int, ...]:
    """ "12 345" as (12, 345). Raises RingletError."""
    try:
        ids = tuple(int(word) for word in text.split())
    except ValueError:
        ids = (-1,)
    if not ids or min(ids) < 0:
        raise RingletError(f"{text.strip()!r} is no list of token ids: whole numbers with blanks between are needed")
    return ids


def token_id_sequences(texts: str) -> list[tuple[int, ...]]:
    """ "12 345|7" as [(12, 345), (7,)]. Raises RingletError."""
    return [token_ids(text) for text in texts.split("|")]


def bias_of(text: str) -> float:
    """ "+2.5" or "-inf" as a number. Raises RingletError."""
    try:
        bias = float(text)
    except ValueError:
        bias = math.nan
    if not (abs(bias) <= LARGEST_BIAS or bias == -math.inf):
        raise RingletError(f"the bias {text.strip()!r} is no number up to {LARGEST_BIAS:g} in size, nor -inf")
    return bias


def spellings(text: str, tokenizer: Tokenizer | None) -> set[tuple[int, ...]]:
    """The token ids that a text may come as: as a prompt begins with it, inside a word, and after a blank.

    Other tokens may spell it too, or hold it inside a longer word. Raises RingletError without a tokenizer, and for a
    text that has no tokens.
    """
    if tokenizer is None:
        raise RingletError(f"the text {text!r} needs a tokenizer: give token ids, or SamplerChain a tokenizer")
    anchor = tokenizer.encode(ANCHOR, add_special=False)
    found = {tuple(tokenizer.encode(text, add_special=False))}
    for written in (text, f" {text}"):
        ids = tokenizer.encode(f"{ANCHOR}{written}", add_special=False)
        if ids[: len(anchor)] == anchor:
            found.add(tuple(ids[len(anchor) :]))
    found.discard(())
    if not found:
        raise RingletError(f"the text {text!r} has no tokens")
    return found
