"""Greedy choice: the likeliest token, always."""

from __future__ import annotations

from ringlet.core.candidates import Candidates
from ringlet.core.drawing_plan import GREEDY, Operation
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.sampling import SamplerContext


class Greedy:
    """The likeliest token, argmax(logits); of equal ones the lowest id."""

    name = "greedy"
    takes_candidates = True

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        return candidates.top(1)

    def pick(self, candidates: Candidates, context: SamplerContext) -> int:
        return int(candidates.top(1).ids[0])

    def operation(self) -> Operation:
        return Operation(GREEDY, 0)


@hookimpl
def register_samplers(register: Register) -> None:
    register(Greedy)
