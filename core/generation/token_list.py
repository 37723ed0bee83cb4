"""The ids of prompt and completion, as samplers see them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

LEAST_ROOM = 256


class TokenList:
    """A growing int32 array. n_prompt: how many of the ids are the prompt; all, unless said otherwise."""

    def __init__(self, ids: ArrayLike, n_prompt: int | None = None) -> None:
        self._ids = np.array(ids, np.int32)
        self._n = len(self._ids)
        self.n_prompt = self._n if n_prompt is None else n_prompt

    @property
    def ids(self) -> np.ndarray:
        """All so far, int32 (n,); a view, of which no more than n ids ever change."""
        return self._ids[: self._n]

    @property
    def n_drawn(self) -> int:
        """Those after the prompt."""
        return self._n - self.n_prompt

    def append(self, token_id: int) -> None:
        if self._n == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty(max(LEAST_ROOM, self._n), np.int32)])
        self._ids[self._n] = token_id
        self._n += 1

    def fork(self) -> TokenList:
        """The same ids, in a list of their own."""
        return TokenList(self.ids, self.n_prompt)
