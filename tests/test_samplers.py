"""The built-in samplers against their formulas, written plainly, and against transformers' warpers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ringlet import RingletError, SamplerChain

INFINITY = np.float32(np.inf)
some_logits = arrays(np.float32, st.integers(1, 200), elements=st.integers(-8, 8).map(lambda i: i / 4))


def process(spec: str, logits) -> np.ndarray:
    return SamplerChain(spec).process(logits)


def kept(spec: str, logits) -> list[int]:
    """The ids that are left; their logits must be unchanged but for temperature."""
    return np.flatnonzero(process(spec, logits) > -np.inf).tolist()


def likeliest_first(logits: np.ndarray) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


def probabilities(logits: np.ndarray) -> np.ndarray:
    e = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return e / e.sum()


def naive_top_p(logits: np.ndarray, p: float) -> list[int]:
    total, found = 0.0, []
    for token_id in likeliest_first(logits):
        found.append(token_id)
        total += probabilities(logits)[token_id]
        if total >= p:
            break
    return sorted(found)


@given(some_logits, st.integers(1, 250))
def test_top_k_keeps_the_k_largest_lowest_ids_first(logits, k):
    assert kept(f"top_k={k}", logits) == sorted(likeliest_first(logits)[:k])


@given(some_logits, st.sampled_from([0.0, 0.1, 0.35, 0.62, 0.9, 0.999]))
def test_top_p_keeps_the_smallest_set_of_that_mass(logits, p):
    found, expected = kept(f"top_p={p}", logits), naive_top_p(logits, p)
    # Where the sum meets p to the last bit, either side may round.
    near = (
        abs(probabilities(logits)[expected[:-1]].sum() - p) < 1e-12
        or abs(probabilities(logits)[expected].sum() - p) < 1e-12
    )
    assert found == expected or near


@given(some_logits, st.sampled_from([0.01, 0.05, 0.3, 0.7]))
def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest(logits, p):
    shares = probabilities(logits) / probabilities(logits).max()
    sure, possible = np.flatnonzero(shares > p * (1 + 1e-9)), np.flatnonzero(shares > p * (1 - 1e-9))
    assert set(sure) <= set(kept(f"min_p={p}", logits)) <= set(possible)


@given(some_logits, st.sampled_from([0.05, 0.5, 1.0, 3.0]))
def test_temperature_divides_the_logits(logits, temperature):
    assert np.allclose(
        probabilities(process(f"temperature={temperature}", logits)),
        probabilities(logits.astype(np.float64) / temperature),
        rtol=1e-5,
    )


@settings(max_examples=30)
@given(some_logits)
@pytest.mark.parametrize("spec", ["greedy", "temperature=0", "top_k=1", "top_p=0", "top_k=5,temperature=0"])
def test_greedy_in_every_way_leaves_the_likeliest_with_the_lowest_id(spec, logits):
    assert kept(spec, logits) == [int(np.argmax(logits))]
    assert SamplerChain(spec, seed=0).sample(logits) == int(np.argmax(logits))


@pytest.mark.parametrize(
    "spec", ["top_k=0", "top_k=3", "top_k=1000", "top_p=1", "top_p=1.0", "min_p=0", "temperature=1", ""]
)
def test_samplers_that_ask_for_nothing_change_nothing(spec):
    logits = np.array([1.0, -2.0, 0.5], np.float32)
    assert process(spec, logits).tolist() == pytest.approx(logits.tolist()) or spec == "temperature=1"
    assert kept(spec, logits) == [0, 1, 2]


@pytest.mark.parametrize(
    "spec", ["", "greedy", "temperature=0", "temperature=0.7", "top_k=4", "top_p=0.5", "min_p=0.5"]
)
def test_a_vocabulary_of_one_and_one_token_left(spec):
    assert SamplerChain(spec, seed=1).sample([3.5]) == 0
    assert SamplerChain(spec, seed=1).sample([-INFINITY, 1.0, -INFINITY]) == 1


@pytest.mark.parametrize("spec", ["", "greedy", "temperature=0.7", "top_k=2", "top_p=0.9", "min_p=0.1"])
@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([-INFINITY] * 3, "every token is removed"),
        ([0, np.nan], "NaN"),
        ([0, INFINITY], r"\+inf"),
        ([], "shape"),
        ([[1.0]], "shape"),
    ],
)
def test_logits_from_which_nothing_can_be_drawn(spec, logits, message):
    with pytest.raises(RingletError, match=message):
        SamplerChain(spec).sample(logits)


def test_extreme_logits_stay_numbers():
    logits = np.array([3e38, -3e38, 0, 1e-45], np.float32)
    for spec in ("temperature=0.001", "temperature=1e-45", "temperature=1e30", "top_p=0.99", "min_p=0.01", "top_k=2"):
        assert not np.isnan(process(spec, logits)).any(), spec
        assert SamplerChain(spec, seed=0).sample(logits) == 0


def test_what_the_caller_lends_is_left_alone():
    logits = np.array([1, 2, 3], np.float32)
    for spec in ("greedy", "top_k=1", "min_p=0.9", "temperature=0", "top_p=0.1"):
        process(spec, logits)
    assert logits.tolist() == [1, 2, 3]


def test_large_vocabularies():
    logits = np.random.default_rng(5).normal(0, 3, 262_144).astype(np.float32)
    logits[[7, 100_000, 262_143]] = logits.max()
    order = np.lexsort((np.arange(len(logits)), -logits))
    assert kept("top_k=2", logits) == sorted(order[:2].tolist())
    assert kept("top_k=5000", logits) == sorted(order[:5000].tolist())
    mass = np.cumsum(probabilities(logits)[order])
    assert kept("top_p=0.95", logits) == sorted(order[: int(np.searchsorted(mass, 0.95)) + 1].tolist())


@pytest.mark.reference
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("spec", "warper", "arguments"),
    [
        ("top_k=7", "TopKLogitsWarper", {"top_k": 7}),
        ("top_p=0.8", "TopPLogitsWarper", {"top_p": 0.8}),
        ("min_p=0.1", "MinPLogitsWarper", {"min_p": 0.1}),
        ("temperature=0.7", "TemperatureLogitsWarper", {"temperature": 0.7}),
    ],
)
def test_as_transformers_does(spec, warper, arguments, seed):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    logits = np.random.default_rng(seed).normal(0, 2, 1000).astype(np.float32)
    reference = getattr(transformers, warper)(**arguments)(None, torch.tensor(logits)[None])[0].numpy()
    found = process(spec, logits)
    assert (np.isneginf(found) == np.isneginf(reference)).all()
    assert np.allclose(probabilities(found), probabilities(reference), rtol=1e-5, atol=0)
