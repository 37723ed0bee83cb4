"""Log-probabilities of drawn and likeliest tokens, against a log-softmax written plainly."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_search import log_softmax
from tiny_pipeline import D_VOCAB, EOS, HOLE, LAST, Told, byte_model, pipeline_of, random_pipeline, told_pipeline

from ringlet import Completion
from ringlet.core.generation import logprobs as logprobs_module
from ringlet.core.generation.logprobs import likeliest, log_normaliser

WANTED = {"max_tokens": 9, "seed": 3, "ignore_eos": True}
STRATEGIES = ["sample", "beam_search(beams=3)", "contrastive_search(top_k=3)"]


def expected_rows(prompt: list[int], found: Completion) -> np.ndarray:
    """float64 (tokens, d_vocab): log-softmax of the raw logits, teacher forced."""
    logits = random_pipeline(chunk=64).logits([*prompt, *found.token_ids])
    return np.array([log_softmax(row) for row in logits[len(prompt) - 1 : -1]])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_they_are_those_of_the_raw_logits(strategy, count):
    """Whatever the chain and the strategy make of them."""
    sampler = {"sample": "top_k=5,temperature=0.5", "beam_search(beams=3)": "top_k=9"}.get(strategy, "temperature=2")
    pipe = random_pipeline()
    found = pipe.generate("hello", strategy=strategy, sampler=sampler, logprobs=count, **WANTED)
    rows = expected_rows(list(b"hello"), found)
    assert [one.token_id for one in found.logprobs] == found.token_ids
    for one, row in zip(found.logprobs, rows, strict=True):
        assert one.logprob == pytest.approx(row[one.token_id], abs=1e-5)
        best = np.argsort(-row, kind="stable")[:count]
        assert [other.token_id for other in one.top] == best.tolist()
        assert [other.logprob for other in one.top] == pytest.approx(row[best], abs=1e-5)
    assert [one.text for one in found.logprobs] == [pipe.tokenizer.piece(i) for i in found.token_ids]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_chunks_of_a_stream_carry_them(strategy):
    chunks = list(random_pipeline().stream("hello", strategy=strategy, logprobs=2, **WANTED))
    assert all(len(chunk.logprobs) == len(chunk.token_ids) for chunk in chunks)
    whole = random_pipeline().generate("hello", strategy=strategy, logprobs=2, **WANTED)
    assert Completion.of_chunks(chunks).logprobs == whole.logprobs


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_they_cost_nothing_unless_asked_for(strategy, monkeypatch):
    monkeypatch.setattr(logprobs_module.LogprobsOf, "__init__", None)
    found = random_pipeline().generate("hello", strategy=strategy, **WANTED)
    assert found.logprobs is None
    assert "logprobs" not in found.to_dict()
    assert all(chunk.logprobs is None for chunk in random_pipeline().stream("hello", strategy=strategy, **WANTED))


def test_several_completions_and_prompts():
    found = random_pipeline().generate(["hello", "you"], n=2, logprobs=1, **WANTED)
    for prompt, each in zip(["hello", "hello", "you", "you"], found, strict=True):
        rows = expected_rows(list(prompt.encode()), each)
        drawn = [row[i] for row, i in zip(rows, each.token_ids, strict=True)]
        assert [one.logprob for one in each.logprobs] == pytest.approx(drawn, abs=1e-5)


def test_all_tokens_are_no_more_than_there_are():
    found = random_pipeline().generate("hello", logprobs=10_000, **WANTED)
    for one in found.logprobs:
        assert sorted(other.token_id for other in one.top) == list(range(D_VOCAB))
        assert sum(np.exp(other.logprob) for other in one.top) == pytest.approx(1, abs=1e-6)
        texts = {other.token_id: other.text for other in one.top}
        assert (texts[HOLE], texts[EOS], texts[LAST], texts[ord("a")]) == ("", "<eos>", "<last>", "a")


def test_an_end_token_and_a_stop_text_are_told():
    found = told_pipeline("go", "abc").generate("go", sampler="greedy", logprobs=1)
    assert [one.text for one in found.logprobs] == ["a", "b", "c", "<eos>"]
    assert all(abs(one.logprob) < 1e-6 for one in found.logprobs)
    found = told_pipeline("go", "abc").generate("go", sampler="greedy", logprobs=0, stop="b")
    assert [one.text for one in found.logprobs] == ["a", "b"]
    assert told_pipeline("go", "a").generate("go", max_tokens=0, logprobs=3).logprobs == []


def test_json_has_them_and_no_infinity():
    class Sure(Told):
        """−∞ for all tokens but the one."""

        def forward(self, batch):
            logits = super().forward(batch)
            logits[logits == 0] = -np.inf
            return logits

    found = pipeline_of(Sure(*byte_model(), list(b"goa"))).generate("go", sampler="greedy", logprobs=3)
    assert [[other.text for other in one.top] for one in found.logprobs] == [["a"], ["<eos>"]]
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["logprobs"] == [
        {"token_id": 97, "text": "a", "logprob": 0.0, "top": [{"token_id": 97, "text": "a", "logprob": 0.0}]},
        {"token_id": EOS, "text": "<eos>", "logprob": 0.0, "top": [{"token_id": EOS, "text": "<eos>", "logprob": 0.0}]},
    ]
    brought_back = found.logprobs[0].__class__(5, "x", -np.inf, [])
    shown = Completion("x", [5], "stop", found.usage, {}, [brought_back]).to_dict()
    assert shown["logprobs"][0]["logprob"] is None


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([-np.inf, -3.0, 0.0, 0.5, 0.5, 88.0, -1e30, 3e38]), min_size=1, max_size=70),
    st.integers(0, 80),
)
def test_the_likeliest_are_those_of_a_full_sort(values, count):
    logits = np.array(values, np.float32)
    order = [i for i in np.argsort(-logits, kind="stable") if logits[i] > -np.inf]
    assert likeliest(logits, count).tolist() == order[:count]


@pytest.mark.parametrize("d_vocab", [1, 7, 1000, 262_144])
def test_the_normaliser_of_many_tokens_and_of_large_numbers(d_vocab):
    logits = np.random.default_rng(0).standard_normal(d_vocab).astype(np.float32) * 20
    for shift in (-1e4, 0, 1e4):
        moved = logits + np.float32(shift)
        exact = np.logaddexp.reduce(moved.astype(np.float64))
        assert log_normaliser(moved) == pytest.approx(exact, rel=1e-12, abs=1e-5)
    assert likeliest(logits, 20).tolist() == np.argsort(-logits, kind="stable")[:20].tolist()
