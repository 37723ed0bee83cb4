"""A growing list of token ids: those of a ring, and those that samplers see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

LEAST_ROOM = 256
MOST_ROOM = 1 << 20  # ids; more are not made room for before they come


class TokenList:
    """A growing int32 array. n_prompt: how many of the ids are the prompt; all, unless said otherwise."""

    def __init__(self, ids: ArrayLike, n_prompt: int | None = None) -> None:
        self._ids = np.array(ids, np.int32)
        self._n = len(self._ids)
        self.n_prompt = self._n if n_prompt is None else n_prompt

    def __len__(self) -> int:
        return self._n

    @property
    def ids(self) -> np.ndarray:
        """All so far, int32 (n,); a view, of which no more than n ids ever change."""
        return self._ids[: self._n]

    @property
    def n_drawn(self) -> int:
        """Those after the prompt."""
        return self._n - self.n_prompt

    def make_room(self, n_more: int) -> None:
        """Take memory for so many more ids now, so that a long text needs none on its way."""
        missing = self._n + min(n_more, MOST_ROOM) - len(self._ids)
        if missing > 0:
            self._ids = np.concatenate([self._ids, np.full(missing, -1, np.int32)])  # written: memory is really taken

    def append(self, token_id: int) -> None:
        self._grow(1)
        self._ids[self._n] = token_id
        self._n += 1

    def extend(self, token_ids: Sequence[int]) -> None:
        self._grow(len(token_ids))
        self._ids[self._n : self._n + len(token_ids)] = token_ids
        self._n += len(token_ids)

    def cut(self, n: int) -> None:
        """Keep the first n."""
        self._n = n

    def fork(self) -> TokenList:
        """The same ids, in a list of their own."""
        return TokenList(self.ids, self.n_prompt)

    def _grow(self, n_more: int) -> None:
        if self._n + n_more > len(self._ids):
            room = np.empty(max(LEAST_ROOM, self._n, n_more), np.int32)
            self._ids = np.concatenate([self._ids, room])
