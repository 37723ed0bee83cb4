"""What every sampler has to do, whatever it samples."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.errors import PluginError, RingletError
from ringlet.core.parameters import ParameterOf, parameters_of
from ringlet.core.sampler_spec import SamplerStep
from ringlet.testing.checks import Check, CheckSkipped, require, unless_refused
from ringlet.testing.samplers.case import (
    SamplerCase,
    awkward_logits,
    lent_arrays,
    some_logits,
    tried,
    write,
)

LARGE = 1_000_000  # tried where a parameter has no end
SIZES = {"of 1": 1, "of 2": 2, "of 262,144": 262_144}


def sampler_checks(step: SamplerStep, tokenizer: Any) -> Iterator[Check]:
    """The suite. step: the sampler, and values for its parameters. tokenizer: a model's, for samplers that need one."""
    case = SamplerCase(step, tokenizer)
    yield Check("it can be made", partial(can_be_made, case))
    yield Check("it says what it does, and what its parameters mean", partial(is_described, case))
    for parameter in parameters_of(step.sampler.cls):
        yield Check(f"every {parameter.name} in its range works", partial(range_works, case, parameter))
    for about, logits in awkward_logits(case.d_vocab):
        yield Check(about, unless_refused(partial(takes, case, logits)))
    for about, size in SIZES.items():
        yield Check(f"a vocabulary {about}", unless_refused(partial(takes_vocabulary, case, size)))
    for name, body in CHECKS.items():
        yield Check(name, unless_refused(partial(body, case)))
    if case.picks:
        yield Check("every token it picks is one that was left", unless_refused(partial(picks_what_is_left, case)))


# --- parameters ------------------------------------------------------------------------------------------------------


def can_be_made(case: SamplerCase) -> None:
    """Its first token too: some look at their parameters when they first see a tokenizer."""
    try:
        case.chain().sample(some_logits(case.d_vocab), [0])
    except PluginError:
        raise
    except RingletError as error:
        require(False, str(error))


def is_described(case: SamplerCase) -> None:
    cls = case.step.sampler.cls
    require(bool((vars(cls).get("__doc__") or "").strip()), f"{cls.__qualname__} has no docstring: say what it does")
    for parameter in parameters_of(cls):
        text = f'parameter {parameter.name} has no help: Annotated[{parameter.type.__name__}, Parameter("…")]'
        require(bool(parameter.help.strip()), text)
        if not parameter.required:
            try:
                parameter.convert(parameter.default)
            except RingletError as error:
                require(False, f"the default of {parameter.name} is outside its range: {error}")


def range_works(case: SamplerCase, parameter: ParameterOf) -> None:
    """Both ends, or a large number where there is none. What the constructor refuses in a line is refused."""
    values = values_to_try(parameter)
    if not values:
        raise CheckSkipped("a text: it may be anything")
    for value in values:
        about = f"{parameter.name}={value}"
        try:
            chain = tried(about, partial(case.chain, **{parameter.name: value}))
            tried(about, partial(write, chain, case.d_vocab, 3))
        except RingletError:
            continue


def values_to_try(parameter: ParameterOf) -> list[Any]:
    """Within the parameter's range."""
    values: list[Any] = [*parameter.choices, *([None] if parameter.optional else [])]
    if parameter.type is bool:
        values += [False, True]
    if parameter.type in (int, float):
        above = parameter.above
        low = -LARGE if parameter.minimum is None else parameter.minimum
        if above is not None:  # an end that is not included
            low = above + (1 if parameter.type is int else max(1e-6, abs(above) * 1e-6))
        high = max(low, LARGE) if parameter.maximum is None else parameter.maximum
        values += [low, 0 if low <= 0 <= high else (low + high) / 2, high]
    converted = (parameter.convert(value if value is None else parameter.type(value)) for value in values)
    return list(dict.fromkeys(converted))


# --- logits ----------------------------------------------------------------------------------------------------------


def takes(case: SamplerCase, logits: np.ndarray) -> None:
    """It leaves a token of those that were left, and no NaN; nothing that was removed comes back."""
    before = logits.copy()
    left = case.chain().process(logits, [0])
    back = int(np.count_nonzero((before == -np.inf) & (left > -np.inf)))
    require(back == 0, f"{back} tokens that were removed before have come back: leave −inf as it is")
    drawn = case.chain().sample(logits, [0])
    require(before[drawn] > -np.inf, f"the token {drawn} was drawn, which was removed before")


def takes_vocabulary(case: SamplerCase, size: int) -> None:
    """With a tokenizer where the model has a token for each of its ids."""
    make = case.chain if size >= case.d_vocab else case.chain_without_tokenizer
    left = make().process(some_logits(size), [0])
    require(left.shape == (size,), f"returned the shape {left.shape}, not ({size},)")
    drawn = write(make(), size, 2)
    require(all(0 <= token_id < size for token_id in drawn), f"drew {drawn}")


def text_may_be_empty_or_long(case: SamplerCase) -> None:
    logits = some_logits(case.d_vocab)
    tried("no tokens before", partial(case.chain().sample, logits, []))
    long = np.random.default_rng(1).integers(0, case.d_vocab, 3000).tolist()
    tried("3,000 tokens before", partial(case.chain().sample, logits, long))
    repeated = case.chain()
    for n_tokens in range(1, 40):
        tried("one token again and again", partial(repeated.sample, logits, [5 % case.d_vocab] * n_tokens))


def text_may_be_taken_back(case: SamplerCase) -> None:
    """A rewound text: the sampler sees fewer tokens than the step before."""
    chain = case.chain()
    ids = [0, *write(chain, case.d_vocab)]
    for length in (3, 4, 1, 2):
        tried("after tokens were taken back", partial(chain.sample, some_logits(case.d_vocab, length), ids[:length]))


# --- randomness and state --------------------------------------------------------------------------------------------


def same_seed_same_text(case: SamplerCase) -> None:
    """Whatever other generators of the process give."""
    texts = []
    for other in (1, 2):
        random.seed(other)
        np.random.seed(other)
        texts.append(write(case.chain(seed=7), case.d_vocab, 20))
    require(texts[0] == texts[1], "the same seed gave two texts: all that is random has to come from context.rng")


def sequences_are_apart(case: SamplerCase) -> None:
    """Two sequences step by step in turns, and each alone."""
    alone = [write(case.chain(seed), case.d_vocab, 8, (seed,)) for seed in (1, 2)]
    chains, texts = [case.chain(seed) for seed in (1, 2)], [[1], [2]]
    for step in range(8):
        for chain, ids in zip(chains, texts, strict=True):
            ids.append(chain.sample(some_logits(case.d_vocab, step), ids))
    require(
        [ids[1:] for ids in texts] == alone,
        "a sequence is drawn otherwise beside another: keep state in self, not in the class or the module",
    )


def copies_go_on_alone(case: SamplerCase) -> None:
    """As beam search copies a sequence: original and copy draw the same from there, each as if it were alone."""
    alone = write(case.chain(5), case.d_vocab, 8)
    chain, ids = case.chain(5), [0]
    for step in range(3):
        ids.append(chain.sample(some_logits(case.d_vocab, step), ids))
    copy = tried("copied with copy.deepcopy", chain.fork)
    texts = [list(ids), list(ids)]
    for step in range(3, 8):
        for one, text in zip((chain, copy), texts, strict=True):
            text.append(one.sample(some_logits(case.d_vocab, step), text))
    require(texts[0][1:] == alone, "the original draws otherwise once it was copied")
    require(texts[1][1:] == alone, "the copy of a sequence draws otherwise than the original")


# --- what is lent ----------------------------------------------------------------------------------------------------


def leaves_what_is_lent(case: SamplerCase) -> None:
    """Logits may be changed in place, candidates and the text may not."""

    def watch(lent: Any, context: Any) -> Callable[[], None]:
        ids = context.token_ids.copy()
        candidates = [array.copy() for array in lent_arrays(lent)] if isinstance(lent, Candidates) else None

        def after() -> None:
            require(np.array_equal(context.token_ids, ids), "context.token_ids was changed")
            if candidates is not None:
                same = map(np.array_equal, lent_arrays(lent), candidates)
                require(all(same), "the candidates were changed in place: return new ones")

        return after

    chain = case.watched(watch)
    ids = np.array([0, 1, 2, 3, 0, 0], np.int32) % case.d_vocab
    for step in range(3):
        logits = some_logits(case.d_vocab, step)
        chain.sample(logits, ids[: 3 + step])


def keeps_nothing_lent(case: SamplerCase) -> None:
    """What it was lent at one step is overwritten before the next."""

    def drawn(overwrite: bool) -> list[int]:
        lent: list[np.ndarray] = []

        def watch(given: Any, context: Any) -> Callable[[], None]:
            if overwrite:
                for array in lent:
                    array[...] = -1
            lent[:] = [] if isinstance(given, Candidates) else [given]
            return lambda: None

        chain, ids, texts = case.watched(watch, seed=3), np.zeros(7, np.int32), []
        for step in range(6):
            given = ids[: step + 1].copy()
            texts.append(chain.sample(some_logits(case.d_vocab, step), given))
            if overwrite:
                given[:] = 0
            ids[step + 1] = texts[-1]
        return texts

    require(drawn(False) == drawn(True), "an array that was lent at an earlier step is still used: copy what you keep")


def picks_what_is_left(case: SamplerCase) -> None:
    """Also of what its own `__call__` leaves, where it has one."""
    for _, logits in awkward_logits(case.d_vocab):
        for seed in range(4):
            drawn = case.chain(seed).sample(logits, [0])
            left = case.chain(seed).process(logits, [0]) if case.calls else logits
            require(left[drawn] > -np.inf, f"pick returned {drawn}, which __call__ removes")


CHECKS: dict[str, Callable[[SamplerCase], None]] = {
    "the text may be empty or long": text_may_be_empty_or_long,
    "the text may be taken back": text_may_be_taken_back,
    "the same seed gives the same text": same_seed_same_text,
    "sequences do not touch each other": sequences_are_apart,
    "a copied sequence goes on by itself": copies_go_on_alone,
    "what is lent is left alone": leaves_what_is_lent,
    "nothing lent is kept": keeps_nothing_lent,
}
