"""The candidates that a chain of samplers begins with: every token there is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ringlet.core.candidates import Candidates, check_numbers, distinct_ids, exponentials, rounded_up
from ringlet.core.largest import FEW, places_from, places_of_largest
from ringlet.core.likeliest import Logits

NO_IDS, NO_LOGITS = np.empty(0, np.intp), np.empty(0, np.float32)


class WholeVocabulary(Candidates):
    """All tokens; a logit of −∞ counts as removed.

    The logits are lent, and neither copied nor changed: what narrows looks at those that are listed, or else makes one
    pass over all, and the tokens that were given other logits are kept beside them. What Candidates promises of `ids`
    and `logits` is made when it is asked for; samplers that narrow do without.
    """

    def __init__(
        self, lent: Logits | np.ndarray, changed_ids: np.ndarray = NO_IDS, changed: np.ndarray = NO_LOGITS
    ) -> None:
        """Plainly of logits alone, float32 (d_vocab,) if an array. changed_ids: ascending, those whose logits are
        `changed` and not what was lent.
        """
        if isinstance(lent, np.ndarray):
            lent = Logits.of_all(lent)
        if not len(changed):
            check_numbers(lent.largest)
        self._row, self.d_vocab = lent, lent.d_vocab
        self._changed_ids, self._changed = changed_ids, changed

    @cached_property
    def ids(self) -> np.ndarray:
        left = self._left
        return np.arange(self.d_vocab) if left is None else left

    @cached_property
    def logits(self) -> np.ndarray:
        left = self._left
        logits = self._all_logits.view() if left is None else self._all_logits[left]
        logits.flags.writeable = False
        return logits

    @property
    def _lent(self) -> np.ndarray:
        return self._row.all

    @cached_property
    def _all_logits(self) -> np.ndarray:
        return self.dense() if len(self._changed) else self._lent

    @cached_property
    def largest(self) -> np.float32:
        return self.top(1).logits[0] if len(self._changed) else np.float32(self._row.largest)

    @cached_property
    def _left(self) -> np.ndarray | None:
        """The ids of tokens that are left; None: all are."""
        if np.minimum.reduce(self._all_logits) > -np.inf:
            return None
        return (self._all_logits > -np.inf).nonzero()[0]

    @cached_property
    def _all_weights(self) -> np.ndarray:
        return exponentials(self._all_logits, self.largest)

    def _id_at(self, place: int) -> int:
        return place

    def __len__(self) -> int:
        return self.d_vocab if self._left is None else len(self._left)

    def keep(self, which: np.ndarray) -> Candidates:
        if self._left is not None:
            return super().keep(which)
        places = which.nonzero()[0] if which.dtype == bool else which
        return Candidates(places, self._all_logits[places], self.d_vocab)

    def top(self, k: int) -> Candidates:
        n_changed = len(self._changed)
        if k >= self.d_vocab:
            return Candidates(self.ids, self.logits, self.d_vocab) if n_changed else self
        if k <= len(self._row.ids):
            ids, values = self._unchanged_of_listed()
            if k <= len(ids) and values[k - 1] > -np.inf:
                return self._with_changed(ids[:k], values[:k], values[k - 1]).top(k)
        maxima = self._row.maxima
        if n_changed > len(maxima) // 4:
            return WholeVocabulary(self.dense()).top(k)
        # Of those that are as they were lent, the k largest are among the k + n_changed largest of all.
        return self._from_places(places_of_largest(self._lent, maxima, k + n_changed)).top(k)

    def at_least(self, border: float | np.floating) -> Candidates:
        border = rounded_up(border)
        if len(self._row.values) and self._row.values[-1] < border:
            ids, values = self._unchanged_of_listed()
            n = int(np.count_nonzero(values >= border))
            return self._with_changed(ids[:n], values[:n], border)
        return self._from_places(places_from(self._lent, self._row.maxima, border), border)

    def _likeliest_reaching(self, needed: float) -> Candidates:
        count = FEW
        while count < self.d_vocab:
            few = self.top(count)
            if few.total >= needed:
                return few._likeliest_reaching(needed)
            count *= 8
        return super()._likeliest_reaching(needed)

    def with_logits(self, logits: np.ndarray) -> Candidates:
        if self._left is not None or np.shape(logits) != (self.d_vocab,):
            return super().with_logits(logits)
        return WholeVocabulary(np.asarray(logits, np.float32))

    def change(self, ids: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> Candidates:
        if not len(ids):
            return self
        places, all_ids, all_logits = self._changed_with(ids)
        before = all_logits[places]
        after = np.asarray(function(before), np.float32)
        after = np.where(before > -np.inf, after, before)
        all_logits[places] = after
        changed = WholeVocabulary(self._row, all_ids, all_logits)
        largest = np.maximum.reduce(after)
        if not largest < np.inf:
            check_numbers(largest)
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

    def _unchanged_of_listed(self) -> tuple[np.ndarray, np.ndarray]:
        """Those listed that are as they were lent, with their logits; still in the order of the list."""
        ids, values = self._row.ids, self._row.values
        if not len(self._changed):
            return ids, values
        unchanged = self._changed_ids[self._changed_places(ids)] != ids
        return ids[unchanged], values[unchanged]

    def _from_places(self, ids: np.ndarray, border: np.float32 | float = -np.inf) -> Candidates:
        """Those of the ids, ascending, that are as they were lent, and of the changed those from the border on."""
        logits = self._lent[ids]
        if not len(self._changed):
            return Candidates(ids, logits, self.d_vocab)
        unchanged = self._changed_ids[self._changed_places(ids)] != ids
        return self._with_changed(ids[unchanged], logits[unchanged], border)

    def _with_changed(self, ids: np.ndarray, logits: np.ndarray, border: np.floating | float) -> Candidates:
        """Unchanged tokens, in any order, from the border on, and the changed ones from there on; −inf nowhere."""
        if len(self._changed):
            near = ((self._changed >= border) & (self._changed > -np.inf)).nonzero()[0]
            ids = np.concatenate([ids, self._changed_ids[near]])
            logits = np.concatenate([logits, self._changed[near]])
        order = ids.argsort()
        return Candidates(ids[order], logits[order], self.d_vocab)

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
