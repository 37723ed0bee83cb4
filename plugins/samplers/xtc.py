"""XTC, exclude top choices: now and then the likeliest tokens are taken away."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext


class XTC:
    """Now and then removes the likeliest tokens, all but the last that is still likely.

    Weidmann 2024, Exclude Top Choices (text-generation-webui, pull request 6335). With the given probability: of the
    tokens with pᵢ ≥ threshold all go but the least likely of them, of equally likely ones that with the highest id.
    Fewer than two such tokens stay as they are. It takes one random number a step.
    """

    name = "xtc"
    takes_candidates = True

    def __init__(
        self,
        probability: Annotated[float, Parameter("how often it acts", minimum=0, maximum=1)] = 0.5,
        threshold: Annotated[float, Parameter("probability of a top choice", minimum=0, maximum=1)] = 0.1,
    ) -> None:
        self.probability, self.threshold = probability, threshold

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        if context.rng.random() >= self.probability:
            return candidates
        border = candidates.largest + np.log(self.threshold * candidates.total)
        if border > candidates.largest:
            return candidates
        choices = candidates.at_least(border)
        last = (choices.logits == choices.logits.min()).nonzero()[0][-1]
        return candidates.remove(np.delete(choices.ids, last))


@hookimpl
def register_samplers(register: Register) -> None:
    register(XTC)
