"""What a sampler may see of the sequence that it draws for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ringlet.core.likeliest import Logits

if TYPE_CHECKING:
    from ringlet.core.config import ModelConfig


@dataclass(frozen=True)
class SamplerContext:
    """The sequence so far, its randomness, and facts about the model; made anew for each step.

    token_ids: int32 (length,), prompt and completion so far, read-only. Lent for the call: copy what you keep.
    prompt_length: how many of them are the prompt.
    step: how many tokens are drawn so far; `len(token_ids) - prompt_length`.
    d_vocab: how many tokens the model knows.
    rng: the sequence's own generator (PCG64); whatever is random comes from it, and the draw itself takes one
        `rng.random()` after the samplers, so that a seed gives the same text again.
    tokenizer: the model's `Tokenizer`; None in a chain that was made without one.
    end_ids: the ids of tokens that end a completion, (n,), ascending; empty where there is no tokenizer.
    model: the model's `ModelConfig` (sizes, context_length, recipe); None in a chain that was made without one.
    lent: what the first sampler of the chain is given; `raw_logits` for an array of it.
    """

    token_ids: np.ndarray
    prompt_length: int
    step: int
    d_vocab: int
    rng: np.random.Generator
    tokenizer: Any = None
    end_ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.intp))
    model: ModelConfig | None = None
    lent: Logits = field(default_factory=lambda: Logits.of_all(np.empty(0, np.float32)))

    @property
    def raw_logits(self) -> np.ndarray:
        """float32 (d_vocab,), read-only: what the first sampler of the chain is given."""
        logits = self.lent.all.view()
        logits.flags.writeable = False
        return logits

    @property
    def prompt_ids(self) -> np.ndarray:
        """The prompt's part of token_ids."""
        return self.token_ids[: self.prompt_length]

    @property
    def completion_ids(self) -> np.ndarray:
        """What has been drawn so far: the other part of token_ids."""
        return self.token_ids[self.prompt_length :]

    def token_counts(self, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The distinct ids of token_ids[start:], ascending, and how often each stands there.

        Ids outside the vocabulary are left out. The samplers of a step share the work.
        """
        known: dict[int, tuple[np.ndarray, np.ndarray]] = self.__dict__.setdefault("_token_counts", {})
        if start not in known:
            known[start] = _counted(self.token_ids[start:], self.d_vocab)
        return known[start]


def _counted(ids: np.ndarray, d_vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """Those below d_vocab, ascending, none twice, and how often each occurs: np.unique, for few ids much faster."""
    ordered = np.sort(ids)
    if len(ordered) and not 0 <= ordered[0] <= ordered[-1] < d_vocab:
        ordered = ordered[ordered.searchsorted(0) : ordered.searchsorted(d_vocab)]
    ends = np.empty(len(ordered), bool)  # whether it is the last of its kind
    ends[-1:] = True
    np.not_equal(ordered[1:], ordered[:-1], out=ends[:-1])
    places = ends.nonzero()[0]
    counts = places + 1
    counts[1:] -= counts[:-1].copy()
    return ordered[places], counts
