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

import numpy as np
from numpy.typing import ArrayLike

from ringlet.core.largest import column_maxima, kth_largest, places_of_largest

MANY = 1 << 14  # tokens whose weights are worth computing in float32
FEW = 256  # tokens that are sorted at once
NO_IDS, NO_LOGITS = np.empty(0, np.intp), np.empty(0, np.float32)


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
            kept[(logits == border).nonzero()[0][-surplus:]] = False
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
            places = (scores >= kth_largest(scores, count)).nonzero()[0]
            if weights[places].sum() >= needed:
                break
            count *= 8
        else:
            places = np.arange(len(weights))
        order = places[(-scores[places]).argsort(kind="stable")]
        sums = weights[order].cumsum()
        kept = order[: 1 + int(sums[:-1].searchsorted(needed))]
        kept.sort()
        return self.keep(kept)

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
        cumulative = self.weights().cumsum()
        place = int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))
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

    The logits, float32 (d_vocab,), are lent, and neither copied nor changed: one pass over them serves the check and
    the search for the largest, and the tokens that were given other logits are kept beside them.
    """

    def __init__(
        self,
        logits: np.ndarray,
        maxima: np.ndarray | None = None,
        changed_ids: np.ndarray = NO_IDS,
        changed: np.ndarray = NO_LOGITS,
    ) -> None:
        """Plainly of logits alone. changed_ids: ascending, those whose logits are `changed` and not what was lent."""
        if maxima is None:
            maxima = column_maxima(logits)
            check_numbers(maxima)
        self._lent, self._maxima, self.d_vocab = logits, maxima, len(logits)
        self._changed_ids, self._changed = changed_ids, changed
        self._plain: Candidates | None = None

    @property
    def ids(self) -> np.ndarray:
        return self._as_plain().ids

    @property
    def logits(self) -> np.ndarray:
        return self._as_plain().logits

    def top(self, k: int) -> Candidates:
        n_changed = len(self._changed)
        if k >= self.d_vocab:
            return self._as_plain() if n_changed else self
        if n_changed > len(self._maxima) // 4:
            return WholeVocabulary(self.dense()).top(k)
        # Of those that are as they were lent, the k largest are among the k + n_changed largest of all.
        ids = places_of_largest(self._lent, self._maxima, k + n_changed)
        logits = self._lent[ids]
        if n_changed:
            unchanged = self._changed_ids[self._changed_places(ids)] != ids
            ids = np.concatenate([ids[unchanged], self._changed_ids])
            logits = np.concatenate([logits[unchanged], self._changed])
            order = ids.argsort()
            order = order[logits[order] > -np.inf]
            ids, logits = ids[order], logits[order]
        return Candidates(ids, logits, self.d_vocab).top(k)

    def change(self, ids: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> Candidates:
        if not len(ids):
            return self
        places, all_ids, all_logits = self._changed_with(ids)
        before = all_logits[places]
        after = np.asarray(function(before), np.float32)
        after = np.where(before > -np.inf, after, before)
        all_logits[places] = after
        changed = WholeVocabulary(self._lent, self._maxima, all_ids, all_logits)
        if not np.maximum.reduce(after) < np.inf:
            check_numbers(after)
        if np.minimum.reduce(after) == -np.inf:
            changed.top(1)  # one at least is left
        return changed

    def remove(self, ids: ArrayLike) -> Candidates:
        return self.change(distinct_ids(ids, self.d_vocab), lambda logits: np.full(len(logits), -np.inf, np.float32))

    def only(self, ids: ArrayLike) -> Candidates:
        ids = distinct_ids(ids, self.d_vocab)
        logits = self._logits_of(ids)
        left = logits > -np.inf
        return Candidates(ids[left], logits[left], self.d_vocab)

    def holds(self, token_id: int) -> bool:
        return bool(self._logits_of(np.array([token_id]))[0] > -np.inf)

    def dense(self) -> np.ndarray:
        dense = self._lent.copy()
        dense[self._changed_ids] = self._changed
        return dense

    def _as_plain(self) -> Candidates:
        """The same with an array of ids, and without those that are removed."""
        if self._plain is None:
            logits = self.dense() if len(self._changed) else self._lent
            if np.minimum.reduce(logits) > -np.inf:
                self._plain = Candidates(np.arange(len(logits)), logits.view(), self.d_vocab)
            else:
                ids = (logits > -np.inf).nonzero()[0]
                self._plain = Candidates(ids, logits[ids], self.d_vocab)
        return self._plain

    def _logits_of(self, ids: np.ndarray) -> np.ndarray:
        """ids: ascending, none twice."""
        places, _, logits = self._changed_with(ids)
        return logits[places]

    def _changed_with(self, ids: np.ndarray) -> tuple[slice | np.ndarray, np.ndarray, np.ndarray]:
        """Where these ids, ascending and none twice, stand among those that were changed and these; which those are,
        ascending; and their logits, an array of its own.
        """
        if not len(self._changed):
            return slice(None), ids, self._lent[ids]
        if ids is self._changed_ids:
            return slice(None), ids, self._changed.copy()
        places = self._changed_places(ids)
        known = self._changed_ids[places] == ids
        if known.all():
            return places, self._changed_ids, self._changed.copy()
        new_ids = ids[~known]
        all_ids = np.concatenate([self._changed_ids, new_ids])
        order = all_ids.argsort()
        all_ids, logits = all_ids[order], np.concatenate([self._changed, self._lent[new_ids]])[order]
        return all_ids.searchsorted(ids), all_ids, logits

    def _changed_places(self, ids: np.ndarray) -> np.ndarray:
        """Where these ids would stand among those that were changed."""
        return np.minimum(self._changed_ids.searchsorted(ids), len(self._changed_ids) - 1)


def check_numbers(logits: np.ndarray) -> None:
    """Raises UnusableLogits where there is NaN or +inf among them, or nothing but −inf."""
    largest = float(np.maximum.reduce(logits))
    if largest != largest or largest == np.inf:
        raise UnusableLogits(f"returned {'+inf' if largest == np.inf else 'NaN'}")
    if largest == -np.inf:
        raise UnusableLogits("removed every token")


def distinct_ids(ids: ArrayLike, d_vocab: int) -> np.ndarray:
    """Those of the ids that are tokens, (n,), ascending, none twice."""
    ordered = np.sort(np.asarray(ids, np.intp).ravel())
    ordered = ordered[np.searchsorted(ordered, 0) : np.searchsorted(ordered, d_vocab)]
    return ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]
