"""From logits to a token: a chain of samplers, each a small object, applied left to right.

A sampler is a class with ``name = "…"`` and a constructor whose parameters are int, float, bool or str:

    class TopA:
        name = "top_a"

        def __init__(self, a: float = 0.2) -> None: ...

        def __call__(self, logits, context):  # float32 (d_vocab,) -> float (d_vocab,)
            ...

It may change the logits it is lent in place, or return others; removed tokens are −inf. A picker has
``pick(logits, context) -> int`` and draws the token itself; it may only stand last. If it has ``__call__`` too, that
says what it would draw from. `context` is a `SamplerContext`. Each sequence has samplers of its own, so they may keep
state; `context.step` tells them when a text was rewound.

With ``takes_candidates = True`` in the class, ``__call__(candidates, context) -> candidates`` and
``pick(candidates, context) -> int`` get `Candidates`, the tokens that are left, in place of an array as long as the
vocabulary: so work most of Ringlet's own.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from copy import copy, deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
from numpy.typing import ArrayLike

from ringlet.core.candidates import Candidates, UnusableLogits
from ringlet.core.checks import is_whole
from ringlet.core.drawing_plan import plan_of
from ringlet.core.errors import RingletError
from ringlet.core.likeliest import Logits
from ringlet.core.plugin_manager import PluginManager, load_plugins
from ringlet.core.registration import defines
from ringlet.core.sampler_calls import SamplerLink
from ringlet.core.sampler_context import SamplerContext
from ringlet.core.sampler_objects import SamplerSpec, step_of
from ringlet.core.sampler_spec import SamplerStep, parse_sampler_spec
from ringlet.core.whole_vocabulary import WholeVocabulary

if TYPE_CHECKING:
    from ringlet.core.config import ModelConfig

LARGEST_SEED = 2**64 - 1


class SamplerChain:
    """Samplers in order, with the randomness of one sequence.

    The generator is NumPy's PCG64, seeded once with `seed` (fresh entropy for None). A chain without a picker draws
    with one uniform number from the softmax of what is left; the empty chain "" draws from the softmax of the raw
    logits.

    spec: its text; a sampler as an object (see `sampler_objects`), or a list of texts and objects; or the steps that
    `parse_chain` made of it. tokenizer, model: what its samplers may see of the model. plugins: files with more
    samplers.
    Raises RingletError for a chain that cannot be.
    """

    def __init__(
        self,
        spec: SamplerSpec | tuple[SamplerStep, ...],
        seed: int | np.random.SeedSequence | None = None,
        tokenizer: Any = None,
        plugins: Iterable[str | Path] = (),
        model: ModelConfig | None = None,
    ) -> None:
        if not isinstance(seed, np.random.SeedSequence):
            check_seed(seed)
        steps = spec if _is_parsed(spec) else parse_chain(cast(SamplerSpec, spec), load_plugins(plugins))
        self._steps, self._rng = steps, np.random.Generator(np.random.PCG64(seed))
        self._tokenizer, self._model = tokenizer, model
        self._end_ids = np.array(sorted(getattr(tokenizer, "eos_ids", ())), np.intp)
        self._prompt_length: int | None = None
        with np.errstate(all="ignore"):
            self._links = [SamplerLink(step) for step in steps]
        self._plan = plan_of([link.operation for link in self._links])

    def __repr__(self) -> str:
        return f"<SamplerChain {','.join(map(str, self._steps))}>"

    def process(self, logits: ArrayLike | Logits, token_ids: ArrayLike = ()) -> np.ndarray:
        """float32 (d_vocab,): what the chain would draw from; removed tokens are −inf.

        logits: any real numbers (d_vocab,), left as they are. token_ids: prompt and completion so far; how many came
        with the first call counts as the prompt. Samplers that keep state take this for a step.
        """
        with np.errstate(all="ignore"):  # NumPy's warnings would repeat our checks
            candidates, context = self._begin(logits, token_ids)
            for link in self._links:
                if link.calls:
                    candidates = link.call(candidates, context)
        return candidates.dense()

    def sample(self, logits: ArrayLike | Logits, token_ids: ArrayLike = ()) -> int:
        """The next token's id. Arguments as for `process`. Raises PluginError, naming the sampler that failed."""
        uniform = None
        if self._plan is not None and isinstance(logits, Logits) and logits.can_draw:
            uniform = self._rng.random() if self._plan.draws else 0.0
            drawn = logits.draw(self._plan, *self._text(token_ids), uniform)
            if drawn is not None:
                return drawn
        with np.errstate(all="ignore"):
            candidates, context = self._begin(logits, token_ids)
            for link in self._links:
                if link.picks:
                    return link.pick(candidates, context)
                candidates = link.call(candidates, context)
            return candidates.at_share(self._rng.random() if uniform is None else uniform)

    def fork(self) -> SamplerChain:
        """A chain in the same state, for another way to go on.

        Raises PluginError for a plugin's sampler that `copy.deepcopy` cannot copy.
        """
        fork = copy(self)
        fork._rng = deepcopy(self._rng)
        shared = {id(kept): kept for kept in (self._tokenizer, self._model)}  # a sampler that keeps them means these
        fork._links = [link.copy(shared) for link in self._links]
        return fork

    def _begin(self, logits: ArrayLike | Logits, token_ids: ArrayLike) -> tuple[Candidates, SamplerContext]:
        lent = logits if isinstance(logits, Logits) else Logits.of_all(as_logits(logits))
        candidates, (ids, prompt_length) = check_logits(lent), self._text(token_ids)
        ids = ids.view()
        ids.flags.writeable = False
        step = max(0, len(ids) - prompt_length)
        d_vocab, end_ids = candidates.d_vocab, self._end_ids
        if len(end_ids) and end_ids[-1] >= d_vocab:  # a tokenizer may know more tokens than the model
            end_ids = end_ids[end_ids < d_vocab]
        context = SamplerContext(
            ids, prompt_length, step, d_vocab, self._rng, self._tokenizer, end_ids, self._model, lent
        )
        return candidates, context

    def _text(self, token_ids: ArrayLike) -> tuple[np.ndarray, int]:
        """The ids so far, int32 (n,), and how many of them are the prompt: all at first."""
        ids = checked_ids(token_ids)
        if self._prompt_length is None:
            self._prompt_length = len(ids)
        return ids, self._prompt_length


def parse_chain(spec: SamplerSpec, plugins: PluginManager) -> tuple[SamplerStep, ...]:
    """The steps of a chain. Raises RingletError for what is none, and for a picker that does not stand last."""
    parts = spec if isinstance(spec, (list, tuple)) else [spec]
    steps: list[SamplerStep] = []
    for part in parts:
        steps += parse_sampler_spec(part, plugins) if isinstance(part, str) else [step_of(part, plugins)]
    for step in steps[:-1]:
        if defines(step.sampler.cls, "pick"):
            raise RingletError(f"sampler {step.sampler.name} draws the token itself: put it last in the chain")
    return tuple(steps)


def _is_parsed(spec: Any) -> TypeGuard[tuple[SamplerStep, ...]]:
    return isinstance(spec, tuple) and all(isinstance(step, SamplerStep) for step in spec)


def check_seed(seed: int | None) -> None:
    if seed is not None and not (is_whole(seed) and 0 <= seed <= LARGEST_SEED):
        raise RingletError(f"seed is {seed!r}: a whole number from 0 to {LARGEST_SEED} is needed")


def as_logits(logits: ArrayLike) -> np.ndarray:
    """float32 (d_vocab,), not copied where they are float32 already. Raises RingletError for what is no such row."""
    try:
        values = np.asarray(logits, np.float32)
    except (TypeError, ValueError):
        raise RingletError("logits are no numbers: an array of the shape (d_vocab,) is needed") from None
    if values.ndim != 1 or not values.size:
        raise RingletError(f"logits have the shape {values.shape}: (d_vocab,) is needed")
    return values


def check_logits(logits: Logits | np.ndarray) -> WholeVocabulary:
    """A model's logits, float32 (d_vocab,), as candidates; they are neither copied nor changed.

    Raises RingletError where there is nothing to draw from: NaN, +inf, or −inf for every token.
    """
    try:
        return WholeVocabulary(logits)
    except UnusableLogits:
        largest = logits.largest if isinstance(logits, Logits) else logits.max()  # NaN where any is
    if largest == -np.inf:
        raise RingletError("every token is removed (all logits are −inf): nothing can be drawn")
    raise RingletError(f"the logits hold {'NaN' if np.isnan(largest) else '+inf'}: the model or its file is broken")


def checked_ids(token_ids: ArrayLike) -> np.ndarray:
    """int32 (n,). Raises RingletError for what is no row of token ids; that the model has them is not asked."""
    try:
        ids = np.asarray(token_ids)
    except ValueError:  # rows of different lengths
        ids = np.empty((), object)
    if ids.dtype == np.int32 and ids.ndim == 1:
        return ids
    is_whole_row = ids.ndim == 1 and (not ids.size or ids.dtype.kind in "iu")
    if not is_whole_row or (ids.size and not -(2**31) <= ids.min() <= ids.max() < 2**31):
        raise RingletError(f"token_ids is {reprlib.repr(token_ids)}: a list of token ids is needed")
    return ids.astype(np.int32)


def draw(logits: np.ndarray, rng: np.random.Generator) -> int:
    """One id from softmax(logits), float32 (d_vocab,): see `Candidates.draw`."""
    return check_logits(as_logits(logits)).draw(rng)
