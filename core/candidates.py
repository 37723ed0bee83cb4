"""The tokens that may still be drawn: what a chain of samplers hands on.

A sampler whose class says ``takes_candidates = True`` gets them in place of the logits of the whole vocabulary, and
returns them: after top-k it works on forty numbers and not on a hundred thousand.

    class MinP:
        name = "min_p"
        takes_candidates = True

        def __init__(self, p: float = 0.05) -> None: ...

        def __call__(self, candidates, context):
            return candidates.at_least(candidates.largest + log(self.p))

Nothing here is changed once it is made: each method returns new candidates. What cannot be drawn from (a NaN, +inf,
no token at all) raises UnusableLogits, which the chain tells with the sampler's name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ringlet.core.largest import fewest_reaching, kth_largest

MANY = 1 << 14  # tokens whose weights are worth computing in float32
BLOCK = 1 << 12  # of them are summed at once
FARTHEST = -1e4  # below the largest logit, where e^x is 0


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

    # --- their probabilities ---------------------------------------------------------------------------------------

    @cached_property
    def largest(self) -> np.float32:
        """The largest logit."""
        return np.maximum.reduce(self._all_logits)

    @cached_property
    def weights(self) -> np.ndarray:
        """The softmax times its denominator, exp(logits − largest), (n,): the likeliest has 1.

        Of many tokens float32, which is ten times as fast; of few float64.
        """
        return exponentials(self.logits, self.largest)

    @cached_property
    def total(self) -> float:
        """The sum of the weights, the softmax's denominator: pᵢ = weights[i] / total."""
        return float(self._all_weights.sum())

    @property
    def probabilities(self) -> np.ndarray:
        """softmax(logits), (n,)."""
        return self.weights / self.total

    @property
    def entropy(self) -> float:
        """H = −Σ pᵢ ln pᵢ, in nats."""
        differences = np.maximum(self._all_logits - self.largest, np.float32(FARTHEST))
        return float(np.log(self.total) - (self._all_weights * differences).sum() / self.total)

    def draw(self, rng: np.random.Generator) -> int:
        """One id from the softmax, by inverting its cumulative sum (float64) at one uniform number."""
        return self.at_share(rng.random())

    def at_share(self, share: float) -> int:
        """The id at which the cumulative sum of the probabilities exceeds the share, 0 ≤ share < 1."""
        return self._id_at(_place_of_share(self._all_weights, share))

    # --- fewer of them, or others ------------------------------------------------------------------------------------

    def keep(self, which: np.ndarray) -> Candidates:
        """Those alone. which: bool (n,), or their places among these, ascending."""
        return Candidates(self.ids[which], self.logits[which], self.d_vocab)

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

    def at_least(self, border: float | np.floating) -> Candidates:
        """Those whose logit is `border` or more."""
        return self.keep(self.logits >= rounded_up(border))

    def nucleus(self, p: float) -> Candidates:
        """The fewest likeliest tokens whose probabilities sum to p or more.

        One token at least; of equal ones the lowest ids come first.
        """
        return self._likeliest_reaching(p * self.total)

    def with_logits(self, logits: np.ndarray) -> Candidates:
        """The same tokens with other logits, floats (n,); −inf removes a token."""
        logits = np.asarray(logits, np.float32)
        if logits.shape != (len(self),):
            raise UnusableLogits(f"made logits of the shape {logits.shape}, not ({len(self)},)")
        check_numbers(np.maximum.reduce(logits))
        if np.minimum.reduce(logits) == -np.inf:
            left = logits > -np.inf
            return Candidates(self.ids[left], logits[left], self.d_vocab)
        return Candidates(self.ids, logits.view(), self.d_vocab)

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

    # --- and besides -------------------------------------------------------------------------------------------------

    def holds(self, token_id: int) -> bool:
        """Whether the token is left."""
        return len(self._places(np.array([token_id]))[0]) > 0

    def dense(self) -> np.ndarray:
        """Logits of the whole vocabulary, a new float32 (d_vocab,); −inf for tokens that are not left."""
        dense = np.full(self.d_vocab, -np.inf, np.float32)
        dense[self.ids] = self.logits
        return dense

    def check(self) -> None:
        """Raises UnusableLogits where what the class promises does not hold: for candidates that a plugin made."""
        ids, logits = self.ids, self.logits
        if ids.ndim != 1 or logits.shape != ids.shape or ids.dtype.kind not in "iu" or logits.dtype != np.float32:
            raise UnusableLogits(f"returned ids {ids.dtype} {ids.shape} and logits {logits.dtype} {logits.shape}")
        if ids[0] < 0 or ids[-1] >= self.d_vocab or not (np.diff(ids) > 0).all():
            raise UnusableLogits("returned ids that are not ascending, or outside the vocabulary")
        if not np.isfinite(logits).all():
            raise UnusableLogits("returned logits that are not finite")

    @property
    def _all_logits(self) -> np.ndarray:
        """The logits, perhaps with −inf for tokens that are not left."""
        return self._logits

    @property
    def _all_weights(self) -> np.ndarray:
        """The weights of `_all_logits`."""
        return self.weights

    def _likeliest_reaching(self, needed: float) -> Candidates:
        """The fewest likeliest tokens whose weights sum to `needed`."""
        return self.keep(fewest_reaching(self.logits, self.weights, needed))

    def _id_at(self, place: int) -> int:
        """The token at this place of `_all_logits`."""
        return int(self._ids[place])

    def _places(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where these ids stand among the candidates, and for which of the ids: the others are not here."""
        places = self.ids.searchsorted(ids)
        places[places == len(self)] = 0
        found = (self.ids[places] == ids).nonzero()[0]
        return places[found], found


def check_numbers(largest: np.floating) -> None:
    """Raises UnusableLogits where there is NaN or +inf among logits, or nothing but −inf. largest: NaN where any is."""
    if largest != largest or largest == np.inf:
        raise UnusableLogits(f"returned {'+inf' if largest == np.inf else 'NaN'}")
    if largest == -np.inf:
        raise UnusableLogits("removed every token")


def distinct_ids(ids: ArrayLike, d_vocab: int) -> np.ndarray:
    """Those of the ids that are tokens, (n,), ascending, none twice."""
    ordered = np.sort(np.asarray(ids, np.intp).ravel())
    ordered = ordered[ordered.searchsorted(0) : ordered.searchsorted(d_vocab)]
    return ordered[np.diff(ordered, prepend=-1).nonzero()[0]]


def rounded_up(border: float | np.floating) -> np.float32:
    """The smallest float32 that is no smaller: float32 logits are above the one where they are above the other."""
    rounded = np.float32(border)
    return rounded if rounded >= border else np.nextafter(rounded, np.float32(np.inf))


def exponentials(logits: np.ndarray, largest: np.float32) -> np.ndarray:
    """exp(logits − largest), (n,); of many logits float32."""
    if len(logits) <= MANY:
        return np.exp(logits.astype(np.float64) - largest)
    differences = logits - largest
    return np.exp(differences, out=differences)


def _place_of_share(weights: np.ndarray, share: float) -> int:
    """Where the cumulative sum of the weights (n,) first exceeds this share, 0 ≤ share < 1, of their sum."""
    if len(weights) <= MANY:
        return _place_of_sum(weights, share, None)
    sums = np.add.reduceat(weights, np.arange(0, len(weights), BLOCK), dtype=np.float64)
    block = _place_of_sum(sums, share, None)
    rest = share * sums.sum() - sums[:block].sum()
    return block * BLOCK + _place_of_sum(weights[block * BLOCK : (block + 1) * BLOCK], 0.0, rest)


def _place_of_sum(weights: np.ndarray, share: float, wanted: float | None) -> int:
    """The same, for a few; or, where it is given, where the sum first exceeds `wanted`. The place has a weight."""
    cumulative = weights.cumsum(dtype=np.float64)
    wanted = share * cumulative[-1] if wanted is None else wanted
    place = int(cumulative.searchsorted(wanted, side="right"))
    return place if place < len(weights) else int(weights.nonzero()[0][-1])  # a sum was rounded
