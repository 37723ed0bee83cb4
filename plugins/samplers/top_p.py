"""Top-p, or nucleus sampling: the likeliest tokens that together have probability p."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext


class TopP:
    """Keeps the smallest set of likeliest tokens whose probabilities sum to p or more
    (Holtzman et al. 2019, The Curious Case of Neural Text Degeneration, eq. 2 and 3).

    One token at least; of equal ones the lowest ids come first.
    """

    name = "top_p"

    def __init__(
        self, p: Annotated[float, Parameter("the probability kept, 1: all", minimum=0, maximum=1)] = 0.95
    ) -> None:
        self.p = p

    def __call__(self, logits: np.ndarray, context: SamplerContext) -> np.ndarray:
        if self.p == 1:
            return logits
        ids = np.flatnonzero(logits > -np.inf)
        weights = np.exp(logits[ids].astype(np.float64) - logits.max())  # softmax times `total`
        total = weights.sum()
        # All tokens below this weight together have less than 1 - p, so the set is found among the others.
        likely = np.flatnonzero(weights * len(weights) >= (1 - self.p) * total)
        order = likely[np.argsort(-weights[likely], kind="stable")]
        before = np.cumsum(weights[order]) - weights[order]  # what the likelier ones sum to
        kept = ids[order[: max(1, np.count_nonzero(before < self.p * total))]]
        smaller = np.full_like(logits, -np.inf)
        smaller[kept] = logits[kept]
        return smaller


@hookimpl
def register_samplers(register: Register) -> None:
    register(TopP)
