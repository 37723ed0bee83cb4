"""Locally typical sampling: the tokens that surprise about as much as the model expects."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.largest import fewest_reaching
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext


class Typical:
    """Keeps the tokens whose surprise is nearest the entropy, until their probabilities sum to p.

    Meister et al. 2022, Locally Typical Sampling, eq. 8: the fewest tokens of smallest |H + ln pᵢ| with Σ pᵢ ≥ p,
    H = −Σ pᵢ ln pᵢ. The likeliest token may go. One token at least; of equal ones the lowest ids come first.
    """

    name = "typical"
    takes_candidates = True

    def __init__(
        self, p: Annotated[float, Parameter("the probability kept, 1: all", minimum=0, maximum=1)] = 0.95
    ) -> None:
        self.p = p

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        if self.p == 1:
            return candidates
        weights, total = candidates.weights, candidates.total
        # H + ln pᵢ, with the precision that the weights have
        distance = candidates.logits.astype(weights.dtype) - (candidates.largest + np.log(total) - candidates.entropy)
        return candidates.keep(fewest_reaching(-np.abs(distance), weights, self.p * total))


@hookimpl
def register_samplers(register: Register) -> None:
    register(Typical)
