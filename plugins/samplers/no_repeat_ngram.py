"""No n-gram twice."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext


class NoRepeatNgram:
    """Removes the tokens that would complete a sequence of n tokens that the text holds already, prompt included.

    Paulus, Xiong and Socher 2017, A Deep Reinforced Model for Abstractive Summarization, section 2.5 (n = 3); as
    transformers' NoRepeatNGramLogitsProcessor. n = 1: no token twice.
    """

    name = "no_repeat_ngram"
    takes_candidates = True

    def __init__(
        self,
        n: Annotated[int, Parameter("tokens in a sequence", minimum=1)] = 3,
        window: Annotated[
            int | None, Parameter("how many of the latest tokens are looked at; none: all", minimum=0)
        ] = None,
    ) -> None:
        self.n, self.window = n, window

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        text = context.token_ids
        if self.window is not None:
            text = text[max(0, len(text) - self.window) :]
        n_places = len(text) - self.n + 1  # where a sequence of n tokens may begin
        if n_places < 1:
            return candidates
        begins = np.arange(n_places)
        for offset in range(self.n - 1):  # whose first n − 1 tokens are the latest ones
            begins = begins[text[begins + offset] == text[n_places + offset]]
        return candidates.remove(text[begins + self.n - 1])


@hookimpl
def register_samplers(register: Register) -> None:
    register(NoRepeatNgram)
