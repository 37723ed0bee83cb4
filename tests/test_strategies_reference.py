"""Beam search against transformers, contrastive search against its formula on the hidden states of transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiny_models import FOLDER, open_tiny
from tiny_pipeline import pipeline_of

from ringlet.core.pipeline import Pipeline
from ringlet.plugins.backends.cpu import CpuBackend
from ringlet.plugins.backends.numpy import NumpyBackend
from ringlet.tokenization.codec import Codec
from ringlet.tokenization.streaming import TextStreamDecoder
from ringlet.tokenization.tokenizer import Tokenizer

pytestmark = pytest.mark.reference

NAMES = ["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemma3", "gpt2", "qwen3", "mistral"))]
PROMPT_LENGTHS = [1, 5, 12]


class Numbers(Codec):
    """Every id is a token, whose text is its number."""

    special_ids = frozenset()

    def __init__(self, d_vocab: int) -> None:
        self._d_vocab = d_vocab

    @property
    def n_tokens(self) -> int:
        return self._d_vocab

    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        return [int(word) for word in text.split()]

    def token_id(self, text: str) -> int | None:
        return int(text)

    def token_text(self, token_id: int) -> str | None:
        return str(token_id)

    def decode(self, ids: Any, skipped: frozenset[int]) -> str:
        return "".join(f" {i}" for i in ids if i not in skipped)

    def stream_decoder(self, skipped: frozenset[int]) -> TextStreamDecoder:
        return TextStreamDecoder(lambda ids: self.decode(ids, frozenset()), skipped)


@pytest.fixture(scope="module", params=NAMES)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any, list[int]]:
    """transformers' model, ours, and ids that a prompt may have."""
    transformers = pytest.importorskip("transformers")
    tiny = open_tiny(request.param)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / request.param, dtype="float32").eval()
    return theirs, tiny, tiny.ids


def ours(tiny: Any, eos_ids: list[int], backend: type = NumpyBackend) -> Pipeline:
    pipe = pipeline_of(backend(tiny.config, tiny.weights), context=48, chunk=5)
    pipe.kv_dtype = "f32"
    pipe.tokenizer = Tokenizer(Numbers(tiny.config.d_vocab), eos_ids=eos_ids)
    return pipe


def theirs_of(model: Any, prompt: list[int], eos_ids: list[int], **options: Any) -> list[list[int]]:
    """Ids after the prompt, without what stands after an end token."""
    import torch

    with torch.no_grad():
        rows = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            eos_token_id=eos_ids or None,
            pad_token_id=0,
            **options,
        )
    found = []
    for row in rows[:, len(prompt) :].tolist():
        ends = [place for place, token_id in enumerate(row) if token_id in eos_ids]
        found.append(row[: ends[0] + 1] if ends else row[: options["max_new_tokens"]])
    return found


def likely_ends(pipe: Pipeline, prompt: list[int], count: int) -> list[int]:
    """Tokens that beams do come across, to be taken for end tokens."""
    drawn = pipe.generate(prompt, max_tokens=12, strategy="beam_search(beams=4)", n=4)
    ids, counts = np.unique([i for c in drawn for i in c.token_ids[2:]], return_counts=True)
    return ids[np.argsort(-counts, kind="stable")][:count].tolist()


CASES: list[tuple[dict, int]] = [
    ({}, 0),
    ({}, 1),
    ({}, 3),
    ({"length_penalty": 0.0}, 2),
    ({"length_penalty": -2.0}, 1),
    ({"length_penalty": 2.5}, 3),
    ({"early_stopping": "true"}, 1),
    ({"early_stopping": "true", "beams": 3}, 3),
    ({"early_stopping": "never", "length_penalty": 1.5}, 2),
    ({"early_stopping": "never", "length_penalty": -0.5}, 1),
    ({"beams": 1}, 1),
    ({"beams": 2}, 0),
    ({"beams": 7}, 2),
]


@pytest.mark.parametrize(("case", "n_ends"), CASES, ids=str)
def test_beam_search_finds_what_transformers_finds(pair: tuple, case: dict, n_ends: int) -> None:
    """All n best, by their ids and in their order; n_ends: how many tokens end a text."""
    model, tiny, ids = pair
    wanted = {"beams": 4, "length_penalty": 1.0, "early_stopping": "false"} | case
    spec = "beam_search(" + ",".join(f"{name}={value}" for name, value in wanted.items()) + ")"
    early = {"false": False, "true": True, "never": "never"}[wanted["early_stopping"]]
    ended = 0
    for length in PROMPT_LENGTHS:
        prompt = ids[:length]
        eos_ids = likely_ends(ours(tiny, []), prompt, n_ends)
        n = wanted["beams"]
        mine = ours(tiny, eos_ids).generate(prompt, max_tokens=12, strategy=spec, n=n)
        mine = mine if isinstance(mine, list) else [mine]
        options: dict = {"max_new_tokens": 12, "num_beams": n, "num_return_sequences": n}
        if n > 1:
            options |= {"length_penalty": wanted["length_penalty"], "early_stopping": early}
        expected = theirs_of(model, prompt, eos_ids, **options)
        assert [completion.token_ids for completion in mine] == expected
        ended += sum(completion.finish_reason == "stop" for completion in mine)
    if not case:
        assert (ended > 0) == (n_ends > 0)


def test_beam_search_on_the_cpu_backend_and_with_processors(pair: tuple) -> None:
    """A chain of samplers acts as transformers' processors do, and what is left counts as the whole."""
    model, tiny, ids = pair
    pipe = ours(tiny, [], CpuBackend)
    mine = pipe.generate(ids[:6], max_tokens=12, strategy="beam_search(beams=3)", sampler="top_k=5", n=3)
    expected = theirs_of(
        model, ids[:6], [], max_new_tokens=12, num_beams=3, num_return_sequences=3, renormalize_logits=True,
        logits_processor=[TopK(5)],
    )  # fmt: skip
    assert [completion.token_ids for completion in mine] == expected


class TopK:
    """A processor of transformers' kind."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return scores.masked_fill(scores < scores.topk(self.k).values[..., -1:], -float("inf"))


@pytest.mark.parametrize(("top_k", "alpha"), [(4, 0.6), (2, 0.2), (6, 0.9), (1, 0.6), (5, 0.0), (3, 1.0)])
def test_contrastive_search_by_its_formula_on_transformers_hidden_states(pair: tuple, top_k: int, alpha: float) -> None:
    """Su et al. 2022, eq. 5, plainly: every token and every candidate computed anew, from the whole text."""
    import torch

    model, tiny, ids = pair

    def last(text: list[int]) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            out = model(torch.tensor([text]), output_hidden_states=True)
        return out.logits[0, -1].double().numpy(), out.hidden_states[-1][0].double().numpy()

    def chosen(text: list[int]) -> int:
        logits, _ = last(text)
        p = np.exp(logits - logits.max())
        p /= p.sum()
        scores = {}
        for v in np.argsort(-p)[:top_k]:
            _, h = last([*text, int(v)])
            h = h / np.linalg.norm(h, axis=1, keepdims=True)
            scores[int(v)] = (1 - alpha) * p[v] - alpha * max(h[-1] @ h[j] for j in range(len(text)))
        return max(scores, key=scores.__getitem__)

    text = list(ids[:7])
    for _ in range(10):
        text.append(chosen(text))
    strategy = f"contrastive_search(top_k={top_k},penalty_alpha={alpha})"
    for backend in (NumpyBackend, CpuBackend):
        mine = ours(tiny, [], backend).generate(ids[:7], max_tokens=10, strategy=strategy)
        assert mine.token_ids == text[7:]
