"""Logits of which the likeliest are known at once, and all when they are asked for.

Most samplers look at a few of the likeliest tokens. Where the backend finds those itself, in its step, nobody has to go
through the whole vocabulary again, nor bring it from a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from ringlet.core.drawing_plan import DrawingPlan
from ringlet.core.largest import column_maxima


class Logits:
    """The logits after one token, of which the likeliest are listed.

    ids: int32 (n,), the n likeliest of all d_vocab tokens, the largest logit first, of equal ones the lowest id first;
    none where nothing is known. values: their logits, float32 (n,). A NaN comes before all numbers.
    fetch: gives the logits of all tokens, float32 (d_vocab,). draw: see `Likeliest`. removed: ids without a logit.
    """

    def __init__(
        self,
        ids: np.ndarray,
        values: np.ndarray,
        d_vocab: int,
        fetch: Callable[[], np.ndarray],
        draw: Callable[..., int] | None = None,
        removed: np.ndarray | None = None,
    ) -> None:
        self.ids, self.values, self.d_vocab, self._fetch = ids, values, d_vocab, fetch
        self._draw, self._removed = draw, NONE_REMOVED if removed is None else removed

    @classmethod
    def of_all(cls, logits: np.ndarray) -> Logits:
        """Those of an array, float32 (d_vocab,), of which nothing else is known."""
        return cls(NONE_LISTED, NO_VALUES, len(logits), lambda: logits)

    @cached_property
    def all(self) -> np.ndarray:
        """Those of all tokens, float32 (d_vocab,), lent: not to be changed."""
        return self._fetch()

    @cached_property
    def maxima(self) -> np.ndarray:
        """The `column_maxima` of all."""
        return column_maxima(self.all)

    @property
    def largest(self) -> np.floating:
        """The largest logit; NaN where any is."""
        return self.values[0] if len(self.values) else np.maximum.reduce(self.maxima)

    def without(self, removed: np.ndarray) -> Logits:
        """The same, with −inf for the ids that are removed."""
        if not len(removed):
            return self
        left = np.isin(self.ids, removed, invert=True)
        all_removed = np.concatenate([self._removed, removed])
        fetch = partial(_without, self, removed)
        return Logits(self.ids[left], self.values[left], self.d_vocab, fetch, self._draw, all_removed)

    @property
    def can_draw(self) -> bool:
        """Whether the backend has code that draws."""
        return self._draw is not None and len(self.ids) > 0

    def draw(self, plan: DrawingPlan, token_ids: np.ndarray, prompt_length: int, uniform: float) -> int | None:
        """The id that the backend draws by the plan; None where the listed tokens do not tell it.

        token_ids: int32 (n,), the text so far. uniform: 0 ≤ uniform < 1, which decides.
        """
        assert self._draw is not None
        found = self._draw(self._removed, plan, np.ascontiguousarray(token_ids), prompt_length, uniform)
        return None if found < 0 else found


@dataclass(frozen=True, eq=False)
class Likeliest:
    """What `Backend.forward_likeliest` returns, a row for each token whose logits are wanted.

    ids: int32 (rows, n), values: float32 (rows, n), as in `Logits`; n may be 0. d_vocab: how many tokens there are.
    fetch: gives all logits of a row, float32 (d_vocab,), and goes on to do so while somebody holds on to it, whatever
    steps come after. draw: draws a token of a row in compiled code, where the backend has some: (row, this, removed
    ids: int64 (n,), plan, token ids so far: int32 (m,), how many of them are the prompt, a uniform number) -> its id,
    or -1 where those that are listed do not tell it. See `DrawingPlan`.
    """

    ids: np.ndarray
    values: np.ndarray
    d_vocab: int
    fetch: Callable[[int], np.ndarray]
    draw: Callable[..., int] | None = None

    @classmethod
    def of_all(cls, logits: np.ndarray) -> Likeliest:
        """Rows of an array, float32 (rows, d_vocab), of which nothing else is known."""
        rows, d_vocab = logits.shape
        return cls(np.empty((rows, 0), np.int32), np.empty((rows, 0), np.float32), d_vocab, lambda row: logits[row])

    def rows(self) -> list[Logits]:
        return [
            Logits(ids, values, self.d_vocab, partial(self.fetch, row), self.draw and partial(self.draw, row, self))
            for row, (ids, values) in enumerate(zip(self.ids, self.values, strict=True))
        ]


NONE_LISTED, NO_VALUES, NONE_REMOVED = np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.int64)


def _without(row: Logits, removed: np.ndarray) -> np.ndarray:
    logits = row.all.copy()
    logits[removed] = -np.inf
    return logits
