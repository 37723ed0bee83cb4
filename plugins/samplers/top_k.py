"""Top-k: the k likeliest tokens."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext

BLOCK = 64


class TopK:
    """Keeps the k largest logits (Fan, Lewis and Dauphin 2018, Hierarchical Neural Story Generation, section 5).

    Exactly k: of equal ones at the border the lowest ids stay.
    """

    name = "top_k"

    def __init__(self, k: Annotated[int, Parameter("how many tokens stay; 0: all", minimum=0)] = 40) -> None:
        self.k = k

    def __call__(self, logits: np.ndarray, context: SamplerContext) -> np.ndarray:
        if self.k == 0 or self.k >= context.d_vocab:
            return logits
        border = kth_largest(logits, self.k)
        equal = np.flatnonzero(logits == border)
        above = int(np.count_nonzero(logits > border))
        logits[logits < border] = -np.inf
        logits[equal[self.k - above :]] = -np.inf
        return logits


def kth_largest(values: np.ndarray, k: int) -> np.floating:
    """The k-th largest of the values (n,), 1 ≤ k ≤ n, without sorting them.

    The k-th largest of the maxima of blocks is no larger than it, so few values are left to look at.
    """
    maxima = values[: len(values) // BLOCK * BLOCK].reshape(-1, BLOCK).max(axis=1)
    if k <= len(maxima):
        values = values[values >= np.partition(maxima, len(maxima) - k)[len(maxima) - k]]
    return np.partition(values, len(values) - k)[len(values) - k]


@hookimpl
def register_samplers(register: Register) -> None:
    register(TopK)
