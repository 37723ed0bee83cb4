"""Calls of a sampler's own code: what it raises or returns amiss becomes an error that names it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

import numpy as np

from ringlet.core.candidates import Candidates, UnusableLogits
from ringlet.core.checks import is_whole
from ringlet.core.drawing_plan import Operation
from ringlet.core.errors import PluginError, RingletError, fault_text
from ringlet.core.registration import defines
from ringlet.core.sampler_context import SamplerContext
from ringlet.core.sampler_spec import SamplerStep
from ringlet.core.whole_vocabulary import WholeVocabulary


class SamplerLink:
    """One sampler of a chain, made from its step (or copied from the step's object) and called with care.

    calls: whether it has `__call__`. picks: whether it has `pick`. Raises RingletError for parameters that it refuses.
    """

    def __init__(self, step: SamplerStep) -> None:
        self._registered = step.sampler
        cls = step.sampler.cls
        self.calls, self.picks = defines(cls, "__call__"), defines(cls, "pick")
        self._takes_candidates = bool(getattr(cls, "takes_candidates", False))
        if step.instance is None:
            self.sampler: Any = self._guarded("constructor", cls, **step.arguments)
        else:
            self.sampler = self._guarded("deepcopy", deepcopy, step.instance)

    def copy(self, shared: dict[int, Any]) -> SamplerLink:
        """One with a sampler of its own in the same state. shared: by `id`, what is not copied with it."""
        link = copy(self)
        link.sampler = self._guarded("deepcopy", deepcopy, self.sampler, dict(shared))
        return link

    @property
    def operation(self) -> Operation | None:
        """What a built-in sampler says of itself, if it says something; it takes the place of a call."""
        tells = getattr(self.sampler, "operation", None) if self._registered.is_built_in else None
        return None if tells is None else tells()

    def call(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        """What the sampler leaves."""
        if self._takes_candidates:
            returned = self._guarded("__call__", self.sampler, candidates, context)
            if not isinstance(returned, Candidates):
                raise self._fault("__call__", f"returned {type(returned).__name__}, not candidates")
            if returned.d_vocab != context.d_vocab:
                raise self._fault("__call__", f"returned candidates of another vocabulary, of {returned.d_vocab}")
            if not self._registered.is_built_in:
                self._guarded("__call__", returned.check)
            return returned
        logits = self._checked(self._guarded("__call__", self.sampler, candidates.dense(), context), context)
        return self._guarded("__call__", WholeVocabulary, logits)

    def pick(self, candidates: Candidates, context: SamplerContext) -> int:
        """The token that the sampler draws, one of the candidates."""
        lent = candidates if self._takes_candidates else candidates.dense()
        picked = self._guarded("pick", self.sampler.pick, lent, context)
        if not is_whole(picked):
            raise self._fault("pick", f"returned {type(picked).__name__}, not a token id")
        if not 0 <= picked < context.d_vocab:
            raise self._fault("pick", f"returned {picked}, which is outside the vocabulary of {context.d_vocab}")
        if not candidates.holds(int(picked)):
            raise self._fault("pick", f"returned {picked}, a token that was removed before")
        return int(picked)

    def _checked(self, returned: object, context: SamplerContext) -> np.ndarray:
        """A plain sampler's logits as float32 (d_vocab,); their values are checked by whom they are given to."""
        if isinstance(returned, np.ma.MaskedArray):
            raise self._fault("__call__", "returned a masked array, not a plain array of logits")
        if not isinstance(returned, np.ndarray):
            raise self._fault("__call__", f"returned {type(returned).__name__}, not an array of logits")
        if returned.shape != (context.d_vocab,):
            raise self._fault("__call__", f"returned the shape {returned.shape}, not ({context.d_vocab},)")
        if not np.issubdtype(returned.dtype, np.floating):
            raise self._fault("__call__", f"returned {returned.dtype}, not float32")
        return np.asarray(returned, np.float32)  # what is too large becomes +inf, and is refused

    def _guarded(self, where: str, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What the call returns; what it raises names the sampler, but that a built-in's bug stays what it is."""
        try:
            return call(*arguments, **named)
        except KeyboardInterrupt:
            raise
        except RingletError as error:
            kind = PluginError if isinstance(error, PluginError) else RingletError
            raise kind(f"sampler {self._registered.label}: {fault_text(error)}") from error
        except UnusableLogits as error:
            raise self._fault(where, str(error)) from error
        except BaseException as error:  # a plugin does not end the process
            if self._registered.is_built_in:
                raise
            raise self._fault(where, fault_text(error)) from error

    def _fault(self, where: str, text: str) -> RingletError:
        if self._registered.is_built_in:  # which do what they are told: the chain asks for too much
            return RingletError(f"sampler {self._registered.label}: {text}")
        return PluginError(f"sampler {self._registered.label}: {where}: {text}")
