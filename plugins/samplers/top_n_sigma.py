"""Top-nσ: the tokens that stand out of the noise of the logits."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext


class TopNSigma:
    """Keeps the tokens whose logit is within n standard deviations of the largest: lᵢ ≥ max(l) − n·σ(l).

    Tang et al. 2024, Top-nσ: Not All Logits Are You Need, algorithm 1. σ is that of the logits that are left. What
    stays does not depend on the temperature, whether it stands before or after.
    """

    name = "top_n_sigma"
    takes_candidates = True

    def __init__(
        self, n: Annotated[float, Parameter("standard deviations below the largest logit", above=0)] = 1.0
    ) -> None:
        self.n = n

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        sigma = candidates.logits.std(dtype=np.float64)
        return candidates.at_least(candidates.largest - self.n * sigma)


@hookimpl
def register_samplers(register: Register) -> None:
    register(TopNSigma)
