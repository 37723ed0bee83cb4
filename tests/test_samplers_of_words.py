"""logit_bias, bad_words, allowed_words and min_new_tokens: token ids and texts, and what they allow."""

from __future__ import annotations

import math

import naive_samplers as naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_pipeline import D_VOCAB as BYTES_VOCAB
from tiny_pipeline import EOS, Bytes, told_pipeline
from tiny_tokenizers import STYLES, train

from ringlet import RingletError, SamplerChain
from ringlet.core.token_texts import spellings, split_texts
from ringlet.tokenization.tokenizer import Tokenizer

D_VOCAB = 5
BYTES = Tokenizer(Bytes(), eos_ids=[EOS])
some_logits = st.lists(st.floats(-9, 9, width=32), min_size=D_VOCAB, max_size=D_VOCAB).map(
    lambda values: np.array(values, np.float32)
)
some_ids = st.lists(st.integers(0, D_VOCAB - 1), min_size=1, max_size=3)
some_texts = st.lists(st.integers(0, D_VOCAB - 1), max_size=6)


def process(spec: str, logits, prompt=(), completion=(), tokenizer=None) -> np.ndarray:
    chain = SamplerChain(spec, tokenizer=tokenizer)
    chain._prompt_length = len(prompt)
    return chain.process(logits, [*prompt, *completion])


def left(*arguments, **named) -> set[int]:
    return set(np.flatnonzero(process(*arguments, **named) > -np.inf).tolist())


def written(sequences) -> str:
    return "|".join(" ".join(map(str, ids)) for ids in sequences)


# --- what a user writes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("foo", ["foo"]),
        ("foo|bar", ["foo", "bar"]),
        ("a||b|c", ["a|b", "c"]),
        ("||", ["|"]),
        ("|||a", ["|", "a"]),
        ("|a|", ["a"]),
        ("", []),
        (" a |\n", [" a ", "\n"]),
    ],
)
def test_texts_with_bars_between(text, expected):
    assert split_texts(text) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("logit_bias", "no bias is given: write logit_bias"),
        ("logit_bias(bias=12)", "'12' has no bias: write it after a colon"),
        ('logit_bias("12:+2.5 345")', "'345' has no bias"),
        ('logit_bias(":2")', "':2' has no bias"),
        ("logit_bias(a:1)", "'a' is no list of token ids"),
        ("logit_bias(-3:1)", "'-3' is no list of token ids"),
        ("logit_bias(3:x)", "the bias 'x' is no number"),
        ("logit_bias(3:nan)", "the bias 'nan' is no number"),
        ("logit_bias(3:inf)", "the bias 'inf' is no number up to 1e"),
        ("logit_bias(3:1e7)", "no number up to"),
        ("bad_words", "no text is given: write bad_words"),
        ('bad_words("|")', "no text is given"),
        ("bad_words(ids=1.5)", "'1.5' is no list of token ids"),
        ('bad_words(ids="1 2||3")', "'' is no list of token ids"),
        ("allowed_words", "no text is given: write allowed_words"),
        ("min_new_tokens", "sampler min_new_tokens needs n"),
        ("min_new_tokens=-1", "a whole number, 0 or more"),
    ],
)
def test_what_cannot_be_read_is_told_before_a_token_is_drawn(spec, message):
    with pytest.raises(RingletError, match=message) as raised:
        SamplerChain(spec)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("logit_bias(5:1)", "the token id 5 is outside the vocabulary of 5"),
        ("bad_words(ids=99999999999)", "the token id 99999999999 is outside"),
        ("allowed_words(ids=7)", "the token id 7 is outside"),
        ("bad_words=foo", "the text 'foo' needs a tokenizer"),
        ("allowed_words=foo", "needs a tokenizer"),
        ("logit_bias(words=foo:1)", "needs a tokenizer"),
    ],
)
def test_what_does_not_fit_the_model_is_told(spec, message):
    with pytest.raises(RingletError, match=f"^sampler {spec.partition('(')[0].partition('=')[0]}: .*{message}"):
        process(spec, np.zeros(5))


# --- biases ----------------------------------------------------------------------------------------------------------


@given(some_logits, some_texts, st.lists(st.tuples(some_ids, st.sampled_from([-2.5, 1.0, 4.0])), min_size=1))
def test_a_bias_is_added(logits, text, biases):
    ones = [(ids[-1:], bias) for ids, bias in biases]
    spec = " ".join(f"{token_id}:{bias:+}" for (token_id,), bias in ones)
    assert np.allclose(process(f'logit_bias("{spec}")', logits, text), naive.sequence_bias(logits, text, ones))


def test_a_bias_of_minus_infinity_removes_and_others_meet():
    assert process('logit_bias("0:-inf 1:+2.5 1:1")', [0, 0, 0]).tolist() == [-math.inf, 3.5, 0]
    with pytest.raises(RingletError, match="sampler logit_bias: removed every token"):
        process('logit_bias("0:-inf 1:-inf")', [0, 0])


def test_a_removed_token_stays_removed():
    for spec in ("logit_bias(0:9)", "repetition_penalty=1.5", "frequency_penalty=-3", "dry"):
        assert process(spec, [-math.inf, 1, 2], [0, 1, 0, 1, 0])[0] == -math.inf


def test_a_bias_on_a_text_falls_on_its_last_token():
    logits = np.zeros(BYTES_VOCAB, np.float32)
    spec = 'logit_bias(words="ab:-2|c:+1")'
    assert np.flatnonzero(process(spec, logits, list(b"x"), tokenizer=BYTES)).tolist() == [ord("c")]
    found = process(spec, logits, list(b"xa"), tokenizer=BYTES)
    assert (found[ord("b")], found[ord("c")]) == (-2, 1)


@given(some_logits, some_texts, st.lists(some_ids, min_size=1, max_size=4))
def test_bad_words_remove_the_last_token_where_the_others_have_come(logits, text, words):
    expected = naive.sequence_bias(logits, text, [(ids, -math.inf) for ids in words])
    spec = f'bad_words(ids="{written(words)}")'
    if (expected == -math.inf).all():
        with pytest.raises(RingletError, match="sampler bad_words: removed every token"):
            process(spec, logits, text)
    else:
        assert np.array_equal(process(spec, logits, text), expected.astype(np.float32))


# --- allowed words ---------------------------------------------------------------------------------------------------


@given(some_logits, some_texts, st.lists(some_ids, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=3))
def test_allowed_words_make_the_completion(logits, prompt, words, choices):
    completion = [token_id for choice in choices for token_id in words[choice % len(words)]]
    following, may_end = naive.rows_of_words(words, completion)
    ends = Ends([D_VOCAB - 1])
    expected = following | ({D_VOCAB - 1} if may_end and completion else set())
    assert left(f'allowed_words(ids="{written(words)}")', logits, prompt, completion, ends) == expected


class Ends:
    """A tokenizer that knows end tokens alone."""

    def __init__(self, ids) -> None:
        self.eos_ids = frozenset(ids)


def test_after_what_is_no_allowed_word_a_new_one_begins():
    assert left('allowed_words(ids="0 1|2")', np.zeros(5), [], [0, 3]) == {0, 2}


def test_allowed_words_of_which_none_is_left():
    with pytest.raises(RingletError, match="sampler allowed_words: removed every token"):
        process('bad_words(ids="0"),allowed_words(ids="0")', np.zeros(3))


def test_allowed_words_in_a_generation():
    """The model wants to say something else."""
    pipe = told_pipeline("Is it?", "Perhaps so")
    for seed in range(5):
        text = pipe.generate("Is it?", sampler='allowed_words("yes|no")', seed=seed, max_tokens=12).text
        assert text.replace("yes", "").replace("no", "").strip() in ("", "y", "ye", "n")


# --- spellings -------------------------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    """A tokenizer of one of the styles."""

    def make(style: str) -> Tokenizer:
        train(style).save(str(tmp_path / "tokenizer.json"))
        return Tokenizer.from_directory(tmp_path)

    return make


@pytest.mark.parametrize("style", STYLES)
def test_every_spelling_gives_the_text(style, trained):
    tokenizer = trained(style)
    for text in ("king", "ring of", "爱", "123"):
        found = spellings(text, tokenizer)
        assert tuple(tokenizer.encode(text, add_special=False)) in found
        for ids in found:
            assert tokenizer.decode(ids).strip() == tokenizer.decode(tokenizer.encode(text, add_special=False)).strip()


def test_a_word_is_known_at_the_beginning_after_a_blank_and_inside(trained):
    """A SentencePiece vocabulary writes a blank before the first word."""
    tokenizer = trained("byte_fallback")
    pieces = {tuple(tokenizer.piece(i) for i in ids) for ids in spellings("king", tokenizer)}
    assert any(first.startswith(("▁", " ")) for first, *_ in pieces)
    assert any(not first.startswith(("▁", " ")) for first, *_ in pieces)


@settings(max_examples=25)
@given(st.integers(0, 1000))
def test_a_bad_word_does_not_come(seed):
    """Bytes have one spelling each, so what is forbidden cannot come at all."""
    logits = np.full(BYTES_VOCAB, -20, np.float32)
    logits[list(b"ab ")] = 0
    chain, ids = SamplerChain('bad_words="ab a|bb"', seed=seed, tokenizer=BYTES), list(b"a")
    for _ in range(60):
        ids.append(chain.sample(logits, ids))
    text = bytes(ids).decode()
    assert "ab a" not in text
    assert "bb" not in text


# --- an end that waits -----------------------------------------------------------------------------------------------


def test_no_end_token_comes_before_n_are_drawn():
    pipe = told_pipeline("x", "")  # ends at once
    assert pipe.generate("x", sampler="greedy").usage.completion_tokens == 1
    for n in (0, 1, 3):
        completion = pipe.generate("x", sampler=f"min_new_tokens={n},greedy", max_tokens=9)
        assert completion.usage.completion_tokens == n + 1
        assert EOS not in completion.token_ids[:-1]


def test_which_tokens_end_is_the_tokenizer_s_to_say():
    assert left("min_new_tokens=2", np.zeros(4), [0], [1], Ends([1, 3, 99])) == {0, 2}
    assert left("min_new_tokens=2", np.zeros(4), [0], [1, 1], Ends([1, 3, 99])) == {0, 1, 2, 3}
    assert left("min_new_tokens=2", np.zeros(4)) == {0, 1, 2, 3}
    with pytest.raises(RingletError, match="sampler min_new_tokens: removed every token"):
        process("min_new_tokens=1", [-math.inf, 3], tokenizer=Ends([1]))
