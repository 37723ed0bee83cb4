"""Drawing in compiled code, beside the samplers' own: the same token for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet import Pipeline, SamplerChain
from ringlet.core.errors import RingletError
from ringlet.core.likeliest import Likeliest, Logits
from ringlet.plugins.backends.cpu.drawing import Drawer
from ringlet.plugins.backends.cpu.machine_code import machine_code

USUAL = (
    "repetition_penalty=1.1,frequency_penalty=0.2,presence_penalty=0.2,top_k=40,top_p=0.95,min_p=0.05,temperature=0.8"
)
CHAINS = (
    USUAL,
    "greedy",
    "top_k=40,top_p=0.95,temperature=0.8",
    "top_k=1",
    "top_k=256,temperature=3",
    "top_k=40,temperature=1e-30,top_p=0.5",
    "top_k=40,temperature=0,min_p=0.9",
    "top_k=40,min_p=0,top_p=1,top_k=0",
    "top_k=40,top_p=0,greedy",
    "top_k=40,top_k=3,temperature=2",
    'repetition_penalty(0.5,semantics="llama.cpp"),top_k=5',
    'frequency_penalty(-1.5,window=3,semantics="transformers"),top_k=30,temperature=1.5',
    "presence_penalty=100,repetition_penalty(1.3,window=0),top_k=12",
    "repetition_penalty=1e-30,top_k=4",
    "repetition_penalty=3,presence_penalty(2,window=9),greedy",
)
NOT_PLANNED = (
    "top_p=0.9",
    "temperature=0.8,top_k=40",
    "top_k=40,repetition_penalty=2",
    "top_k=257",
    "top_k=40,typical=0.9",
)


@pytest.fixture(scope="module")
def drawer() -> Drawer:
    return Drawer(machine_code(["draw"])["draw"])


class Counting:
    """A drawer that counts what it told."""

    def __init__(self, drawer: Drawer) -> None:
        self.drawer, self.told = drawer, 0

    def __call__(self, *arguments: object) -> int:
        found = self.drawer.draw(*arguments)
        self.told += found >= 0
        return found


def listed(logits: np.ndarray, draw: object, count: int = 256) -> Logits:
    order = np.lexsort((-logits, ~np.isnan(logits)))[:count].astype(np.int32)
    return Likeliest(order[None], logits[order][None], len(logits), lambda row: logits, draw).rows()[0]


def some_logits(rng: np.random.Generator, n: int) -> np.ndarray:
    logits = rng.normal(0, rng.choice([0.5, 3, 30]), n).astype(np.float32)
    kind = rng.integers(4)
    if kind == 0:
        logits = np.round(logits)  # ties
    if kind == 1:
        logits[rng.random(n) < 0.9] = -np.inf
        logits[rng.integers(n)] = 1
    return logits


@pytest.mark.parametrize("spec", CHAINS)
def test_the_token_is_that_of_the_samplers_own_code(drawer: Drawer, spec: str) -> None:
    rng, told = np.random.default_rng(0), 0
    for trial in range(150):
        n = int(rng.choice([1, 2, 40, 300, 5000]))
        logits = some_logits(rng, n)
        likely = np.argsort(-logits)[: max(1, n // 3)]
        length, prompt = int(rng.choice([0, 1, 7, 90, 700])), int(rng.integers(0, 9))
        text = np.where(rng.random(length) < 0.5, rng.choice(likely, length), rng.integers(-2, n + 3, length))
        removed = (
            rng.choice(n, rng.integers(0, n), replace=False) if trial % 3 == 0 and np.isfinite(logits).all() else []
        )
        compiled, own = SamplerChain(spec, seed=trial), SamplerChain(spec, seed=trial)
        draw = Counting(drawer)
        fast = listed(logits, draw, min(n, int(rng.choice([64, 256])))).without(removed)
        slow = Logits.of_all(logits).without(removed)
        for chain in (compiled, own):
            chain.sample(np.zeros(5, np.float32), text[:prompt])  # so much of it is the prompt
        for _ in range(3):
            assert compiled.sample(fast, text) == own.sample(slow, text), (trial, n, length)
        told += draw.told
    assert told > 150  # most are drawn in compiled code


def test_other_chains_are_left_to_their_samplers(drawer: Drawer) -> None:
    draw = Counting(drawer)
    logits = np.random.default_rng(0).normal(0, 3, 1000).astype(np.float32)
    for spec in NOT_PLANNED:
        assert SamplerChain(spec, seed=1).sample(listed(logits, draw)) == SamplerChain(spec, seed=1).sample(logits)
    assert draw.told == 0


def test_what_the_list_does_not_tell_is_found_without_it(drawer: Drawer) -> None:
    """All that are listed become unlikely, so that others are drawn."""
    draw = Counting(drawer)
    logits = np.random.default_rng(0).normal(0, 1, 1000).astype(np.float32)
    fast = listed(logits, draw, 64)
    spec = 'presence_penalty(50,semantics="transformers"),top_k=40'
    for seed in range(20):
        drawn = SamplerChain(spec, seed=seed).sample(fast, fast.ids)
        assert drawn == SamplerChain(spec, seed=seed).sample(logits, fast.ids)
        assert drawn not in fast.ids
    assert draw.told == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_refused(drawer: Drawer, value: float) -> None:
    logits = np.zeros(500, np.float32)
    logits[77] = value
    with pytest.raises(RingletError, match="the model or its file is broken"):
        SamplerChain(USUAL, seed=1).sample(listed(logits, drawer.draw))
    with pytest.raises(RingletError, match="every token is removed"):
        SamplerChain(USUAL, seed=1).sample(listed(np.full(500, -np.inf, np.float32), drawer.draw))


def test_each_token_comes_as_often_as_its_probability_says(drawer: Drawer) -> None:
    logits = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))
    chain, lent = SamplerChain("top_k=4", seed=3), listed(logits, drawer.draw)
    counts = np.bincount([chain.sample(lent) for _ in range(4000)], minlength=4)
    expected = 4000 * np.exp(logits)
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # chi-square, 3 degrees of freedom, p = 0.001


def test_a_generation_is_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipeline.from_pretrained(backend="cpu")

    def texts() -> list[list[int]]:
        return [pipe.generate("春眠不", sampler=spec, seed=7, max_tokens=40).token_ids for spec in (USUAL, "greedy")]

    compiled = texts()
    monkeypatch.setattr(Logits, "can_draw", False)
    assert texts() == compiled
