"""What a decoding strategy is: how the tokens after a prompt are chosen, for all completions of a request together.

The loop computes; a strategy's `Decoding` says which tokens come next on which branches, and is told the logits after
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ringlet.core.completion import Chunk
from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.generation.ring_pool import RingPool
from ringlet.core.likeliest import Logits
from ringlet.core.registration import defines
from ringlet.core.ring_cache import RingCache
from ringlet.core.sampling import SamplerChain

if TYPE_CHECKING:
    from ringlet.core.generation.options import GenerationOptions
    from ringlet.core.generation.request import Request

LARGEST_CROWD = 32  # rings that are in use at once; other prompts wait for theirs


@dataclass(eq=False)
class Branch:
    """One way to go on: a ring, and the ids that come next and are not in it yet."""

    ring: RingCache
    pending: list[int]


@dataclass(frozen=True, eq=False)
class Computed:
    """What one step has computed of a branch.

    logits: those after its last pending id, the model's own; None while some are still pending.
    hidden: float32 (n, d_model), the hidden states of this step's n tokens, where the strategy needs them.
    """

    branch: Branch
    logits: Logits | None
    hidden: np.ndarray | None = None


@dataclass(frozen=True)
class Group:
    """Completions of one request that come about together.

    completions: which of the request's. index: the place of the request's first among all of a generation.
    rings: how many are needed at once, at most.
    """

    request: Request
    completions: range
    index: int
    rings: int


@dataclass(frozen=True)
class Tools:
    """What all decodings of a generation share. removed_ids: int64, ids that must never be drawn."""

    tokenizer: Any
    config: ModelConfig
    rings: RingPool
    removed_ids: np.ndarray

    def new_chain(self, options: GenerationOptions, completion: int) -> SamplerChain:
        """The samplers of one completion, with its randomness."""
        return SamplerChain(options.sampler, options.seed_sequence(completion), self.tokenizer, model=self.config)

    def drawable(self, logits: Logits) -> Logits:
        """The logits without ids that have no token."""
        return logits.without(self.removed_ids)


class Decoding(ABC):
    """One group in the works."""

    @property
    @abstractmethod
    def branches(self) -> Sequence[Branch]:
        """All that go on; none when the group is finished."""

    @property
    @abstractmethod
    def n_rings(self) -> int:
        """How many rings the group still needs at most, those included that it will need later."""

    @abstractmethod
    def advance(self, computed: Sequence[Computed]) -> Iterator[tuple[int, Chunk]]:
        """Choose the next tokens. Gives chunks as they become certain, each with the index of its completion.

        computed: every branch that the step has worked on, in the order of `branches`. Where one has logits, all have.
        """


class Strategy(ABC):
    """Parameters of a way to choose tokens; they come from the text of `--strategy` as those of a sampler do.

    usual_sampler: the chain where the user names none. needs_hidden: whether steps have to give hidden states.
    """

    name: ClassVar[str]
    usual_sampler: ClassVar[str] = ""
    needs_hidden: ClassVar[bool] = False

    @abstractmethod
    def check(self, options: GenerationOptions) -> None:
        """Raises RingletError for options that mean nothing to the strategy."""

    @abstractmethod
    def groups(self, request: Request, index: int) -> Iterator[Group]:
        """All completions of a request, in groups. index: the place of its first among all of a generation."""

    @abstractmethod
    def begin(self, group: Group, branch: Branch, tools: Tools) -> Decoding:
        """branch: the prompt's, with what is not yet computed of it pending."""


def check_searcher(strategy: Strategy, options: GenerationOptions) -> None:
    """Raises RingletError for options that mean nothing where a strategy chooses the tokens itself."""
    for step in options.sampler:
        if defines(step.sampler.cls, "pick"):
            raise RingletError(f"sampler {step.sampler.name} chooses the token, and so does {strategy.name}: drop one")
    if options.best_of is not None:
        raise RingletError(f"best_of is {options.best_of}: {strategy.name} draws nothing, leave it out")
