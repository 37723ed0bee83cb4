"""Samplers that look at probabilities alone, against their formulas written plainly."""

from __future__ import annotations

import math

import naive_samplers as naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from naive_samplers import likeliest_first, softmax

from ringlet import SamplerChain

some_logits = arrays(np.float32, st.integers(1, 200), elements=st.integers(-8, 8).map(lambda i: i / 4))
several_logits = arrays(np.float32, st.integers(2, 60), elements=st.floats(-9, 9, width=32))


def process(spec: str, logits) -> np.ndarray:
    return SamplerChain(spec).process(logits)


def left(spec: str, logits) -> list[int]:
    """The ids that are left; their logits must be unchanged."""
    found = process(spec, logits)
    ids = np.flatnonzero(found > -np.inf)
    assert (found[ids] == np.asarray(logits, np.float32)[ids]).all()
    return ids.tolist()


@given(some_logits, st.integers(1, 250))
def test_top_k_keeps_the_k_largest_lowest_ids_first(logits, k):
    assert left(f"top_k={k}", logits) == sorted(likeliest_first(logits)[:k])


@given(some_logits, st.sampled_from([0.0, 0.1, 0.35, 0.62, 0.9, 0.999]))
def test_top_p_keeps_the_smallest_set_of_that_mass(logits, p):
    expected = naive.fewest_with_mass(logits, likeliest_first(logits), p)
    assert left(f"top_p={p}", logits) == expected or is_near(logits, expected, p)


@given(some_logits, st.sampled_from([0.0, 0.1, 0.35, 0.62, 0.9, 0.999]))
def test_typical_keeps_what_surprises_as_expected(logits, p):
    found, order = left(f"typical={p}", logits), naive.typical_order(logits)
    expected = naive.fewest_with_mass(logits, order, p)
    distances = np.abs(naive.entropy(logits) + np.log(softmax(logits)))
    # Where two tokens are as typical to the last bit, on either side of the entropy, either may come first.
    assert found == expected or is_near(logits, expected, p) or is_near(distances, found, p, expected)


def is_near(logits, expected: list[int], p: float, other: list[int] | None = None) -> bool:
    """Whether the sum meets p to the last bits, so that either side may round; or two sets differ by equals only."""
    if other is not None:
        ours, theirs = sorted(logits[expected]), sorted(logits[other])
        return len(ours) == len(theirs) and np.allclose(ours, theirs, rtol=0, atol=1e-12)
    mass = np.sort(softmax(logits)[expected])
    return abs(mass.sum() - p) < 1e-12 or any(abs(mass.sum() - p - part) < 1e-12 for part in mass)


@given(some_logits, st.sampled_from([0.01, 0.05, 0.3, 0.7]))
def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest(logits, p):
    shares = softmax(logits) / softmax(logits).max()
    assert set(np.flatnonzero(shares > p * (1 + 1e-9))) <= set(left(f"min_p={p}", logits))
    assert set(left(f"min_p={p}", logits)) <= set(np.flatnonzero(shares > p * (1 - 1e-9)))


@given(several_logits, st.sampled_from([0.1, 1.0, 2.5]))
def test_top_n_sigma_keeps_what_is_near_the_largest_logit(logits, n):
    numbers = [float(logit) for logit in logits]
    mean = sum(numbers) / len(numbers)
    sigma = math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))
    sure = [i for i, number in enumerate(numbers) if number > max(numbers) - n * sigma + 1e-9]
    possible = [i for i, number in enumerate(numbers) if number > max(numbers) - n * sigma - 1e-9]
    assert set(sure) <= set(left(f"top_n_sigma={n}", logits)) <= set(possible)


@given(several_logits, st.sampled_from([0.3, 1.0, 3.0]), st.sampled_from([0.5, 1.0]))
def test_top_n_sigma_does_not_depend_on_the_temperature(logits, temperature, n):
    ids = np.flatnonzero(process(f"temperature={temperature},top_n_sigma={n}", logits) > -np.inf)
    border = logits.max() - n * logits.astype(np.float64).std()
    differing = set(ids.tolist()) ^ set(left(f"top_n_sigma={n}", logits))
    assert all(abs(logits[token_id] - border) < 1e-4 for token_id in differing)


@given(several_logits, st.sampled_from([1e-4, 0.01, 0.2, 0.9]))
def test_epsilon_keeps_what_is_likely(logits, epsilon):
    assert_kept_from(left(f"epsilon={epsilon}", logits), softmax(logits), epsilon)


@given(several_logits, st.sampled_from([1e-4, 0.01, 0.2, 0.9]))
def test_eta_keeps_what_is_likely_given_the_entropy(logits, epsilon):
    eta = min(epsilon, math.sqrt(epsilon) * math.exp(-naive.entropy(logits)))
    assert_kept_from(left(f"eta={epsilon}", logits), softmax(logits), eta)


def assert_kept_from(found: list[int], p: np.ndarray, border: float) -> None:
    border = min(border, p.max())
    near = 1e-6  # as near as float32 can tell
    assert set(np.flatnonzero(p > border + near)) <= set(found) <= set(np.flatnonzero(p > border - near))
    assert found


@given(several_logits, st.sampled_from([0.0, 0.05, 0.1, 0.3]))
def test_xtc_removes_the_likeliest_but_the_last_likely_one(logits, threshold):
    p = softmax(logits)
    if np.abs(p - threshold).min() < 1e-6:  # nearer than float32 can tell
        return
    choices = [token_id for token_id in likeliest_first(logits) if p[token_id] >= threshold]
    expected = sorted(set(range(len(p))) - set(choices[:-1]))
    assert left(f"xtc(probability=1,threshold={threshold})", logits) == expected
    assert left(f"xtc(probability=0,threshold={threshold})", logits) == list(range(len(p)))


def test_xtc_acts_as_often_as_it_should():
    """Binomial, n = 2000, p = 0.3: beyond 4.3 standard deviations once in 60,000 seeds."""
    chain, logits = SamplerChain("xtc(probability=0.3,threshold=0.1)", seed=5), np.log([0.6, 0.3, 0.1 - 1e-6, 1e-6])
    acted = sum(chain.process(logits)[0] == -np.inf for _ in range(2000))
    assert abs(acted - 600) < 4.3 * math.sqrt(2000 * 0.3 * 0.7)


@given(some_logits, st.sampled_from([0.05, 0.5, 1.0, 3.0]))
def test_temperature_divides_the_logits(logits, temperature):
    expected = softmax(logits.astype(np.float64) / temperature)
    assert np.allclose(softmax(process(f"temperature={temperature}", logits)), expected, rtol=1e-5)


@given(several_logits, st.sampled_from([(1.0, 0.5, 1.0), (0.8, 0.9, 2.0), (1.5, 1.0, 0.5), (1.0, 0.5, 0.0)]))
def test_dynamic_temperature_follows_the_entropy(logits, arguments):
    temperature, reach, exponent = arguments
    found = softmax(process(f"temperature({temperature},range={reach},exponent={exponent})", logits))
    expected = softmax(naive.dynamic_temperature(logits, *arguments))
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-30)


def test_dynamic_temperature_of_a_sure_model_is_low_and_of_an_unsure_one_high():
    sure, unsure = np.array([20.0, 0, 0, 0]), np.array([0.1, 0, 0, 0])
    spec = "temperature(1.0,range=1.0)"
    assert softmax(process(spec, sure))[0] > softmax(sure)[0]
    assert softmax(process(spec, unsure))[0] < softmax(unsure)[0]
    assert process("temperature(1.0,range=1.0)", [3.0]).tolist() == [0]


@settings(max_examples=30)
@given(some_logits)
@pytest.mark.parametrize("spec", ["greedy", "temperature=0", "top_k=1", "top_p=0", "top_k=5,temperature=0"])
def test_greedy_in_every_way_leaves_the_likeliest_with_the_lowest_id(spec, logits):
    assert np.flatnonzero(process(spec, logits) > -np.inf).tolist() == [int(np.argmax(logits))]
    assert SamplerChain(spec, seed=0).sample(logits) == int(np.argmax(logits))


@pytest.mark.parametrize(
    "spec",
    [
        *("", "top_k=0", "top_k=3", "top_k=1000", "top_p=1", "typical=1", "min_p=0", "epsilon=0", "eta=0"),
        *("xtc(threshold=1)", "top_n_sigma=1e9", "repetition_penalty=1", "frequency_penalty=0", "dry=0"),
    ],
)
def test_samplers_that_ask_for_nothing_change_nothing(spec):
    logits = [1.0, -2.0, 0.5]
    assert SamplerChain(spec).process(logits, [0, 1, 2, 0, 1, 2, 0, 1]).tolist() == logits


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("top_p=0.25", [0]),
        ("top_p=0.5", [0, 1]),
        ("top_p=0.75", [0, 1, 2]),
        ("top_p=0.7500001", [0, 1, 2, 3]),
        ("typical=0.5", [0, 1]),
        ("typical=0.500001", [0, 1, 2]),
        ("min_p=1", [0, 1, 2, 3]),
        ("epsilon=0.25", [0, 1, 2, 3]),
        ("epsilon=0.3", [0, 1, 2, 3]),
        ("eta=0.0625", [0, 1, 2, 3]),  # √ε · e^−H = 0.25 · 0.25
        ("xtc(probability=1,threshold=0.25)", [3]),
        ("xtc(probability=1,threshold=0.2500001)", [0, 1, 2, 3]),
        ("mirostat_v2(tau=1)", [0, 1, 2, 3]),  # μ = 2 bits, which is the surprise of each
        ("top_n_sigma=1", [0, 1, 2, 3]),
    ],
)
def test_a_mass_of_exactly_p_and_equal_tokens(spec, expected):
    """Four equal logits: probabilities of exactly 1/4."""
    assert left(spec, np.full(4, 1.5, np.float32)) == expected


def test_large_vocabularies():
    logits = np.random.default_rng(5).normal(0, 3, 262_144).astype(np.float32)
    logits[[7, 100_000, 262_143]] = logits.max()
    order = np.lexsort((np.arange(len(logits)), -logits))
    p = softmax(logits)
    assert left("top_k=2", logits) == sorted(order[:2].tolist())
    assert left("top_k=5000", logits) == sorted(order[:5000].tolist())
    assert left("top_k=200000", logits) == sorted(order[:200_000].tolist())
    assert left("top_p=0.95", logits) == sorted(order[: int(np.searchsorted(np.cumsum(p[order]), 0.95)) + 1].tolist())
    typical = np.lexsort((np.arange(len(p)), np.abs(np.log(p) - (p * np.log(p)).sum())))
    expected = set(typical[: int(np.searchsorted(np.cumsum(p[typical]), 0.3)) + 1].tolist())
    assert len(expected ^ set(left("typical=0.3", logits))) <= 2  # of many tokens the weights are of float32
    assert left("epsilon=1e-5", logits) == np.flatnonzero(p >= 1e-5).tolist()


def test_extreme_logits_stay_numbers():
    logits = np.array([3e38, -3e38, 0, 1e-45], np.float32)
    for spec in ("temperature=0.001", "temperature=1e-45", "temperature=1e30", "top_p=0.99", "min_p=0.01", "top_k=2"):
        assert not np.isnan(process(spec, logits)).any(), spec
        assert SamplerChain(spec, seed=0).sample(logits) == 0
