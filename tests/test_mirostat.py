"""Mirostat: what it leaves, how μ follows the drawn tokens, and that a text may be rewound."""

from __future__ import annotations

import math

import naive_samplers as naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_pipeline import random_pipeline

from ringlet import RingletError, SamplerChain

BOTH = pytest.mark.parametrize("name", ["mirostat", "mirostat_v2"])


def logits_of(step: int, n: int = 200) -> np.ndarray:
    return np.random.default_rng(step).normal(0, 2.5, n).astype(np.float32)


def mu_of(chain: SamplerChain) -> float:
    return chain._links[0].sampler._mu[-1]


def n_left(logits: np.ndarray) -> int:
    return int((logits > -np.inf).sum())


@given(st.integers(0, 10_000), st.sampled_from([1.0, 2.5, 4.0]), st.sampled_from([2, 20, 100, 500]))
def test_mirostat_leaves_k_tokens(seed, tau, m):
    logits = logits_of(seed)
    k = naive.mirostat_k(logits, 2 * tau, m)
    found = SamplerChain(f"mirostat(tau={tau},m={m})").process(logits)
    order = naive.likeliest_first(logits)
    assert np.array_equal(found, naive.kept(logits, order[:k]))


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5, 2.5, 4.0]))
def test_mirostat_v2_leaves_what_surprises_little(seed, tau):
    logits = logits_of(seed)
    surprise = -np.log2(naive.softmax(logits))
    ids = np.flatnonzero(surprise <= 2 * tau) if surprise.min() <= 2 * tau else [int(logits.argmax())]
    assert np.array_equal(SamplerChain(f"mirostat_v2(tau={tau})").process(logits), naive.kept(logits, ids))


@BOTH
def test_mu_follows_the_surprise_of_what_was_drawn(name):
    tau, eta, mu = 3.0, 0.2, 6.0
    chain, ids = SamplerChain(f"{name}({tau},{eta})", seed=3), []
    for step in range(30):
        left = SamplerChain(f"{name}({mu / 2!r},{eta})").process(logits_of(step))  # of a chain that begins with this μ
        ids.append(chain.sample(logits_of(step), ids))
        assert mu_of(chain) == pytest.approx(mu)
        assert left[ids[-1]] > -math.inf
        mu -= eta * (-math.log2(naive.softmax(left)[ids[-1]]) - tau)


@BOTH
@pytest.mark.parametrize("tau", [2.0, 4.0])
def test_the_surprise_of_a_long_text_is_near_its_target(name, tau):
    chain, ids, surprises = SamplerChain(f"{name}({tau},0.1)", seed=1), [], []
    for step in range(600):
        logits = np.random.default_rng(step).normal(0, 3, 500).astype(np.float32)
        left = chain.process(logits, ids)
        ids.append(chain.sample(logits, ids))
        surprises.append(-math.log2(naive.softmax(left)[ids[-1]]))
    assert abs(np.mean(surprises[100:]) - tau) < 0.1


@BOTH
def test_a_rewound_text_finds_its_mu_again(name):
    chain, ids = SamplerChain(f"{name}(3,0.5)", seed=2), [5, 6]
    seen = []
    for step in range(8):
        seen.append(chain.process(logits_of(step), ids))
        ids.append(chain.sample(logits_of(step), ids))
    for step in (3, 3, 1, 0):
        assert np.array_equal(chain.process(logits_of(step), ids[: 2 + step]), seen[step])
    for step in range(1, 8):  # and once more along the same text
        assert np.array_equal(chain.process(logits_of(step), ids[: 2 + step]), seen[step])


@BOTH
def test_tokens_that_another_chose(name):
    """One that it would have removed, or several at once: μ stays as it is."""
    chain = SamplerChain(f"{name}(1,0.5)")
    left = chain.process(logits_of(0), [9])
    removed = int(np.flatnonzero(left == -np.inf)[0])
    chain.process(logits_of(1), [9, removed])
    assert mu_of(chain) == 2
    chain.process(logits_of(2), [9, removed, 1, 2, 3])
    assert mu_of(chain) == 2


@BOTH
def test_every_completion_has_a_mu_of_its_own(name):
    """Three together give what each gives alone, and chains that are forked part ways."""
    pipe = random_pipeline(scale=3.0)
    together = pipe.generate("春", sampler=f"{name}(2,0.5)", seed=4, n=3, max_tokens=12, ignore_eos=True)
    assert len({tuple(completion.token_ids) for completion in together}) == 3
    alone = pipe.generate("春", sampler=f"{name}(2,0.5)", seed=4, max_tokens=12, ignore_eos=True)
    assert alone.token_ids == together[0].token_ids


@BOTH
def test_forked_chains_part_ways(name):
    chain = SamplerChain(f"{name}(3,0.5)")
    p = naive.softmax(chain.process(logits_of(0)))
    fork, (first, second) = chain.fork(), np.argsort(-p)[[0, 1]]
    for forked, drawn in ((chain, first), (fork, second)):
        forked.process(logits_of(1), [drawn])
        assert mu_of(forked) == pytest.approx(6 - 0.5 * (-math.log2(p[drawn]) - 3))


@BOTH
def test_awkward_distributions(name):
    one_left = np.full(50, -np.inf, np.float32)
    one_left[7] = 3
    assert np.array_equal(SamplerChain(name).process(one_left), one_left)
    assert SamplerChain(name).process([2.0]).tolist() == [2]
    assert n_left(SamplerChain(name).process(np.zeros(50))) >= 1
    assert n_left(SamplerChain(name).process([3e38, -3e38, 0])) == 1
    two = SamplerChain(name).process([0.0, 0.0])
    assert n_left(two) >= 1


@BOTH
def test_it_stands_last(name):
    with pytest.raises(RingletError, match=f"sampler {name} draws the token itself: put it last"):
        SamplerChain(f"{name},top_k=40")
    with pytest.raises(RingletError, match="m is 1: a whole number, 2 or more"):
        SamplerChain("mirostat(m=1)")
