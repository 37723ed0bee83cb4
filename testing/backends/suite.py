"""What every backend has to do: agree with the reference on random models of every recipe, however steps are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ringlet.core.backend import Backend
from ringlet.core.plugin_manager import Registered
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.testing.backends import agreement, lending, rings
from ringlet.testing.backends.case import BackendCase
from ringlet.testing.checks import Check, unless_refused
from ringlet.testing.random_models import RECIPES

CHECKS: dict[str, Callable[[BackendCase], None]] = {
    "sliding is StreamingLLM, by the formula": agreement.slides_as_stated,
    "NaN in a weight shows in the logits": agreement.shows_nan,
    "a text in chunks gives the same logits": rings.chunks_agree,
    "sequences of a batch do not touch each other": rings.batches_agree,
    "a step that wants no logits": rings.wants_nothing,
    "a small step after a large one, and the other way round": rings.sizes_change,
    "a rewound ring goes on from there": rings.rewinds,
    "a forked ring is independent": rings.forks,
    "a used ring begins again": rings.begins_again,
    "the batch and the rings' tokens are left alone": lending.leaves_the_batch_alone,
    "logits returned earlier do not change": lending.keeps_no_logits,
    "the same steps give the same bits": lending.repeats,
    "any number of threads gives the same bits": lending.threads_agree,
    "two Python threads at once": lending.serves_two_threads,
    "the memory of a ring is told": lending.tells_memory,
}


def backend_checks(registered: Registered, reference: type[Backend]) -> Iterator[Check]:
    """The suite. reference: the numpy backend's class. A recipe, format or dtype may be refused, the plain one not."""
    case = BackendCase(registered, reference)
    yield Check("the plain recipe agrees with the reference", partial(agreement.agrees, case, RECIPES["plain"]))
    for name, recipe in RECIPES.items():
        if recipe:
            yield Check(f"recipe: {name}", unless_refused(partial(agreement.agrees, case, recipe)))
    for name in BLOCK_FORMATS:
        yield Check(f"weights in {name}", unless_refused(partial(agreement.unpacks, case, name)))
    for kv_dtype in registered.cls.kv_dtypes:
        yield Check(f"rings of {kv_dtype} that turn", unless_refused(partial(agreement.ring_turns, case, kv_dtype)))
    for name, body in CHECKS.items():
        yield Check(name, partial(body, case))
    yield Check("hidden states, if it gives them", unless_refused(partial(agreement.gives_hidden_states, case)))
