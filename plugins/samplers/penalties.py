"""Penalties for tokens that the text holds already: by a factor, by how often, by whether at all."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.drawing_plan import NO_WINDOW, Operation
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext

Semantics = Literal["transformers", "llama.cpp", "openai"]
Window = Annotated[
    int | None, Parameter("how many of the latest of these tokens count; none: as semantics say", minimum=0)
]
WHOSE = Parameter(
    "which tokens count: transformers: prompt and completion; llama.cpp: the latest 64 of both; openai: the completion"
)
LLAMA_CPP_WINDOW = 64
LARGEST = np.finfo(np.float32).max


class Penalty:
    """What the three have in common: which tokens of the text count."""

    takes_candidates = True
    name: str

    def __init__(self, penalty: float, window: int | None, semantics: Semantics) -> None:
        self.penalty = penalty
        self._of_completion = semantics == "openai"
        self._window = LLAMA_CPP_WINDOW if window is None and semantics == "llama.cpp" else window

    def counts(self, context: SamplerContext) -> tuple[np.ndarray, np.ndarray]:
        """The distinct ids of the tokens that count, ascending, and how often each occurs."""
        start = context.prompt_length if self._of_completion else 0
        if self._window is not None:
            start = max(start, len(context.token_ids) - self._window)
        return context.token_counts(start)

    def operation(self) -> Operation:
        return Operation(
            self.name, self.penalty, NO_WINDOW if self._window is None else self._window, self._of_completion
        )


class RepetitionPenalty(Penalty):
    """Makes tokens of the text less likely by a factor θ: l/θ where the logit l is positive, else l·θ.

    Keskar et al. 2019, CTRL, section 4.1, with the product for negative logits that all implementations have. Once a
    token, however often it occurs.
    """

    name = "repetition_penalty"

    def __init__(
        self,
        penalty: Annotated[float, Parameter("θ; 1: none; below 1: repetition is liked", above=0)] = 1.1,
        window: Window = None,
        semantics: Annotated[Semantics, WHOSE] = "transformers",
    ) -> None:
        super().__init__(penalty, window, semantics)

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        ids, _ = self.counts(context)
        return candidates.change(ids, self._penalised)

    def _penalised(self, logits: np.ndarray) -> np.ndarray:
        penalty = np.float64(self.penalty)  # which float32 may not be able to hold
        penalised = np.where(logits < 0, logits * penalty, logits / penalty)
        return np.minimum(np.maximum(penalised, -LARGEST), LARGEST)


class FrequencyPenalty(Penalty):
    """Makes tokens of the text less likely each time they occur: l − α·count.

    OpenAI's API reference (2021), "frequency_penalty"; vLLM and llama.cpp compute the same. transformers has none (its
    server makes a repetition penalty of 1 + α of it): under that name the whole text counts.
    """

    name = "frequency_penalty"

    def __init__(
        self,
        penalty: Annotated[float, Parameter("α, in logits for each occurrence", minimum=-100, maximum=100)] = 0.5,
        window: Window = None,
        semantics: Annotated[Semantics, WHOSE] = "openai",
    ) -> None:
        super().__init__(penalty, window, semantics)

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        ids, counts = self.counts(context)
        return candidates.change(ids, lambda logits: logits - self.penalty * counts)


class PresencePenalty(Penalty):
    """Makes tokens of the text less likely, however often they occur: l − α where count > 0.

    OpenAI's API reference (2021), "presence_penalty"; vLLM and llama.cpp compute the same.
    """

    name = "presence_penalty"

    def __init__(
        self,
        penalty: Annotated[float, Parameter("α, in logits", minimum=-100, maximum=100)] = 0.5,
        window: Window = None,
        semantics: Annotated[Semantics, WHOSE] = "openai",
    ) -> None:
        super().__init__(penalty, window, semantics)

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        ids, _ = self.counts(context)
        return candidates.change(ids, lambda logits: logits - np.float32(self.penalty))


@hookimpl
def register_samplers(register: Register) -> None:
    register(RepetitionPenalty)
    register(FrequencyPenalty)
    register(PresencePenalty)
