"""A chain of samplers as numbers: what a backend needs to draw from the likeliest tokens itself.

Samplers say what they do by an `operation`. Where all of a chain do, penalties first and then what narrows to no more
tokens than a step lists, a backend may follow the plan in compiled code; what it draws is what the samplers' own code
would, but for the last bit of a probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

LISTED = 256  # tokens a step lists: the forty of top-k, and those that take the places of others that penalties lower
KINDS = (
    "repetition_penalty",  # factor
    "frequency_penalty",  # logits a time
    "presence_penalty",  # logits
    "top_k",  # k
    "top_p",  # p
    "min_p",  # ln p
    "temperature",  # T
)
GREEDY = "greedy"  # in the last place: the likeliest, which is top_k=1
PENALTIES = KINDS[:3]
NUMBERS = 4  # of an operation: its kind, its amount, and of a penalty the window and whether the prompt counts
NO_WINDOW = -1.0


class Operation(NamedTuple):
    """What one sampler does. kind, amount: see KINDS. window, of_completion: which tokens a penalty counts."""

    kind: str
    amount: float
    window: float = NO_WINDOW
    of_completion: bool = False


@dataclass(frozen=True, eq=False)
class DrawingPlan:
    """operations: float64 (n, NUMBERS). k: so many tokens are left after the first that narrows. draws: whether a
    uniform number decides; else one token is left.
    """

    operations: np.ndarray
    k: int
    draws: bool


def plan_of(operations: Sequence[Operation | None]) -> DrawingPlan | None:
    """The plan for samplers that say this of themselves; None where it takes their own code."""
    known = [operation for operation in operations if operation is not None]
    if len(known) < len(operations):
        return None
    draws = not known or known[-1].kind != GREEDY
    if not draws:
        known[-1] = Operation("top_k", 1)
    narrowing = [operation for operation in known if operation.kind not in PENALTIES]
    if not narrowing or known[-len(narrowing) :] != narrowing:  # penalties come first
        return None
    k = int(narrowing[0].amount) if narrowing[0].kind == "top_k" else 0
    if not 1 <= k <= LISTED:
        return None
    rows = [(KINDS.index(each.kind), each.amount, each.window, each.of_completion) for each in known]
    return DrawingPlan(np.array(rows, np.float64), k, draws)
