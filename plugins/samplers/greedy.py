"""Greedy choice: the likeliest token, always."""

from __future__ import annotations

import numpy as np

from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.sampling import SamplerContext


class Greedy:
    """argmax(logits); of equal ones the lowest id."""

    name = "greedy"

    def __call__(self, logits: np.ndarray, context: SamplerContext) -> np.ndarray:
        return only(int(logits.argmax()), logits)

    def pick(self, logits: np.ndarray, context: SamplerContext) -> int:
        return int(logits.argmax())


def only(token_id: int, logits: np.ndarray) -> np.ndarray:
    """The logits with every other token removed."""
    kept = logits[token_id]
    logits[:] = -np.inf
    logits[token_id] = kept
    return logits


@hookimpl
def register_samplers(register: Register) -> None:
    register(Greedy)
