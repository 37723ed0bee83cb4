"""Perplexity against its formula, written plainly over whole windows."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_pipeline import random_pipeline

from ringlet import Pipeline, RingletError
from ringlet.core.measurement.perplexity import negative_log_likelihoods, perplexity


def naive(pipe: Pipeline, ids: list[int], context: int, bos: int | None) -> tuple[float, float, int]:
    """llama.cpp's figures: each window begins with bos, and its second half is scored."""
    losses = []
    for start in range(0, len(ids) - context + 1, context):
        window = ids[start : start + context]
        if bos is not None:
            window = [bos, *window[1:]]
        logits = pipe.logits(window).astype(np.float64)
        for at in range(context // 2, context - 1):
            p = np.exp(logits[at] - logits[at].max())
            losses.append(-np.log(p[window[at + 1]] / p.sum()))
    mean = np.mean(losses)
    error = np.sqrt((np.mean(np.square(losses)) - mean**2) / (len(losses) - 1)) * np.exp(mean)
    return float(np.exp(mean)), float(error), len(losses)


@pytest.mark.parametrize(
    ("n_ids", "context", "chunk"), [(64, 16, 16), (79, 16, 3), (40, 33, 8), (35, 7, 64), (8, 4, 2)]
)
def test_the_formula(n_ids, context, chunk):
    text = bytes(np.random.default_rng(n_ids).integers(32, 127, n_ids).tolist()).decode()
    found = perplexity(random_pipeline(chunk=chunk, context=100), text, context)
    value, error, n = naive(random_pipeline(chunk=64), list(text.encode()), context, None)
    assert found.perplexity == pytest.approx(value, rel=1e-5)
    assert found.error == pytest.approx(error, rel=1e-4, abs=1e-9)
    assert (found.tokens_scored, found.windows, found.context) == (n, n_ids // context, context)


def test_a_single_scored_token_has_no_error():
    found = perplexity(random_pipeline(), "four", 4)
    assert (found.tokens_scored, found.error) == (1, 0.0)


def test_windows_of_a_model_whose_texts_begin_with_a_token():
    pipe = Pipeline.from_pretrained(backend="numpy")
    text = "床前明月光，疑是地上霜。举头望明月，低头思故乡。\n" * 3
    ids = pipe.tokenizer.encode(text)
    assert ids[0] == pipe.tokenizer.bos_id
    told = []
    found = perplexity(pipe, text, 24, lambda *progress: told.append(progress))
    value, _, n = naive(pipe, ids, 24, ids[0])
    assert found.perplexity == pytest.approx(value, rel=1e-5)
    assert found.tokens_scored == n
    assert told[-1] == (found.windows, found.windows, found.perplexity)
    assert [done for done, _, _ in told] == list(range(1, found.windows + 1))


def test_extreme_logits():
    logits = np.array([[3e38, -3e38, 0.0], [-1000.0, -1000.0, -1000.0]], np.float32)
    assert negative_log_likelihoods(logits, [0, 2]).tolist() == pytest.approx([0, np.log(3)])


@pytest.mark.parametrize(
    ("text", "context", "message"),
    [("short", 16, "the text has 5 tokens, a window 16"), ("text", 3, "context is 3"), ("text", 1.5, "context is 1.5")],
)
def test_what_cannot_be_measured(text, context, message):
    with pytest.raises(RingletError, match=message):
        perplexity(random_pipeline(), text, context)


@pytest.mark.reference
@pytest.mark.real_model
def test_as_llama_cpp_measures_it(smollm2_path, repository):
    """On the same file and windows; llama.cpp rounds activations to 8 bits, which is worth less than 1% here."""
    llama_cpp = pytest.importorskip("llama_cpp")
    text, context, n_windows = (repository / "LICENSE").read_text(encoding="utf-8"), 128, 4
    llama = llama_cpp.Llama(str(smollm2_path), n_ctx=context, logits_all=True, verbose=False)
    ids = llama.tokenize(text.encode())[: n_windows * context]
    losses = []
    for start in range(0, len(ids), context):
        window = ids[start : start + context]
        llama.reset()
        llama.eval(window)
        half = slice(context // 2, context - 1)
        losses.append(negative_log_likelihoods(llama.scores[half], window[context // 2 + 1 :]))
    pipe = Pipeline.from_pretrained(smollm2_path, backend="cpu")
    text = pipe.tokenizer.decode(ids)
    assert pipe.tokenizer.encode(text) == ids
    found = perplexity(pipe, text, context)
    assert found.tokens_scored == sum(map(len, losses))
    assert found.perplexity == pytest.approx(np.exp(np.mean(np.concatenate(losses))), rel=0.01)
