"""Penalties, DRY and no_repeat_ngram against their formulas written plainly, token after token."""

from __future__ import annotations

import naive_samplers as naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_pipeline import Bytes

from ringlet import RingletError, SamplerChain
from ringlet.tokenization.tokenizer import Tokenizer

D_VOCAB = 6
some_logits = st.lists(st.floats(-9, 9, width=32), min_size=D_VOCAB, max_size=D_VOCAB).map(
    lambda values: np.array(values, np.float32)
)
some_texts = st.lists(st.integers(0, D_VOCAB - 1), max_size=40)
PENALTIES = {"repetition_penalty": 1.3, "frequency_penalty": 0.25, "presence_penalty": -0.5}


def process(spec: str, logits, prompt=(), completion=(), tokenizer=None) -> np.ndarray:
    """After a prompt and a completion; the chain counts as prompt what it is given first."""
    chain = SamplerChain(spec, tokenizer=tokenizer)
    chain.process(logits, prompt)
    return chain.process(logits, [*prompt, *completion])


@pytest.mark.parametrize("name", PENALTIES)
@given(some_logits, some_texts, some_texts, st.sampled_from([None, 0, 1, 5, 1000]))
def test_penalties_count_the_tokens_that_their_semantics_say(name, logits, prompt, completion, window):
    naive_penalty = getattr(naive, name)
    value = PENALTIES[name]
    text = prompt + completion
    latest = slice(None) if window is None else slice(max(0, len(text) - window), None)
    counting = {
        "transformers": text[latest],
        "llama.cpp": text[max(0, len(text) - 64) :] if window is None else text[latest],
        "openai": completion[latest.start - len(prompt) if latest.start and latest.start > len(prompt) else 0 :],
    }
    for semantics, tokens in counting.items():
        spec = f"{name}({value},window={'none' if window is None else window},semantics={semantics})"
        found = process(spec, logits, prompt, completion)
        assert np.allclose(found, naive_penalty(logits, tokens, value), rtol=1e-6, atol=1e-6), semantics


def test_the_window_of_llama_cpp_is_64_tokens():
    logits, text = np.zeros(3, np.float32), [0, *[1] * 63, 2]
    found = process("presence_penalty(1,semantics=llama.cpp)", logits, text)
    assert found.tolist() == [0, -1, -1]


@given(some_logits, some_texts)
def test_penalties_in_a_row_add_up(logits, text):
    """The repetition penalty first, as llama.cpp's one sampler has all three."""
    chain = ",".join(f"{name}({value},semantics=transformers)" for name, value in PENALTIES.items())
    expected = logits
    for name, value in PENALTIES.items():
        expected = getattr(naive, name)(expected, text, value)
    assert np.allclose(process(chain, logits, text), expected, rtol=1e-5, atol=1e-5)


def test_a_penalty_s_defaults():
    """Repetition counts the prompt, the other two do not."""
    logits = np.full(2, 2.2, np.float32)
    assert process("repetition_penalty", logits, [0], []).tolist() == pytest.approx([2, 2.2])
    for name in ("frequency_penalty", "presence_penalty"):
        assert process(name, logits, [0], []).tolist() == pytest.approx([2.2, 2.2])
        assert process(name, logits, [0], [1]).tolist() == pytest.approx([2.2, 1.7])


@given(some_logits, some_texts, st.integers(1, 5), st.sampled_from([None, 3, 10, 100]))
def test_no_repeat_ngram_forbids_what_would_repeat(logits, text, n, window):
    expected = naive.no_repeat_ngram(logits, text if window is None else text[max(0, len(text) - window) :], n)
    spec = f"no_repeat_ngram({n},window={'none' if window is None else window})"
    if (expected == -np.inf).all():
        with pytest.raises(RingletError, match="sampler no_repeat_ngram: removed every token"):
            process(spec, logits, text)
    else:
        assert process(spec, logits, text).tolist() == expected.tolist()


@given(
    some_logits,
    st.lists(st.integers(0, 2), max_size=60),
    st.sampled_from([(0.8, 1.75, 2), (1.0, 1.0, 1), (0.3, 1.2, 3), (2.0, 3.0, 1)]),
    st.sampled_from([None, 2, 7, 30]),
)
def test_dry_takes_more_the_longer_the_repetition(logits, text, arguments, window):
    latest = text if window is None else text[max(0, len(text) - window) :]
    multiplier, base, allowed_length = arguments
    found = process(f"dry({multiplier},{base},{allowed_length},{'none' if window is None else window})", logits, text)
    expected = naive.dry(logits, latest, *arguments)
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)


@given(some_logits, st.lists(st.sampled_from(b"ab:"), max_size=40))
def test_dry_does_not_look_back_past_a_breaker(logits, text):
    tokenizer, text = Tokenizer(Bytes()), [token - ord("a") if token != ord(":") else 4 for token in text]
    shifted = Shifted(tokenizer)
    expected = naive.dry(logits, text, 0.8, 1.75, 2, breakers=[4])
    assert np.allclose(process('dry(breakers=":")', logits, text, tokenizer=shifted), expected, rtol=1e-5, atol=1e-5)
    expected = naive.dry(logits, text, 0.8, 1.75, 2)
    assert np.allclose(process("dry(breakers=none)", logits, text, tokenizer=shifted), expected, rtol=1e-5, atol=1e-5)


class Shifted:
    """Tokens 0, 1 and 4 are a, b and a colon."""

    eos_ids = ()

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def decode(self, ids, skip_special=True) -> str:
        return self._tokenizer.decode([ord("ab??:?"[token_id]) for token_id in ids])


def test_a_breaker_may_take_several_tokens():
    """The matching tokens reach back into "->" and stop after it, wherever it begins."""
    tokenizer = Tokenizer(Bytes())
    text = list(b"x->abcd x->abc")
    logits = np.zeros(262, np.float32)
    with_breaker = process('dry(1,2,2,breakers="->")', logits, text, tokenizer=tokenizer)
    without = process("dry(1,2,2,breakers=none)", logits, text, tokenizer=tokenizer)
    assert with_breaker[ord("d")] == -2  # abc matches: 2 ** (3 - 2)
    assert without[ord("d")] == -(2.0**4)  # and x->
    assert np.count_nonzero(with_breaker) == np.count_nonzero(without) == 1


def test_a_character_of_several_bytes_may_break():
    tokenizer = Tokenizer(Bytes())
    text = list("春，风吹。春，风".encode())
    logits = np.zeros(262, np.float32)
    chains = {
        breakers: process(f"dry(1,1,1,breakers={breakers})", logits, text, tokenizer=tokenizer)
        for breakers in ('"，"', "none")
    }
    following = "吹".encode()[0]
    assert chains["none"][following] == chains['"，"'][following] == -1
    lengths = process('dry(1,2,1,breakers="，")', logits, text, tokenizer=tokenizer)[following]
    assert lengths == -(2.0**2)  # the three bytes of 风, and none before the comma


def test_dry_without_a_tokenizer_has_no_breakers():
    logits, text = np.zeros(262, np.float32), list(b"ab:cd ab:c")
    assert process("dry", logits, text).tolist() == process("dry(breakers=none)", logits, text).tolist()


def test_dry_s_penalty_stays_a_number():
    for base in (1.0001, 1.75, 1000):
        found = process(f"dry(multiplier=0.8,base={base})", [3e38, 1.0, -3e38], [0, 1, 2] * 400)
        assert np.isfinite(found[[1, 2]]).all()
        assert not np.isnan(found).any()
    assert process("dry", np.zeros(3, np.float32), [0, 1, 2] * 400)[0] < -1e30


@pytest.mark.parametrize(
    "spec", ["repetition_penalty=2", "frequency_penalty", "presence_penalty", "dry", "no_repeat_ngram"]
)
def test_ids_outside_the_vocabulary_do_not_matter(spec):
    logits, text = [1.0, 2.0, 3.0], [0, 1, 0, 1, 0]
    assert process(spec, logits, [-5, 7, *text, 9, 7, 9, 7]).shape == (3,)
    assert process(spec, logits, [7, *text]).tolist() == process(spec, logits, text).tolist()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("repetition_penalty=0", "penalty is 0.0: a number above 0 is needed"),
        ("repetition_penalty=-1", "a number above 0 is needed"),
        ("frequency_penalty=101", "a number from -100 to 100"),
        ("presence_penalty(semantics=vllm)", "semantics is 'vllm': transformers, llama.cpp or openai is needed"),
        ("repetition_penalty(window=-1)", "a whole number, 0 or more, or none"),
        ("dry(base=0.9)", "base is 0.9: a number from 1 to 1000"),
        ("dry(allowed_length=0)", "a whole number, 1 or more"),
        ("no_repeat_ngram=0", "n is 0: a whole number, 1 or more"),
    ],
)
def test_ranges(spec, message):
    with pytest.raises(RingletError, match=message):
        SamplerChain(spec)
