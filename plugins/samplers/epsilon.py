"""Truncation as desmoothing: epsilon and eta sampling, which cut at a probability."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext


class Epsilon:
    """Keeps the tokens of probability ε or more: pᵢ ≥ ε.

    Hewitt, Manning and Liang 2022, Truncation Sampling as Language Model Desmoothing, section 4.2. Where none is so
    likely, the likeliest stay.
    """

    name = "epsilon"
    takes_candidates = True

    def __init__(
        self,
        epsilon: Annotated[float, Parameter("the smallest probability kept, 0: all", minimum=0, maximum=1)] = 0.0003,
    ) -> None:
        self.epsilon = epsilon

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        return at_least(candidates, self.epsilon)


class Eta:
    """Keeps the tokens of probability η or more, where η falls with the entropy: η = min(ε, √ε · e^−H).

    Hewitt, Manning and Liang 2022, Truncation Sampling as Language Model Desmoothing, eq. 4; H = −Σ pᵢ ln pᵢ. Where
    none is so likely, the likeliest stay.
    """

    name = "eta"
    takes_candidates = True

    def __init__(
        self,
        epsilon: Annotated[float, Parameter("the largest that η may be, 0: keeps all", minimum=0, maximum=1)] = 0.0003,
    ) -> None:
        self.epsilon = epsilon

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        return at_least(candidates, min(self.epsilon, np.sqrt(self.epsilon) * np.exp(-candidates.entropy)))


def at_least(candidates: Candidates, probability: float) -> Candidates:
    """Those of this probability or more, or the likeliest: pᵢ ≥ p is lᵢ ≥ max(l) + ln(p·Σ e^(l − max(l)))."""
    return candidates.at_least(candidates.largest + min(0.0, np.log(probability * candidates.total)))


@hookimpl
def register_samplers(register: Register) -> None:
    register(Epsilon)
    register(Eta)
