"""A sampler under check: how it is made, what it is given, and what is remembered of its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.errors import PluginError, RingletError, fault_text
from ringlet.core.registration import defines
from ringlet.core.sampler_spec import SamplerStep
from ringlet.core.sampling import SamplerChain
from ringlet.testing.checks import CheckFailed

LARGEST_LOGIT = 3e38  # float32 ends a little above


@dataclass(frozen=True)
class SamplerCase:
    """One sampler with the arguments that it is checked with, and a model's tokenizer for those that need one."""

    step: SamplerStep
    tokenizer: Any

    @property
    def d_vocab(self) -> int:
        return int(self.tokenizer.n_tokens)

    @property
    def picks(self) -> bool:
        return defines(self.step.sampler.cls, "pick")

    @property
    def calls(self) -> bool:
        return defines(self.step.sampler.cls, "__call__")

    def chain(self, seed: int = 0, **arguments: Any) -> SamplerChain:
        """A chain of this sampler alone. arguments: in place of those of the case."""
        step = replace(self.step, arguments=self.step.arguments | arguments)
        return SamplerChain((step,), seed, self.tokenizer)

    def chain_without_tokenizer(self, seed: int = 0) -> SamplerChain:
        return SamplerChain((self.step,), seed)

    def watched(self, watch: Callable[[Any, Any], Callable[[], None]], seed: int = 0) -> SamplerChain:
        """A chain whose sampler's calls are watched.

        watch: is given what the sampler will be lent, and the context; what it returns is called after the sampler.
        """
        registered = self.step.sampler
        cls = type("Watched", (_Watched,), watched_methods(registered.cls))
        arguments = {"of": registered.cls(**self.step.arguments), "watch": watch}
        return SamplerChain((SamplerStep(replace(registered, cls=cls), arguments),), seed, self.tokenizer)


class _Watched:
    """Stands in a chain for another sampler."""

    name = "watched"

    def __init__(self, of: Any, watch: Callable[[Any, Any], Callable[[], None]]) -> None:
        self.of, self.watch = of, watch


def watched_methods(cls: type) -> dict[str, Any]:
    """`__call__` and `pick`, as far as the class has them."""

    def call(self: _Watched, lent: Any, context: Any) -> Any:
        after = self.watch(lent, context)
        returned = self.of(lent, context)
        after()
        return returned

    def pick(self: _Watched, lent: Any, context: Any) -> Any:
        after = self.watch(lent, context)
        returned = self.of.pick(lent, context)
        after()
        return returned

    methods: dict[str, Any] = {"takes_candidates": bool(getattr(cls, "takes_candidates", False))}
    if defines(cls, "__call__"):
        methods["__call__"] = call
    if defines(cls, "pick"):
        methods["pick"] = pick
    return methods


def some_logits(d_vocab: int, step: int = 0) -> np.ndarray:
    """float32 (d_vocab,), much as a model's; others at each step."""
    return np.random.default_rng(step).normal(0, 3, d_vocab).astype(np.float32)


def awkward_logits(d_vocab: int) -> Iterator[tuple[str, np.ndarray]]:
    """Logits that no model gives often, each with what it is: the sampler has to leave a token of each."""
    usual = some_logits(d_vocab)
    yield "logits that are all equal", np.zeros(d_vocab, np.float32)
    yield "many ties", np.round(usual)
    yield "one token far ahead", np.where(np.arange(d_vocab) == d_vocab // 2, np.float32(1000), usual)
    yield "logits all far below 0", usual - np.float32(1e6)
    yield (
        f"logits from -{LARGEST_LOGIT:g} to {LARGEST_LOGIT:g}",
        usual / np.abs(usual).max() * np.float32(LARGEST_LOGIT),
    )
    yield "logits of 1e-45", np.where(np.arange(d_vocab) % 2, np.float32(1e-45), np.float32(0))
    yield "most tokens removed", np.where(np.arange(d_vocab) % 97 == 3 % d_vocab, usual, np.float32(-np.inf))
    yield "two equal tokens left", only(d_vocab, {0: 2.0, d_vocab - 1: 2.0})
    yield "one token left", only(d_vocab, {d_vocab // 3: -7.5})


def only(d_vocab: int, left: dict[int, float]) -> np.ndarray:
    """All others removed."""
    logits = np.full(d_vocab, -np.inf, np.float32)
    logits[list(left)] = list(left.values())
    return logits


def write(chain: SamplerChain, d_vocab: int, n_tokens: int = 6, prompt: tuple[int, ...] = (0,)) -> list[int]:
    """Ids drawn one after the other from `some_logits`."""
    ids = list(prompt)
    for step in range(n_tokens):
        ids.append(chain.sample(some_logits(d_vocab, step), ids))
    return ids[len(prompt) :]


def tried(about: str, attempt: Callable[[], Any]) -> Any:
    """What the attempt returns; a fault of the sampler's is told with what it was about."""
    try:
        return attempt()
    except PluginError as error:
        raise CheckFailed(f"{about}: {error}") from error
    except RingletError as error:
        raise RingletError(f"{about}: {error}") from error
    except Exception as error:  # of a built-in sampler, which is called without care
        raise CheckFailed(f"{about}: {fault_text(error)}") from error


def lent_arrays(lent: Any) -> list[np.ndarray]:
    return [lent.ids, lent.logits] if isinstance(lent, Candidates) else [lent]
