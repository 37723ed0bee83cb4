"""The tokens that may still be drawn: what a chain of samplers hands on.

A sampler whose class says ``takes_candidates = True`` gets them in place of the logits of the whole vocabulary, and
returns them: after top-k it works on forty numbers and not on a hundred thousand.

    class MinP:
        name = "min_p"
        takes_candidates = True

        def __init__(self, p: float = 0.05) -> None: ...

        def __call__(self, candidates, context):
            return candidates.keep(candidates.logits >= candidates.logits.max() + log(self.p))

Nothing here is changed once it is made: each method returns new candidates. What cannot be drawn from (a NaN, +inf,
no token at all) raises UnusableLogits, which the chain tells with the sampler's name.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import numpy as np
from numpy.typing import ArrayLike

from ringlet.core.largest import column_maxima, kth_largest, places_of_largest, update_column_maxima

MANY = 1 << 14  # tokens whose weights are worth computing in float32
FEW = 256  # tokens that are sorted at once


class UnusableLogits(ValueError):  # noqa: N818 - the state of an array; errors are made of it
    """Nothing can be drawn from these logits; the text says why."""


class Candidates:
    """Tokens that are left, and their logits.

    ids: whole numbers (n,), ascending, none twice. logits: float32 (n,), finite, in the same order; read-only.
    d_vocab: how many tokens there are in all.
    """

    def __init__(self, ids: np.ndarray, logits: np.ndarray, d_vocab: int) -> None:
        if not len(ids):
            raise UnusableLogits("removed every token")
        logits.flags.writeable = False
        self._ids, self._logits, self.d_vocab = ids, logits, d_vocab

    @property
    def ids(self) -> np.ndarray:
        return self._ids

    @property
    def logits(self) -> np.ndarray:
        return self._logits

    def __len__(self) -> int:
        return len(self.ids)

    def keep(self, which: np.ndarray) -> Candidates:
        """Those alone. which: bool (n,), or their places among these, ascending."""
        return Candidates(self.ids[which], self.logits[which], self.d_vocab)

    def with_logits(self, logits: np.ndarray) -> Candidates:
        """The same tokens with other logits, floats (n,); −inf removes a token."""
        logits = np.asarray(logits, np.float32)
        if logits.shape != (len(self),):
            raise UnusableLogits(f"made logits of the shape {logits.shape}, not ({len(self)},)")
        check_numbers(logits)
        if np.minimum.reduce(logits) == -np.inf:
            left = logits > -np.inf
            return Candidates(self.ids[left], logits[left], self.d_vocab)
        return Candidates(self.ids, logits.view(), self.d_vocab)

    def top(self, k: int) -> Candidates:
        """The k of the largest logits, k ≥ 1; of equal ones at the border the lowest ids."""
        logits = self.logits
        if k >= len(logits):
            return self
        border = kth_largest(logits, k)
        kept = logits >= border
        surplus = int(np.count_nonzero(kept)) - k
        if surplus:
            kept[np.flatnonzero(logits == border)[-surplus:]] = False
        return self.keep(kept)

    def change(self, ids: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> Candidates:
        """Other logits for a few tokens.

        ids: ascending, none twice, all within the vocabulary. function: their logits, float32 (len(ids),), −inf for
        those that were removed before and stay so, to others of that shape; −inf removes a token.
        """
        places, found = self._places(ids)
        if not len(places):
            return self
        before = np.full(len(ids), -np.inf, np.float32)
        before[found] = self.logits[places]
        logits = self.logits.copy()
        logits[places] = function(before)[found]
        return self.with_logits(logits)

    def remove(self, ids: ArrayLike) -> Candidates:
        """Without these; ids: any, in any order."""
        places, _ = self._places(np.asarray(ids))
        if not len(places):
            return self
        kept = np.ones(len(self), bool)
        kept[places] = False
        return self.keep(kept)

    def only(self, ids: ArrayLike) -> Candidates:
        """Those of them that are among these ids: any, in any order."""
        places, _ = self._places(distinct_ids(ids, self.d_vocab))
        return self.keep(places)

    def dense(self) -> np.ndarray:
        """Logits of the whole vocabulary, a new float32 (d_vocab,); −inf for tokens that are not left."""
        dense = np.full(self.d_vocab, -np.inf, np.float32)
        dense[self.ids] = self.logits
        return dense

    def holds(self, token_id: int) -> bool:
        """Whether the token is left."""
        return len(self._places(np.array([token_id]))[0]) > 0

    def nucleus(self, p: float, scores: np.ndarray) -> Candidates:
        """The fewest tokens of the highest scores, (n,), whose probabilities sum to p or more.

        One token at least; of equal scores the lowest ids come first.
        """
        weights = self.weights()
        needed = p * weights.sum()
        count = FEW
        while count < len(weights):
            places = np.flatnonzero(scores >= kth_largest(scores, count))
            if weights[places].sum() >= needed:
                break
            count *= 8
        else:
            places = np.arange(len(weights))
        order = places[np.argsort(-scores[places], kind="stable")]
        before = np.cumsum(weights[order]) - weights[order]  # what those of higher scores sum to
        return self.keep(np.sort(order[: max(1, np.count_nonzero(before < needed))]))

    def probabilities(self) -> np.ndarray:
        """softmax(logits), float64 (n,)."""
        weights = self.weights()
        return weights / weights.sum()

    def weights(self) -> np.ndarray:
        """The softmax times its denominator, exp(logits − max), float64 (n,): the likeliest has 1.

        Of many tokens they are computed in float32, which is ten times faster, and right to 1e-6 of each.
        """
        logits = self.logits
        if len(logits) > MANY:
            return np.exp(logits - logits.max()).astype(np.float64)
        return np.exp(logits.astype(np.float64) - logits.max())

    def draw(self, rng: np.random.Generator) -> int:
        """One id from the softmax, by inverting its cumulative sum (float64) at one uniform number."""
        cumulative = np.cumsum(self.weights())
        place = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        return int(self.ids[min(place, len(self) - 1)])

    def check(self) -> None:
        """Raises UnusableLogits where what the class promises does not hold: for candidates that a plugin made."""
        ids, logits = self.ids, self.logits
        if ids.ndim != 1 or logits.shape != ids.shape or ids.dtype.kind not in "iu" or logits.dtype != np.float32:
            raise UnusableLogits(f"returned ids {ids.dtype} {ids.shape} and logits {logits.dtype} {logits.shape}")
        if ids[0] < 0 or ids[-1] >= self.d_vocab or not (np.diff(ids) > 0).all():
            raise UnusableLogits("returned ids that are not ascending, or outside the vocabulary")
        if not np.isfinite(logits).all():
            raise UnusableLogits("returned logits that are not finite")

    def _places(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where these ids stand among the candidates, and for which of the ids: the others are not here."""
        places = np.searchsorted(self.ids, ids)
        places[places == len(self)] = 0
        found = np.flatnonzero(self.ids[places] == ids)
        return places[found], found


class WholeVocabulary(Candidates):
    """All tokens; a logit of −∞ counts as removed. It is what a chain begins with.

    One pass over the logits, float32 (d_vocab,), serves the check and the search for the largest. They are lent: what
    changes some of them does it in a copy.
    """

    def __init__(self, logits: np.ndarray) -> None:
        self._values, self._maxima, self.d_vocab = logits, column_maxima(logits), len(logits)
        check_numbers(self._maxima)
        self._is_lent = True
        self._settled: Candidates | None = None

    @property
    def ids(self) -> np.ndarray:
        return self._plain().ids

    @property
    def logits(self) -> np.ndarray:
        return self._plain().logits

    def top(self, k: int) -> Candidates:
        if k >= self.d_vocab:
            return self
        ids = places_of_largest(self._values, self._maxima, k)
        return Candidates(ids, self._values[ids], self.d_vocab).top(k)

    def change(self, ids: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> Candidates:
        if not len(ids):
            return self
        after = np.asarray(function(self._values[ids]), np.float32)
        changed = copy(self)
        changed._values, changed._maxima = self._values.copy(), self._maxima.copy()
        changed._values[ids], changed._settled = after, None
        update_column_maxima(changed._values, changed._maxima, ids)
        check_numbers(changed._maxima)
        return changed

    def remove(self, ids: ArrayLike) -> Candidates:
        ids = distinct_ids(ids, self.d_vocab)
        return self.change(ids, lambda logits: np.full(len(logits), -np.inf, np.float32))

    def only(self, ids: ArrayLike) -> Candidates:
        ids = distinct_ids(ids, self.d_vocab)
        logits = self._values[ids]
        left = logits > -np.inf
        return Candidates(ids[left], logits[left], self.d_vocab)

    def holds(self, token_id: int) -> bool:
        return bool(self._values[token_id] > -np.inf)

    def dense(self) -> np.ndarray:
        return self._values.copy()

    def _plain(self) -> Candidates:
        """The same with ids of its own."""
        if self._settled is None:
            logits = self._values
            if np.minimum.reduce(logits) > -np.inf:
                self._settled = Candidates(np.arange(len(logits)), logits.view(), self.d_vocab)
            else:
                ids = (logits > -np.inf).nonzero()[0]
                self._settled = Candidates(ids, logits[ids], self.d_vocab)
        return self._settled


def check_numbers(logits: np.ndarray) -> None:
    """Raises UnusableLogits where there is NaN or +inf among them, or nothing but −inf."""
    largest = np.maximum.reduce(logits)
    if np.isnan(largest) or largest == np.inf:
        raise UnusableLogits(f"returned {'NaN' if np.isnan(largest) else '+inf'}")
    if largest == -np.inf:
        raise UnusableLogits("removed every token")


def distinct_ids(ids: ArrayLike, d_vocab: int) -> np.ndarray:
    """Those of the ids that are tokens, (n,), ascending, none twice."""
    ordered = np.sort(np.asarray(ids, np.intp).ravel())
    ordered = ordered[np.searchsorted(ordered, 0) : np.searchsorted(ordered, d_vocab)]
    return ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]
