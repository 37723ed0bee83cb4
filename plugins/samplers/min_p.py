"""Min-p: the tokens that are not too unlikely beside the likeliest."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.drawing_plan import Operation
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext


class MinP:
    """Keeps the tokens whose probability is at least p times the largest.

    Nguyen et al. 2024, Turning Up the Heat: Min-p Sampling, section 3. In logits: lᵢ ≥ max(l) + ln p.
    """

    name = "min_p"
    takes_candidates = True

    def __init__(
        self, p: Annotated[float, Parameter("share of the largest probability, 0: all", minimum=0, maximum=1)] = 0.05
    ) -> None:
        self.p = p

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        if self.p == 0:
            return candidates
        return candidates.at_least(candidates.largest + np.log(self.p))

    def operation(self) -> Operation:
        return Operation("min_p", float(np.log(self.p)) if self.p else -math.inf)


@hookimpl
def register_samplers(register: Register) -> None:
    register(MinP)
