"""What holds for every sampler that Ringlet comes with: the edge cases, one battery for all."""

from __future__ import annotations

import math

import naive_samplers as naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet import RingletError, SamplerChain
from ringlet.core.parameters import parameters_of
from ringlet.core.plugin_manager import PluginManager

SAMPLERS = PluginManager().registry("sampler")
OURS = sorted(name for name, registered in SAMPLERS.items() if registered.is_built_in)
CONSTRAINTS = {"grammar", "json_schema", "regex"}  # of the tokens' texts: they need a model's tokenizer
ARGUMENTS = {  # that must be given, and those with which a sampler does something to any text; for d_vocab tokens
    "allowed_words": 'ids="0{others}"',
    "bad_words": 'ids="{last} {last} {last} 0"',
    "frequency_penalty": "0.5,semantics=transformers",
    "logit_bias": 'bias="0:+1.5 {last}:-2"',
    "min_new_tokens": "n=3",
    "presence_penalty": "0.5,semantics=llama.cpp",
    "top_n_sigma": "n=2",
}
FIRST = {"allowed_words", "bad_words", "min_new_tokens", "no_repeat_ngram"}  # may remove any token, whatever its logit
NAMES = [name for name in OURS if name not in CONSTRAINTS]
EVERY = pytest.mark.parametrize("name", NAMES)
INFINITY = math.inf
LARGEST = float(np.float32(3e38))


class Ends:
    """A tokenizer that knows the token that ends alone, and the text of none."""

    def __init__(self, end: int) -> None:
        self.eos_ids = frozenset([end])

    def decode(self, ids, skip_special=True) -> str:
        return "".join(":" if token_id == 1 else "x" for token_id in ids)


def spec(name: str, d_vocab: int) -> str:
    others = "".join(f"|{token_id}" for token_id in range(1, min(d_vocab, 50)))
    arguments = ARGUMENTS.get(name)
    return name if arguments is None else f"{name}({arguments.format(last=d_vocab - 1, others=others)})"


def chain(name: str, d_vocab: int, seed: int = 0) -> SamplerChain:
    return SamplerChain(spec(name, d_vocab), seed, Ends(d_vocab - 1) if d_vocab > 1 else None)


def left(logits: np.ndarray) -> list[int]:
    return np.flatnonzero(logits > -INFINITY).tolist()


def test_the_names_are_those_that_are_promised():
    promised = (
        "greedy temperature top_k top_p min_p typical top_n_sigma eta epsilon xtc dry repetition_penalty "
        "frequency_penalty presence_penalty no_repeat_ngram logit_bias bad_words allowed_words mirostat mirostat_v2 "
        "min_new_tokens"
    )
    assert set(promised.split()) <= set(OURS)


@EVERY
def test_a_vocabulary_of_one(name):
    for text in ([], [0], [0, 0, 0, 0]):
        if name in ("no_repeat_ngram", "bad_words") and len(text) > 2:
            with pytest.raises(RingletError, match=f"sampler {name}: removed every token"):
                chain(name, 1).sample([3.5], text)
        else:
            assert chain(name, 1).sample([3.5], text) == 0


@EVERY
def test_one_token_left(name):
    logits = np.full(9, -INFINITY, np.float32)
    logits[4] = -7.25
    assert left(chain(name, 9).process(logits)) == [4]
    assert chain(name, 9).sample(logits, [0, 1, 2]) == 4


@EVERY
@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([-INFINITY] * 3, "every token is removed"),
        ([0, math.nan, 0], "the logits hold NaN"),
        ([0, INFINITY, 0], r"the logits hold \+inf"),
        ([1e39, 0, 0], r"the logits hold \+inf"),
        ([], r"logits have the shape \(0,\)"),
        ([[1.0]], r"logits have the shape \(1, 1\)"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_logits_from_which_nothing_can_be_drawn(name, logits, message):
    for call in (chain(name, 3).sample, chain(name, 3).process):
        with pytest.raises(RingletError, match=message):
            call(logits)


@EVERY
@pytest.mark.parametrize("size", [2, 7, 3000])
def test_of_ties_the_lowest_ids_stay(name, size):
    found = chain(name, size).process(np.zeros(size, np.float32))
    ids, n = left(found), len(left(found))
    if name == "min_new_tokens":
        assert ids == list(range(size - 1))
    elif name == "xtc":
        assert ids in ([size - 1], list(range(size)))  # it removes from the top: the highest id stays
    else:
        assert ids == list(range(n))


@EVERY
def test_temperature_0_after_it_takes_the_likeliest_of_what_it_leaves(name):
    if hasattr(SAMPLERS[name].cls, "pick"):
        pytest.skip("it draws itself")
    logits = np.round(np.random.default_rng(3).normal(0, 2, 30)).astype(np.float32)
    text = [1, 2, 3, 1, 2]
    process = chain(name, 30).process(logits, text)
    greedy = SamplerChain(f"{spec(name, 30)},temperature=0", 0, Ends(29))
    assert greedy.sample(logits, text) == int(process.argmax())


@EVERY
def test_a_vocabulary_as_large_as_gemma_s(name):
    logits = np.random.default_rng(5).normal(0, 3, 262_144).astype(np.float32)
    text = np.random.default_rng(6).integers(0, 262_144, 100).tolist()
    found = chain(name, 262_144).process(logits, text)
    assert found.shape == (262_144,)
    assert found.dtype == np.float32
    assert left(found)
    assert found[chain(name, 262_144).sample(logits, text)] > -INFINITY


@EVERY
def test_windows_longer_than_the_text_are_as_none(name):
    if "window" not in {parameter.name for parameter in parameters_of(SAMPLERS[name].cls)}:
        pytest.skip("it has no window")
    logits, text = np.random.default_rng(0).normal(0, 2, 9).astype(np.float32), [1, 2, 3, 1, 2]
    arguments = ARGUMENTS.get(name, "")
    found = {
        window: SamplerChain(f"{name}({arguments}{',' if arguments else ''}window={window})").process(logits, text)
        for window in ("none", "5", "6", "100000", "0")
    }
    assert np.array_equal(found["none"], found["100000"])
    assert np.array_equal(found["5"], found["6"])
    assert np.array_equal(found["5"], found["none"])
    assert np.array_equal(found["0"], logits)


@EVERY
@settings(max_examples=25)
@given(
    st.lists(st.one_of(st.floats(-LARGEST, LARGEST, width=32), st.floats(-5, 5, width=32), st.just(-INFINITY))),
    st.lists(st.integers(0, 12), max_size=12),
    st.integers(0, 99),
)
def test_whatever_comes(name, logits, text, seed):
    """Logits stay numbers, what is removed stays so, one token at least is left, and the draw is one of those."""
    logits = np.array([*logits, 0.5], np.float32)
    before = logits.copy()
    try:
        found = chain(name, len(logits), seed).process(logits, text)
    except RingletError as error:
        if name not in FIRST or str(error) != f"sampler {name}: removed every token":
            raise
        return
    assert np.array_equal(logits, before)
    assert (found.shape, found.dtype) == (logits.shape, np.float32)
    assert not np.isnan(found).any()
    assert not (found == INFINITY).any()
    assert set(left(found)) <= set(left(logits))
    drawn = chain(name, len(logits), seed).sample(logits, text)
    assert found[drawn] > -INFINITY
    assert np.array_equal(logits, before)
    assert chain(name, len(logits), seed).sample(logits, text) == drawn


def numbers_within(parameter):
    """The ends of its range, and numbers of all sizes between."""
    numbers = [0, 1, 3, 1e-300, 1e-45, 1e-16, 0.5, 1 + 1e-7, 40, 1000, 2.0**63, 3.4e38, 1e300, -1, -1e-300, -1e300]
    for end in (parameter.minimum, parameter.maximum, parameter.above):
        numbers += [] if end is None else [end, math.nextafter(end, INFINITY), math.nextafter(end, -INFINITY)]
    for number in numbers:
        try:
            yield parameter.convert(number)
        except RingletError:
            continue


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FIRST])
def test_no_number_within_its_range_makes_nan_or_removes_all(name):
    parameters = parameters_of(SAMPLERS[name].cls)
    others = ",semantics=transformers" if "semantics" in [parameter.name for parameter in parameters] else ""
    kinds = [np.zeros(12), np.linspace(-LARGEST, LARGEST, 12), np.linspace(-1, 1, 12) * 1e-44]
    for parameter in parameters:
        for number in numbers_within(parameter) if parameter.type in (int, float) else ():
            made = SamplerChain(f"{name}({parameter.name}={number!r}{others})", 1, Ends(11))
            for logits in kinds:
                assert left(made.process(logits, [3, 3, 0, 3, 3]))
                made.sample(logits, [3, 3, 0, 3, 3])


def test_a_penalty_of_any_size_removes_no_token():
    for penalty in ("1e-300", "1e300", "3e38"):
        penalised = SamplerChain(f"repetition_penalty={penalty}").process([0.0, 1.0, -1.0, 2.0], [0, 1, 2])
        assert np.isfinite(penalised).all()


@EVERY
def test_frequencies(name):
    """Chi-square over 4,000 draws from eight tokens, fixed seeds: above the bound once in 10,000."""
    logits, text, n = np.random.default_rng(8).normal(0, 1, 8).astype(np.float32), [0, 1, 2, 0, 1], 4000
    drawing, showing = chain(name, 8, seed=9), chain(name, 8, seed=10)
    counts = np.bincount([drawing.sample(logits, text) for _ in range(n)], minlength=8)
    if name == "xtc":  # which acts by chance: the mean of its distributions
        p = np.mean([naive.softmax(showing.process(logits, text)) for _ in range(n)], axis=0)
    else:
        p = naive.softmax(showing.process(logits, text))
    assert not counts[p == 0].any()
    expected = p[p > 0] * n
    bounds = {0: 0.0, 1: 15.1, 2: 18.4, 3: 21.1, 4: 23.5, 5: 25.7, 6: 27.9, 7: 29.9}
    bound = bounds[len(expected) - 1] * (2 if name == "xtc" else 1)  # there both sides are drawn
    assert ((counts[p > 0] - expected) ** 2 / expected).sum() <= bound


@EVERY
def test_steps_one_after_the_other_and_copies_of_a_chain(name):
    """A fork goes on as its origin does; the same seed gives the same text."""

    def draw(from_chain: SamplerChain, ids: list[int], n: int) -> list[int]:
        ids = list(ids)
        for _ in range(n):
            logits = np.random.default_rng(len(ids)).normal(0, 2, 40).astype(np.float32)
            ids.append(from_chain.sample(logits, ids))
        return ids

    first = chain(name, 40, seed=3)
    ids = draw(first, [1, 2], 6)
    fork = first.fork()
    assert draw(first, ids, 8) == draw(fork, ids, 8) == draw(chain(name, 40, seed=3), [1, 2], 14)


@EVERY
def test_what_it_says_of_itself(name):
    """A first sentence in one line, where it is from, and a line for each parameter, whose default is in its range."""
    cls = SAMPLERS[name].cls
    first, _, rest = (cls.__doc__ or "").partition("\n")
    assert first.endswith(".")
    assert rest.count("\n") >= 1 or name == "greedy"
    for parameter in parameters_of(cls):
        assert parameter.help, parameter.name
        if not parameter.required:
            assert parameter.convert(parameter.default) == parameter.default
