"""For each check of samplers, a sampler that fails it; most do nothing else amiss."""

from __future__ import annotations

import random
from threading import Lock
from typing import Annotated

import numpy as np

from ringlet import Parameter, RingletError
from ringlet.core.candidates import Candidates

shared: list[int] = []


class Plain:
    """Leaves the logits as they are."""

    def __call__(self, logits, context):
        return logits


class Refuses(Plain):
    """Refuses everything."""

    name = "refuses"

    def __init__(self) -> None:
        raise RingletError("the moon is not full")


class SaysNothing(Plain):
    name = "says_nothing"


SaysNothing.__doc__ = None


class HasNoHelp(Plain):
    """A parameter without help."""

    name = "has_no_help"

    def __init__(self, k: int = 3) -> None: ...


class WrongRange(Plain):
    """Fails at an end of its range."""

    name = "wrong_range"

    def __init__(self, k: Annotated[int, Parameter("tokens", minimum=0)] = 40) -> None:
        self.k = k

    def __call__(self, logits, context):
        return (
            np.where(logits >= np.sort(logits)[-self.k :][0], logits, -np.inf) if self.k < len(logits) else logits / 0
        )


class WrongDefault(Plain):
    """A default outside its range."""

    name = "wrong_default"

    def __init__(self, k: Annotated[int, Parameter("tokens", minimum=1)] = 0) -> None: ...


class Overflows(Plain):
    """Computes probabilities without taking the largest logit away first."""

    name = "overflows"

    def __call__(self, logits, context):
        p = np.exp(logits)
        return np.log(p / p.sum())


class Scales(Plain):
    """Divides by the standard deviation."""

    name = "scales"

    def __call__(self, logits, context):
        return logits / logits[logits > -np.inf].std()


class NoTies(Plain):
    """Takes it that no two logits are equal."""

    name = "no_ties"

    def __call__(self, logits, context):
        assert len(np.unique(logits[logits > 4])) == (logits > 4).sum()
        return logits


class BringsBack(Plain):
    """Removed tokens come back."""

    name = "brings_back"

    def __call__(self, logits, context):
        return np.maximum(logits, -1e4)


class NeedsTwo(Plain):
    """Removes the likeliest, whatever is left."""

    name = "needs_two"

    def __call__(self, logits, context):
        logits[logits == logits.max()] = -np.inf
        return logits


class SmallVocabulary(Plain):
    """Knows how large a vocabulary is."""

    name = "small_vocabulary"

    def __call__(self, logits, context):
        return logits + np.zeros(6144, np.float32)


class LooksBack(Plain):
    """Takes it that there is a token before."""

    name = "looks_back"

    def __call__(self, logits, context):
        logits[context.token_ids[-1]] -= 1
        return logits


class OnlyForward(Plain):
    """Takes it that a text only grows."""

    name = "only_forward"

    def __init__(self) -> None:
        self.length = 0

    def __call__(self, logits, context):
        assert len(context.token_ids) >= self.length
        self.length = len(context.token_ids)
        return logits


class OtherGenerator(Plain):
    """Draws from the process's generators."""

    name = "other_generator"

    def __call__(self, logits, context):
        return logits + 5 * np.random.random(len(logits)) + random.random()


class SharedState(Plain):
    """Keeps its state in the module."""

    name = "shared_state"

    def __call__(self, logits, context):
        shared.append(int(context.token_ids[-1]) if len(context.token_ids) else 0)
        logits[shared[-9:]] -= 20
        return logits


class CannotBeCopied(Plain):
    """Holds what `copy.deepcopy` cannot copy."""

    name = "cannot_be_copied"

    def __init__(self) -> None:
        self.lock = Lock()


class WritesText(Plain):
    """Writes to the text, against all odds."""

    name = "writes_text"

    def __call__(self, logits, context):
        if len(context.token_ids):
            context.token_ids.flags.writeable = True
            context.token_ids[0] += 1
        return logits


class WritesCandidates:
    """Writes to the candidates."""

    name = "writes_candidates"
    takes_candidates = True

    def __call__(self, candidates: Candidates, context):
        candidates.logits.flags.writeable = True
        candidates.logits[0] += 1
        return candidates


class KeepsLogits(Plain):
    """Keeps the array of the step before."""

    name = "keeps_logits"

    def __init__(self) -> None:
        self.kept = None

    def __call__(self, logits, context):
        returned = logits if self.kept is None else logits - 3 * (self.kept > 2)
        self.kept = logits
        return returned.copy()


class PicksAnything:
    """Picks what its own `__call__` removes."""

    name = "picks_anything"

    def __call__(self, logits, context):
        logits[: len(logits) // 2] = -np.inf if np.isfinite(logits[len(logits) // 2 :]).any() else logits[0]
        return logits

    def pick(self, logits, context):
        return int(logits.argmax())


FAULTY: dict[type, str] = {
    Refuses: "it can be made",
    SaysNothing: "it says what it does, and what its parameters mean",
    HasNoHelp: "it says what it does, and what its parameters mean",
    WrongDefault: "it says what it does, and what its parameters mean",
    WrongRange: "every k in its range works",
    Scales: "logits that are all equal",
    NoTies: "many ties",
    Overflows: "logits from -3e+38 to 3e+38",
    BringsBack: "most tokens removed",
    NeedsTwo: "one token left",
    SmallVocabulary: "a vocabulary of 262,144",
    LooksBack: "the text may be empty or long",
    OnlyForward: "the text may be taken back",
    OtherGenerator: "the same seed gives the same text",
    SharedState: "sequences do not touch each other",
    CannotBeCopied: "a copied sequence goes on by itself",
    WritesText: "what is lent is left alone",
    WritesCandidates: "what is lent is left alone",
    KeepsLogits: "nothing lent is kept",
    PicksAnything: "every token it picks is one that was left",
}
