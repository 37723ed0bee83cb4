"""What a user may ask of a generation; all of it can be checked before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ringlet.core.checks import check_count, checked_stops
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.sampler_spec import SamplerStep
from ringlet.core.sampling import SamplerChain, check_seed, parse_chain


@dataclass(frozen=True)
class GenerationOptions:
    """See `Pipeline.generate`. sampler: a chain as `sampling.parse_chain` gives it."""

    max_tokens: int
    sampler: tuple[SamplerStep, ...]
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    n: int = 1

    @classmethod
    def checked(
        cls,
        plugins: PluginManager,
        max_tokens: int,
        sampler: str,
        seed: int | None,
        stop: str | Iterable[str],
        ignore_eos: bool,
        n: int = 1,
    ) -> GenerationOptions:
        """Raises RingletError for what cannot be."""
        check_count("max_tokens", max_tokens)
        check_count("n", n, minimum=1)
        check_seed(seed)
        steps = parse_chain(sampler, plugins)
        SamplerChain(steps)  # fails now, not at the first token
        return cls(int(max_tokens), steps, seed, checked_stops(stop), bool(ignore_eos), int(n))

    def seed_sequence(self, completion: int) -> np.random.SeedSequence:
        """The first completion has the plain seed, as if it were the only one; others have independent ones."""
        if completion == 0 or self.seed is None:
            return np.random.SeedSequence(self.seed)
        return np.random.SeedSequence(self.seed, spawn_key=(completion,))
