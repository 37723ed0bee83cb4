"""DRY, don't repeat yourself: the longer a repetition is by now, the less likely is its next token."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext
from ringlet.core.token_texts import split_texts

LARGEST_EXPONENT = 88.0  # e^88 is about the largest float32
LOWEST = np.finfo(np.float32).min


class DRY:
    """Takes multiplier · base^(n − allowed_length) from the logit of a token that would lengthen a repetition.

    Weidmann 2024, DRY (text-generation-webui, pull request 5677), with the limits of llama.cpp. n is how many of the
    latest tokens stand in the text once before, just ahead of that token: the longest such match where there are
    several; below allowed_length nothing is taken. A match does not reach back past a breaker, a text such as a line
    break after which repetition is meant (names of speakers, items of a list), and a token that holds one is spared.
    """

    name = "dry"
    takes_candidates = True

    def __init__(
        self,
        multiplier: Annotated[float, Parameter("taken at the allowed length, in logits; 0: off", minimum=0)] = 0.8,
        base: Annotated[float, Parameter("growth with each token more", minimum=1, maximum=1000)] = 1.75,
        allowed_length: Annotated[int, Parameter("tokens that may repeat unpunished, and one more", minimum=1)] = 2,
        window: Annotated[int | None, Parameter("how many of the latest tokens count; none: all", minimum=0)] = None,
        breakers: Annotated[
            str | None, Parameter("texts with | between, || for a | itself; need a tokenizer")
        ] = '\n|:|"|*',
    ) -> None:
        self.multiplier, self.base, self.allowed_length, self.window = multiplier, base, allowed_length, window
        self._breakers = split_texts(breakers or "")
        self._span = max((len(breaker.encode()) for breaker in self._breakers), default=0)
        self._broken: dict[tuple[int, ...], int] = {}

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        text = context.token_ids
        if self.window is not None:
            text = text[max(0, len(text) - self.window) :]
        ids, lengths = self._matches(text)
        if self.multiplier == 0 or not len(ids):
            return candidates
        lengths = np.minimum(lengths, self._since_breaker(text, int(lengths.max()), context))
        punished = lengths >= self.allowed_length
        ids, lengths = ids[punished], lengths[punished]
        order = np.lexsort((-lengths, ids))  # the longest match of each token first
        ids, first = np.unique(ids[order], return_index=True)
        exponents = np.minimum(lengths[order][first] - self.allowed_length, self._largest_exponent())
        penalties = self.multiplier * np.power(float(self.base), exponents)
        meant = [0 <= i < context.d_vocab and not self._breaks((i,), context.tokenizer) for i in ids.tolist()]
        ids, penalties = ids[meant], penalties[meant]
        return candidates.change(ids, lambda logits: np.maximum(logits - penalties, LOWEST))

    def _matches(self, text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each token that follows an earlier occurrence of the latest ones, and how many of them match there.

        Matches below the allowed length are left out, and no match is counted further than its penalty grows.
        """
        ends = np.flatnonzero(text[:-1] == text[-1]) if len(text) else np.empty(0, np.intp)
        lengths = np.ones(len(ends), np.intp)
        growing = np.arange(len(ends))
        for length in range(1, min(len(text) - 1, self.allowed_length + int(self._largest_exponent()) + 1)):
            growing = growing[ends[growing] >= length]
            growing = growing[text[ends[growing] - length] == text[-1 - length]]
            if not len(growing):
                break
            lengths[growing] += 1
        kept = lengths >= self.allowed_length
        return text[ends[kept] + 1], lengths[kept]

    def _largest_exponent(self) -> float:
        """Where the penalty is as large as a float32 can be; a base of 1 does not grow."""
        return LARGEST_EXPONENT / np.log(self.base) if self.base > 1 else 0.0

    def _since_breaker(self, text: np.ndarray, most: int, context: SamplerContext) -> int:
        """How many tokens stand after the latest breaker; `most` are looked at."""
        for start in range(len(text) - 1, max(-1, len(text) - 1 - most), -1):
            end = self._breaks(tuple(text[start : start + self._span].tolist()), context.tokenizer)
            if end:
                return len(text) - start - end
        return most

    def _breaks(self, ids: tuple[int, ...], tokenizer: Any) -> int:
        """How many of these tokens, from the first on, it takes to hold a breaker; 0: they hold none."""
        if not self._breakers or tokenizer is None:
            return 0
        if ids not in self._broken:
            texts = (tokenizer.decode(ids[:end], skip_special=False) for end in range(1, len(ids) + 1))
            ends = (end for end, text in enumerate(texts, 1) if any(breaker in text for breaker in self._breakers))
            self._broken[ids] = next(ends, 0)
        return self._broken[ids]


@hookimpl
def register_samplers(register: Register) -> None:
    register(DRY)
