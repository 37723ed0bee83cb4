"""From logits to a token: a chain of samplers, each a small object, applied left to right.

A sampler is a class with ``name = "…"`` and a constructor whose parameters are int, float, bool or str:

    class TopA:
        name = "top_a"

        def __init__(self, a: float = 0.2) -> None: ...

        def __call__(self, logits, context):  # float32 (d_vocab,) -> float (d_vocab,)
            ...

It may change the logits it is lent in place, or return others; removed tokens are −inf. A picker has
``pick(logits, context) -> int`` and draws the token itself; it may only stand last. If it has ``__call__`` too, that
says what it would draw from. Each sequence has samplers of its own, so they may keep state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy, deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ringlet.core.checks import is_whole
from ringlet.core.errors import PluginError, RingletError, fault_text
from ringlet.core.plugin_manager import PluginManager, Registered, load_plugins
from ringlet.core.registration import defines
from ringlet.core.sampler_spec import SamplerStep, parse_sampler_spec

LARGEST_SEED = 2**64 - 1


@dataclass(frozen=True)
class SamplerContext:
    """What a sampler may see.

    token_ids: int32, prompt and completion so far, read-only. prompt_length: how many of them are the prompt.
    step: how many tokens are drawn so far. rng: the sequence's own. tokenizer: None where there is none.
    raw_logits: float32 (d_vocab,), read-only, what the first sampler of the chain is given.
    """

    token_ids: np.ndarray
    prompt_length: int
    step: int
    d_vocab: int
    rng: np.random.Generator
    tokenizer: Any
    raw_logits: np.ndarray


class SamplerChain:
    """Samplers in order, with the randomness of one sequence.

    The generator is NumPy's PCG64 seeded with `seed` (fresh entropy for None). A chain without a picker draws with one
    uniform number from the softmax of what is left; the empty chain "" draws from the softmax of the raw logits.

    spec: its text, or the steps that `parse_chain` made of it. plugins: files with more samplers.
    Raises RingletError for a chain that cannot be.
    """

    def __init__(
        self,
        spec: str | tuple[SamplerStep, ...],
        seed: int | np.random.SeedSequence | None = None,
        tokenizer: Any = None,
        plugins: Iterable[str | Path] = (),
    ) -> None:
        if not isinstance(seed, np.random.SeedSequence):
            check_seed(seed)
        steps = spec if isinstance(spec, tuple) else parse_chain(spec, load_plugins(plugins))
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._tokenizer = tokenizer
        self._prompt_length: int | None = None
        self._samplers = [(step.sampler, _make(step)) for step in steps]

    def process(self, logits: ArrayLike, token_ids: ArrayLike = ()) -> np.ndarray:
        """float32 (d_vocab,): what the chain would draw from; removed tokens are −inf.

        logits: any real numbers (d_vocab,), left as they are. token_ids: prompt and completion so far; how many came
        with the first call counts as the prompt. Samplers that keep state take this for a step.
        """
        context, values = self._context(logits, token_ids)
        for registered, sampler in self._samplers:
            if defines(type(sampler), "__call__"):
                values = _call(registered, sampler, values, context)
        return values

    def sample(self, logits: ArrayLike, token_ids: ArrayLike = ()) -> int:
        """The next token's id. Arguments as for `process`. Raises PluginError, naming the sampler that failed."""
        context, values = self._context(logits, token_ids)
        for registered, sampler in self._samplers:
            if defines(type(sampler), "pick"):
                return _pick(registered, sampler, values, context)
            values = _call(registered, sampler, values, context)
        return draw(values, self._rng)

    def fork(self) -> SamplerChain:
        """A chain in the same state, for another way to go on.

        Raises PluginError for a plugin's sampler that `copy.deepcopy` cannot copy.
        """
        fork = copy(self)
        fork._rng = deepcopy(self._rng)
        fork._samplers = [(registered, self._copy_of(registered, sampler)) for registered, sampler in self._samplers]
        return fork

    def _copy_of(self, registered: Registered, sampler: Any) -> Any:
        shared = {id(self._tokenizer): self._tokenizer}  # a sampler that keeps it means the same one
        return _guarded(registered, "deepcopy", lambda: deepcopy(sampler, shared))

    def _context(self, logits: ArrayLike, token_ids: ArrayLike) -> tuple[SamplerContext, np.ndarray]:
        values = np.array(logits, np.float32)  # a copy: samplers may write to it
        if values.ndim != 1 or not values.size:
            raise RingletError(f"logits have the shape {values.shape}: (d_vocab,) is needed")
        check_logits(values)
        ids, raw_logits = np.asarray(token_ids, np.int32).view(), np.asarray(logits, np.float32).view()
        ids.flags.writeable = raw_logits.flags.writeable = False
        if self._prompt_length is None:
            self._prompt_length = len(ids)
        step = max(0, len(ids) - self._prompt_length)
        context = SamplerContext(ids, self._prompt_length, step, len(values), self._rng, self._tokenizer, raw_logits)
        return context, values


def parse_chain(spec: str, plugins: PluginManager) -> tuple[SamplerStep, ...]:
    """The steps of a chain. Raises RingletError for a text that is none, and for a picker that does not stand last."""
    steps = parse_sampler_spec(spec, plugins)
    for step in steps[:-1]:
        if defines(step.sampler.cls, "pick"):
            raise RingletError(f"sampler {step.sampler.name} draws the token itself: put it last in the chain")
    return steps


def check_seed(seed: int | None) -> None:
    if seed is not None and not (is_whole(seed) and 0 <= seed <= LARGEST_SEED):
        raise RingletError(f"seed is {seed!r}: a whole number from 0 to {LARGEST_SEED} is needed")


def check_logits(logits: np.ndarray) -> None:
    """Raises RingletError where there is nothing to draw from: NaN, +inf, or −inf for every token."""
    largest = logits.max()  # NaN where any is
    if np.isnan(largest) or largest == np.inf:
        raise RingletError(f"the logits hold {'NaN' if np.isnan(largest) else '+inf'}: the model or its file is broken")
    if largest == -np.inf:
        raise RingletError("every token is removed (all logits are −inf): nothing can be drawn")


def draw(logits: np.ndarray, rng: np.random.Generator) -> int:
    """One id from softmax(logits), by inverting the cumulative sum (float64) at one uniform number."""
    ids = np.flatnonzero(logits > -np.inf)
    left = logits[ids].astype(np.float64)
    cumulative = np.cumsum(np.exp(left - left.max()))
    at = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    return int(ids[min(int(at), len(ids) - 1)])


def _make(step: SamplerStep) -> Any:
    return _guarded(step.sampler, "constructor", lambda: step.sampler.cls(**step.arguments))


def _call(registered: Registered, sampler: Any, logits: np.ndarray, context: SamplerContext) -> np.ndarray:
    """The sampler's logits, checked."""
    returned = _guarded(registered, "__call__", lambda: sampler(logits, context))
    if isinstance(returned, np.ma.MaskedArray):
        raise _fault(registered, "__call__", "returned a masked array, not a plain array of logits")
    if not isinstance(returned, np.ndarray):
        raise _fault(registered, "__call__", f"returned {type(returned).__name__}, not an array of logits")
    if returned.shape != (context.d_vocab,):
        raise _fault(registered, "__call__", f"returned the shape {returned.shape}, not ({context.d_vocab},)")
    if not np.issubdtype(returned.dtype, np.floating):
        raise _fault(registered, "__call__", f"returned {returned.dtype}, not float32")
    with np.errstate(over="ignore"):  # what is too large for float32 is refused below
        returned = np.asarray(returned, np.float32)
    if not returned.flags.writeable:  # the next sampler may write to it
        returned = returned.copy()
    largest = returned.max()
    if np.isnan(largest) or largest == np.inf:
        raise _fault(registered, "__call__", f"returned {'NaN' if np.isnan(largest) else '+inf'}")
    if largest == -np.inf:
        raise _fault(registered, "__call__", "removed every token")
    return returned


def _pick(registered: Registered, sampler: Any, logits: np.ndarray, context: SamplerContext) -> int:
    """The picker's token, checked against what it was lent."""
    left = logits > -np.inf
    picked = _guarded(registered, "pick", lambda: sampler.pick(logits, context))
    if not is_whole(picked):
        raise _fault(registered, "pick", f"returned {type(picked).__name__}, not a token id")
    if not 0 <= picked < context.d_vocab:
        raise _fault(registered, "pick", f"returned {picked}, which is outside the vocabulary of {context.d_vocab}")
    if not left[picked]:
        raise _fault(registered, "pick", f"returned {picked}, a token that was removed before")
    return int(picked)


def _guarded(registered: Registered, where: str, call: Callable[[], Any]) -> Any:
    """What a sampler's code returns; what it raises names it, but that a built-in's bug stays what it is.

    NumPy's warnings would repeat our checks.
    """
    try:
        with np.errstate(all="ignore"):
            return call()
    except KeyboardInterrupt:
        raise
    except RingletError as error:
        kind = PluginError if isinstance(error, PluginError) else RingletError
        raise kind(f"sampler {registered.label}: {fault_text(error)}") from error
    except BaseException as error:  # a plugin does not end the process
        if registered.is_built_in:
            raise
        raise _fault(registered, where, fault_text(error)) from error


def _fault(registered: Registered, where: str, text: str) -> PluginError:
    return PluginError(f"sampler {registered.label}: {where}: {text}")
