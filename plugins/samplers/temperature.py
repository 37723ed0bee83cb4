"""Temperature: flatter or steeper probabilities, the same for all tokens or as the model is sure."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.drawing_plan import Operation
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext

LARGEST = float(np.finfo(np.float32).max)


class Temperature:
    """softmax(logits/T): flatter probabilities above T = 1, steeper ones below.

    Ackley, Hinton and Sejnowski 1985, A Learning Algorithm for Boltzmann Machines. T = 0, the limit, leaves the
    likeliest token alone; of equal ones the lowest id.

    With a range r > 0 the temperature follows the entropy, as in llama.cpp's `temp_ext` (Leszczynski 2023, "Dynamic
    Temperature"): of the n tokens left, H = −Σ pᵢ ln pᵢ and

        T = max(0, t − r) + (t + r − max(0, t − r)) · (H / ln n)^exponent

    so that a model that is sure stays so, and one that is not may wander.
    """

    name = "temperature"
    takes_candidates = True

    def __init__(
        self,
        temperature: Annotated[
            float, Parameter("below 1: likelier tokens gain; above 1: they lose; 0: greedy", minimum=0)
        ] = 1.0,
        range: Annotated[
            float, Parameter("how far entropy moves the temperature, down and up; 0: not at all", minimum=0)
        ] = 0.0,
        exponent: Annotated[
            float, Parameter("above 1: the temperature stays low until entropy is high", minimum=0)
        ] = 1.0,
    ) -> None:
        self.temperature, self.range, self.exponent = temperature, range, exponent

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        temperature = np.float32(min(self._of(candidates), LARGEST))
        if not temperature > 0:
            return candidates.top(1)
        # Differences to the largest, so that a tiny T overflows to −inf, never to +inf.
        return candidates.with_logits((candidates.logits - candidates.largest) / temperature)

    def _of(self, candidates: Candidates) -> float:
        if self.range == 0 or len(candidates) == 1:
            return self.temperature
        lowest, highest = max(0.0, self.temperature - self.range), min(self.temperature + self.range, LARGEST)
        share = candidates.entropy / np.log(len(candidates))
        return lowest + (highest - lowest) * share**self.exponent

    def operation(self) -> Operation | None:
        return Operation("temperature", self.temperature) if self.range == 0 else None


@hookimpl
def register_samplers(register: Register) -> None:
    register(Temperature)
