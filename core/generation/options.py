"""What a user may ask of a generation; all of it can be checked before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ringlet.core.checks import check_count, checked_stops
from ringlet.core.defaults import SAMPLE
from ringlet.core.generation.strategies import parse_strategy
from ringlet.core.generation.strategy import Strategy
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.sampler_objects import SamplerSpec
from ringlet.core.sampler_spec import SamplerStep
from ringlet.core.sampling import SamplerChain, check_seed, parse_chain

MOST_COMPLETIONS = 1 << 16  # of a prompt


@dataclass(frozen=True)
class GenerationOptions:
    """See `Pipeline.generate`. sampler: a chain as `sampling.parse_chain` gives it."""

    max_tokens: int
    sampler: tuple[SamplerStep, ...]
    strategy: Strategy
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    logprobs: int | None = None
    best_of: int | None = None

    @classmethod
    def checked(
        cls,
        plugins: PluginManager,
        max_tokens: int,
        sampler: SamplerSpec | None,
        seed: int | None,
        stop: str | Iterable[str],
        ignore_eos: bool,
        n: int = 1,
        *,
        logprobs: int | None = None,
        strategy: str = SAMPLE,
        best_of: int | None = None,
    ) -> GenerationOptions:
        """Raises RingletError for what cannot be."""
        check_count("max_tokens", max_tokens)
        check_count("n", n, minimum=1, maximum=MOST_COMPLETIONS)
        if logprobs is not None:
            check_count("logprobs", logprobs)
        if best_of is not None:
            check_count("best_of", best_of, minimum=1, maximum=MOST_COMPLETIONS)
        check_seed(seed)
        chosen = parse_strategy(strategy)
        steps = parse_chain(chosen.usual_sampler if sampler is None else sampler, plugins)
        SamplerChain(steps)  # fails now, not at the first token
        options = cls(
            max_tokens=int(max_tokens),
            sampler=steps,
            strategy=chosen,
            seed=seed,
            stop=checked_stops(stop),
            ignore_eos=bool(ignore_eos),
            n=int(n),
            logprobs=None if logprobs is None else int(logprobs),
            best_of=None if best_of is None else int(best_of),
        )
        chosen.check(options)
        return options

    @property
    def n_drafts(self) -> int:
        """Completions of each prompt that are computed; the n best of them are given."""
        return self.best_of or self.n

    @property
    def listed(self) -> int | None:
        """How many of the likeliest tokens are listed at each place; None where no log-probability is needed."""
        return 0 if self.logprobs is None and self.best_of is not None else self.logprobs

    def seed_sequence(self, completion: int) -> np.random.SeedSequence:
        """The first completion has the plain seed, as if it were the only one; others have independent ones."""
        if completion == 0 or self.seed is None:
            return np.random.SeedSequence(self.seed)
        return np.random.SeedSequence(self.seed, spawn_key=(completion,))
