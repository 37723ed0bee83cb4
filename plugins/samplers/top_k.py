"""Top-k: the k likeliest tokens."""

from __future__ import annotations

from typing import Annotated

from ringlet.core.candidates import Candidates
from ringlet.core.drawing_plan import Operation
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext


class TopK:
    """Keeps the k likeliest tokens (Fan, Lewis and Dauphin 2018, Hierarchical Neural Story Generation, section 5).

    Exactly k: of equal ones at the border the lowest ids stay.
    """

    name = "top_k"
    takes_candidates = True

    def __init__(self, k: Annotated[int, Parameter("how many tokens stay; 0: all", minimum=0)] = 40) -> None:
        self.k = k

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        return candidates.top(self.k) if self.k else candidates

    def operation(self) -> Operation:
        return Operation("top_k", self.k)


@hookimpl
def register_samplers(register: Register) -> None:
    register(TopK)
