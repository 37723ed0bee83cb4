"""Top-p, or nucleus sampling: the likeliest tokens that together have probability p."""

from __future__ import annotations

from typing import Annotated

from ringlet.core.candidates import Candidates
from ringlet.core.drawing_plan import Operation
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext


class TopP:
    """Keeps the fewest likeliest tokens whose probabilities sum to p or more.

    Holtzman et al. 2019, The Curious Case of Neural Text Degeneration, eq. 2 and 3: the smallest V with
    Σ_{i∈V} pᵢ ≥ p. One token at least; of equal ones the lowest ids come first.
    """

    name = "top_p"
    takes_candidates = True

    def __init__(
        self, p: Annotated[float, Parameter("the probability kept, 1: all", minimum=0, maximum=1)] = 0.95
    ) -> None:
        self.p = p

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        return candidates if self.p == 1 else candidates.nucleus(self.p)

    def operation(self) -> Operation:
        return Operation("top_p", self.p)


@hookimpl
def register_samplers(register: Register) -> None:
    register(TopP)
