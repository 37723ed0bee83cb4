"""The samplers beside transformers' processors and llama.cpp's samplers, both run live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naive_samplers import softmax

from ringlet import SamplerChain, Tokenizer

pytestmark = pytest.mark.reference
SEEDS = pytest.mark.parametrize("seed", range(5))
LATEST_64 = "semantics=llama.cpp"
TEXT = "Anna: hello there, how are you?\nBob: hello there, how are you?\nAnna: hello there, how"


def some_logits(seed: int, d_vocab: int = 1000) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, d_vocab).astype(np.float32)


def some_text(seed: int, length: int = 150, kinds: int = 30) -> list[int]:
    return np.random.default_rng(100 + seed).integers(0, kinds, length).tolist()


def assert_same(found: np.ndarray, expected: np.ndarray, rtol: float = 1e-5) -> None:
    assert (np.isneginf(found) == np.isneginf(expected)).all()
    assert np.allclose(softmax(found), softmax(expected), rtol=rtol, atol=1e-12)


# --- transformers ----------------------------------------------------------------------------------------------------


def transformed(processor: str, logits: np.ndarray, text: list[int], *arguments: Any, **named: Any) -> np.ndarray:
    """float32 (d_vocab,): what a processor of transformers makes of the logits."""
    torch = pytest.importorskip("torch")
    made = getattr(pytest.importorskip("transformers"), processor)(*arguments, **named)
    return made(torch.tensor([text], dtype=torch.long), torch.tensor(logits)[None])[0].numpy()


@SEEDS
@pytest.mark.parametrize(
    ("spec", "warper", "arguments"),
    [
        ("top_k=7", "TopKLogitsWarper", {"top_k": 7}),
        ("top_p=0.8", "TopPLogitsWarper", {"top_p": 0.8}),
        ("min_p=0.1", "MinPLogitsWarper", {"min_p": 0.1}),
        ("temperature=0.7", "TemperatureLogitsWarper", {"temperature": 0.7}),
        ("typical=0.7", "TypicalLogitsWarper", {"mass": 0.7}),
        ("typical=0.2", "TypicalLogitsWarper", {"mass": 0.2}),
        ("epsilon=0.003", "EpsilonLogitsWarper", {"epsilon": 0.003}),
        ("epsilon=0.9", "EpsilonLogitsWarper", {"epsilon": 0.9}),
        ("eta=0.02", "EtaLogitsWarper", {"epsilon": 0.02}),
        ("eta=0.00001", "EtaLogitsWarper", {"epsilon": 0.00001}),
        ("repetition_penalty=1.3", "RepetitionPenaltyLogitsProcessor", {"penalty": 1.3}),
        ("repetition_penalty=0.7", "RepetitionPenaltyLogitsProcessor", {"penalty": 0.7}),
        ("no_repeat_ngram=1", "NoRepeatNGramLogitsProcessor", {"ngram_size": 1}),
        ("no_repeat_ngram=2", "NoRepeatNGramLogitsProcessor", {"ngram_size": 2}),
        ("no_repeat_ngram=3", "NoRepeatNGramLogitsProcessor", {"ngram_size": 3}),
    ],
)
def test_as_transformers_does(spec, warper, arguments, seed):
    logits, text = some_logits(seed), some_text(seed)
    assert_same(SamplerChain(spec).process(logits, text), transformed(warper, logits, text, **arguments))


@SEEDS
def test_a_repetition_penalty_of_the_completion_as_in_transformers(seed):
    logits, text = some_logits(seed), some_text(seed)
    chain = SamplerChain("repetition_penalty(1.3,semantics=openai)")
    chain.process(logits, text[:100])
    expected = transformed("RepetitionPenaltyLogitsProcessor", logits, text, penalty=1.3, prompt_ignore_length=100)
    assert_same(chain.process(logits, text), expected)


@SEEDS
def test_biases_and_bad_words_as_in_transformers(seed):
    logits, text = some_logits(seed, 40), some_text(seed, kinds=4)
    words = [[3], [1, 2], [text[-1], 7], [text[-2], text[-1], 9], [*text[-4:], 11], [30, 31, 32]]
    written = "|".join(" ".join(map(str, ids)) for ids in words)
    expected = transformed("NoBadWordsLogitsProcessor", logits, text, words)
    assert_same(SamplerChain(f'bad_words(ids="{written}")').process(logits, text), expected)
    assert np.isneginf(expected)[[3, 7, 9, 11]].all()
    biases = {(3,): 1.5, (8,): -2.25, (39,): float("-inf")}
    spec = " ".join(f"{token_id}:{bias}" for (token_id,), bias in biases.items())
    expected = transformed("SequenceBiasLogitsProcessor", logits, text, biases)
    assert_same(SamplerChain(f'logit_bias("{spec}")').process(logits, text), expected)


@SEEDS
def test_allowed_words_as_transformers_with_a_prefix_function(seed):
    """Words of two tokens each, so the place in a word is the parity of the completion's length."""
    words = {2 * first: [2 * first + 1, 2 * first + 3] for first in range(8)}
    prompt, completion = some_text(seed, 5), [4, 7, 12, 15, 2][: seed + 1]

    def allowed(batch: int, ids: Any) -> list[int]:
        so_far = ids.tolist()[len(prompt) :]
        return words[so_far[-1]] if len(so_far) % 2 else list(words)

    logits = some_logits(seed, 40)
    expected = transformed("PrefixConstrainedLogitsProcessor", logits, prompt + completion, allowed, 1)
    written = "|".join(f"{first} {second}" for first, seconds in words.items() for second in seconds)
    chain = SamplerChain(f'allowed_words(ids="{written}")')
    chain.process(logits, prompt)
    assert_same(chain.process(logits, prompt + completion), expected)


@pytest.mark.parametrize("n_drawn", range(5))
def test_min_new_tokens_as_in_transformers(n_drawn):
    class Ends:
        eos_ids = frozenset([3, 17])

    logits, text = some_logits(0, 40), some_text(0, 10)
    chain = SamplerChain("min_new_tokens=3", tokenizer=Ends())
    chain.process(logits, text)
    text = text + some_text(1, n_drawn)
    expected = transformed("MinNewTokensLengthLogitsProcessor", logits, text, 10, 3, eos_token_id=[3, 17])
    assert_same(chain.process(logits, text), expected)


# --- llama.cpp -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama() -> Any:
    pytest.importorskip("llama_cpp")
    import llama_cpp_samplers

    return llama_cpp_samplers


@SEEDS
@pytest.mark.parametrize(
    ("spec", "sampler", "arguments"),
    [
        ("top_k=7", "top_k", (7,)),
        ("top_p=0.8", "top_p", (0.8, 1)),
        ("min_p=0.1", "min_p", (0.1, 1)),
        ("typical=0.7", "typical", (0.7, 1)),
        ("top_n_sigma=1", "top_n_sigma", (1.0,)),
        ("top_n_sigma=2.5", "top_n_sigma", (2.5,)),
        ("xtc(probability=1,threshold=0.01)", "xtc", (1.0, 0.01, 1, 7)),
        ("xtc(probability=1,threshold=0.1)", "xtc", (1.0, 0.1, 1, 7)),
        ("xtc(probability=0,threshold=0.01)", "xtc", (0.0, 0.01, 1, 7)),
        ("temperature(1,range=0.5)", "temp_ext", (1.0, 0.5, 1.0)),
        ("temperature(0.8,range=1.2,exponent=1.7)", "temp_ext", (0.8, 1.2, 1.7)),
        ("temperature(1.5,range=0.2,exponent=0.5)", "temp_ext", (1.5, 0.2, 0.5)),
    ],
)
def test_as_llama_cpp_does(spec, sampler, arguments, seed, llama):
    logits = some_logits(seed)
    expected, _ = llama.LlamaSampler(sampler, *arguments).apply(logits)
    rtol = 1e-4 if sampler == "temp_ext" else 1e-5  # its entropy is of float32
    assert_same(SamplerChain(spec).process(logits), expected, rtol)


@SEEDS
@pytest.mark.parametrize("window", [1, 7, 64, 1000])
def test_penalties_as_in_llama_cpp(window, seed, llama):
    """Ours in this order are its one sampler."""
    logits, text = some_logits(seed), some_text(seed)
    reference = llama.llama_penalties(len(logits), window, 1.3, 0.2, -0.3)
    reference.accept(text)
    spec = ",".join(
        f"{name}({value},window={window},{LATEST_64})"
        for name, value in (("repetition_penalty", 1.3), ("frequency_penalty", 0.2), ("presence_penalty", -0.3))
    )
    assert_same(SamplerChain(spec).process(logits, text), reference.apply(logits)[0])
    if window == 64:  # which it is when nothing else is said
        assert_same(SamplerChain(spec.replace("window=64,", "")).process(logits, text), reference.apply(logits)[0])


@pytest.fixture(scope="module")
def llama_vocabulary(smollm2_path: Path, llama: Any) -> Iterator[Any]:
    """llama.cpp's own of SmolLM2's tokens."""
    import llama_cpp

    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(smollm2_path).encode(), parameters)
    yield llama_cpp.llama_model_get_vocab(model)
    llama_cpp.llama_model_free(model)


@SEEDS
@pytest.mark.real_model
@pytest.mark.parametrize("arguments", [(0.8, 1.75, 2), (1.5, 1.1, 1), (0.3, 2.0, 4)])
@pytest.mark.parametrize("window", [20, 1000])
def test_dry_as_in_llama_cpp(arguments, window, seed, llama, llama_vocabulary):
    logits, text = some_logits(seed), some_text(seed, 200, kinds=3)
    reference = llama.llama_dry(llama_vocabulary, *arguments, window, [])
    reference.accept(text)
    spec = f"dry({','.join(map(str, arguments))},window={window})"
    found, expected = SamplerChain(spec).process(logits, text), reference.apply(logits)[0]
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert (found != logits).any() or arguments[2] == 4


@pytest.mark.real_model
@pytest.mark.parametrize("breakers", [["\n", ":", '"', "*"], ["there"], [" there, how"], ["\n"], []])
def test_dry_s_breakers_as_in_llama_cpp(breakers, smollm2_path, llama, llama_vocabulary):
    tokenizer = Tokenizer.from_pretrained(smollm2_path)
    written = "|".join(breakers).replace("\n", "\\n").replace('"', '\\"')
    chain = SamplerChain(f'dry(0.8,1.2,1,breakers="{written}")', tokenizer=tokenizer)
    for length in range(2, len(TEXT), 3):
        ids = tokenizer.encode(TEXT[:length])
        logits = some_logits(length, 49_152)
        reference = llama.llama_dry(llama_vocabulary, 0.8, 1.2, 1, 1000, breakers)
        reference.accept(ids)
        found, expected = chain.process(logits, ids), reference.apply(logits)[0]
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-5), TEXT[:length]


@SEEDS
@pytest.mark.parametrize("name", ["mirostat", "mirostat_v2"])
def test_mirostat_as_in_llama_cpp_along_a_text_that_it_draws(name, seed, llama):
    """Its μ follows its own draws, ours reads them from the text: both leave the same tokens at each step."""
    first, last = ((300,), (100,)) if name == "mirostat" else ((), ())
    reference = llama.LlamaSampler(name, *first, seed, 3.0, 0.2, *last)
    chain, ids = SamplerChain(f"{name}(3,0.2)"), []
    for step in range(40):
        logits = np.random.default_rng([seed, step]).normal(0, 2.5, 300).astype(np.float32)
        expected, drawn = reference.apply(logits)
        assert_same(chain.process(logits, ids), expected)
        ids.append(drawn)
        reference.accept([drawn])


def test_logit_bias_as_in_llama_cpp(llama):
    import llama_cpp

    biases = {3: 1.5, 8: -2.25, 39: float("-inf")}
    pairs = (llama_cpp.llama_logit_bias * 3)(*(llama_cpp.llama_logit_bias(*pair) for pair in biases.items()))
    logits = some_logits(1, 40)
    expected, _ = llama.LlamaSampler("logit_bias", 40, 3, pairs).apply(logits)
    assert_same(SamplerChain('logit_bias("3:1.5 8:-2.25 39:-inf")').process(logits), expected)
