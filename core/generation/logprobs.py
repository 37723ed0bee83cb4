"""Log-probabilities of tokens under the model's own distribution, before any sampler."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.core.completion import TokenLogprob, TokenLogprobs
from ringlet.core.largest import column_maxima, places_of_largest


def log_normaliser(logits: np.ndarray) -> float:
    """log Σ e^logits, of float32 (n,) with at least one above −∞; log-softmax(logits) is logits minus it."""
    largest = logits.max()
    return float(largest) + float(np.log(np.exp(logits - largest).sum(dtype=np.float64)))


def likeliest(logits: np.ndarray, count: int) -> np.ndarray:
    """Ids of the `count` largest logits, the largest first, of equal ones the lowest id first; of −∞ never one."""
    if not count:
        return np.empty(0, np.int64)
    ids = places_of_largest(logits, column_maxima(logits), min(count, len(logits)))
    return ids[np.argsort(-logits[ids], kind="stable")[:count]]


class LogprobsOf:
    """What one row of raw logits says: float32 (d_vocab,). count: how many of the likeliest tokens are listed."""

    def __init__(self, logits: np.ndarray, count: int, tokenizer: Any) -> None:
        self._logits, self._tokenizer = logits, tokenizer
        self._normaliser = log_normaliser(logits)
        self._top = [self._entry(int(token_id)) for token_id in likeliest(logits, count)]

    def of(self, token_id: int) -> TokenLogprobs:
        """The token's own, with the likeliest beside it."""
        own = self._entry(token_id)
        return TokenLogprobs(own.token_id, own.text, own.logprob, self._top)

    def _entry(self, token_id: int) -> TokenLogprob:
        text = self._tokenizer.piece(token_id) if self._tokenizer.has_token(token_id) else ""
        return TokenLogprob(token_id, text, float(self._logits[token_id]) - self._normaliser)
