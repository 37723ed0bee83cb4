"""A completion of some length: end tokens wait."""

from __future__ import annotations

from typing import Annotated

from ringlet.core.candidates import Candidates
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext


class MinNewTokens:
    """Removes the tokens that end a completion until n tokens are drawn.

    As transformers' MinNewTokensLengthLogitsProcessor. Which tokens end is the tokenizer's to say.
    """

    name = "min_new_tokens"
    takes_candidates = True

    def __init__(self, n: Annotated[int, Parameter("tokens before an end token may come", minimum=0)]) -> None:
        self.n = n

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        return candidates.remove(context.end_ids) if context.step < self.n else candidates


@hookimpl
def register_samplers(register: Register) -> None:
    register(MinNewTokens)
