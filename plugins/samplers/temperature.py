"""Temperature: flatter or steeper probabilities."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext
from ringlet.plugins.samplers.greedy import only


class Temperature:
    """softmax(logits/T) (Ackley, Hinton and Sejnowski 1985, A Learning Algorithm for Boltzmann Machines).

    T = 0, the limit, leaves the likeliest token alone; of equal ones the lowest id.
    """

    name = "temperature"

    def __init__(
        self,
        temperature: Annotated[
            float, Parameter("below 1: likelier tokens gain; above 1: they lose; 0: greedy", minimum=0)
        ] = 1.0,
    ) -> None:
        self.temperature = temperature

    def __call__(self, logits: np.ndarray, context: SamplerContext) -> np.ndarray:
        largest = logits.max()
        with np.errstate(over="ignore"):
            # Differences to the largest, so that a tiny T overflows to −inf, never to +inf.
            logits -= largest
            scaled = logits / np.float32(self.temperature) if np.float32(self.temperature) > 0 else None
        return only(int(logits.argmax()), logits) if scaled is None else scaled


@hookimpl
def register_samplers(register: Register) -> None:
    register(Temperature)
