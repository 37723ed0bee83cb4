"""What may change a token and what may not: the same steps give the same bits, other steps nearly the same logits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from random_models import assert_close, random_model_stored_as
from random_models import tokens as random_tokens
from tiny_pipeline import pipeline_of

from ringlet.core.pipeline import Pipeline
from ringlet.core.ring_cache import RingCache
from ringlet.core.step import run_step
from ringlet.plugins.backends.cpu import CpuBackend
from ringlet.plugins.backends.numpy import NumpyBackend

REPOSITORY = Path(__file__).resolve().parent.parent
PROMPT = "春眠不觉晓，处处闻啼鸟。\n夜来风雨声，花落知多少。\n"
DRAWN = {"max_tokens": 48, "seed": 11, "ignore_eos": True}
OPTIONS = {"context": 64, "overflow": "slide", "sinks": 2}
BACKENDS = {"numpy": NumpyBackend, "cpu": CpuBackend}
FLOATS = ["F32", "F16", "BF16"]
QUANTISED = ["q8_0", "q4_1", "q4_0"]
N_TOKENS = 150
FLOAT_TOLERANCE = 1e-5  # of the largest logit
MEAN_KL = 1e-3  # nats a token


def tokens(pipe: Pipeline, prompt: str = PROMPT) -> list[int]:
    return pipe.generate(prompt, **DRAWN).token_ids


# --- the same steps, the same bits -----------------------------------------------------------------------------------

A_RUN = """
import sys
from ringlet import Pipeline
backend, threads, quantize = sys.argv[1:4]
pipe = Pipeline.from_pretrained(
    backend=backend, threads=int(threads), quantize=quantize or None, context=64, overflow="slide", sinks=2
)
pipe.generate(sys.argv[4], max_tokens=48, seed=11, ignore_eos=True)
print(pipe.generate(sys.argv[4], max_tokens=48, seed=11, ignore_eos=True).token_ids)
print(pipe.logits(range(3, 99)).tobytes().hex())
"""


@pytest.mark.parametrize(("backend", "quantize"), [("numpy", ""), ("cpu", ""), ("cpu", "q4_1")])
def test_runs_and_threads_give_the_same_bits(backend: str, quantize: str) -> None:
    """Processes apart, with other seeds for Python's hashes."""
    outputs = []
    for threads, hash_seed in (("1", "0"), ("1", "77"), ("2", "1")):
        command = [sys.executable, "-c", A_RUN, backend, threads, quantize, PROMPT]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONUTF8": "1"}
        outputs.append(subprocess.run(command, capture_output=True, env=environment, check=True).stdout)
    assert len(outputs[0].splitlines()) == 2
    assert outputs == outputs[:1] * 3


@pytest.mark.parametrize("kv_dtype", ["f32", "f16", "q8"])
@pytest.mark.parametrize("quantize", [None, "q4_1"])
def test_a_loaded_session_gives_the_same_bits(quantize: str | None, kv_dtype: str, tmp_path: Path) -> None:
    first, second = (
        Pipeline.from_pretrained(**OPTIONS, quantize=quantize, kv_dtype=kv_dtype, threads=threads) for threads in (1, 2)
    )
    drawn = tokens(first)
    first.save_session(tmp_path / "session")
    second.load_session(tmp_path / "session")
    assert tokens(second) == drawn
    for pipe in (first, second):
        pipe.load_session(tmp_path / "session")
    with first.idle_ring.held() as mine, second.idle_ring.held() as other:
        assert mine is not None
        assert other is not None
        for ids in ([5], [6, 7, 8], list(range(100, 120))):
            rows = [
                run_step(pipe.backend, [(held[0].ring, ids, "all")]) for pipe, held in ((first, mine), (second, other))
            ]
            np.testing.assert_array_equal(*rows)


# --- other steps, nearly the same logits -----------------------------------------------------------------------------


def in_chunks(pipe: Pipeline, ids: list[int], size: int, ring: RingCache | None = None) -> np.ndarray:
    ring = ring or pipe.new_ring()
    parts = [ids[at : at + size] for at in range(0, len(ids), size)]
    return np.concatenate([run_step(pipe.backend, [(ring, part, "all")]) for part in parts])


def beside_others(pipe: Pipeline, ids: list[int]) -> np.ndarray:
    """Each chunk in a step with those of sequences of other lengths."""
    rings, rows, rng = [pipe.new_ring() for _ in range(4)], [], np.random.default_rng(1)
    for at in range(0, len(ids), 5):
        others = [
            (ring, rng.integers(3, 30, size).tolist(), "last") for ring, size in zip(rings, (1, 7, 1, 3), strict=True)
        ]
        if at == 0:
            mine = pipe.new_ring()
        logits = run_step(pipe.backend, [others[0], others[1], (mine, ids[at : at + 5], "all"), *others[2:]])
        rows.append(logits[2:-2])
    return np.concatenate(rows)


def after_rewinds(pipe: Pipeline, ids: list[int]) -> np.ndarray:
    """Each chunk after another that was taken back."""
    ring, rows = pipe.new_ring(), []
    for at in range(0, len(ids), 8):
        run_step(pipe.backend, [(ring, [9, 8, 7, 6], "last")])
        if ring.rewind(at) != at:  # gone: computed again
            in_chunks(pipe, ids[:at], 16, ring)
        rows.append(run_step(pipe.backend, [(ring, ids[at : at + 8], "all")]))
    return np.concatenate(rows)


WAYS: dict[str, Callable[[Pipeline, list[int]], np.ndarray]] = {
    "one at a time": lambda pipe, ids: in_chunks(pipe, ids, 1),
    "chunks of 3": lambda pipe, ids: in_chunks(pipe, ids, 3),
    "chunks of 64": lambda pipe, ids: in_chunks(pipe, ids, 64),
    "beside others": beside_others,
    "after rewinds": after_rewinds,
}


def pairs(pipe: Pipeline, ids: list[int] | None = None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Each way's logits and the usual ones, of the ids, or of a text of the model's own; the ring slides in it."""
    ids = ids or pipe.generate(PROMPT, N_TOKENS, seed=5, ignore_eos=True).token_ids
    expected = in_chunks(pipe, ids, 32)
    for name, way in WAYS.items():
        yield name, way(pipe, ids), expected


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """float64, of each row."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def check_quantised(name: str, found: np.ndarray, expected: np.ndarray) -> None:
    p, q = log_softmax(expected), log_softmax(found)
    assert (np.exp(p) * (p - q)).sum(axis=1).mean() <= MEAN_KL, name
    second, best = np.sort(np.exp(p), axis=1)[:, -2:].T
    clear = best - second > MEAN_KL
    assert clear.mean() > 0.9
    assert (p.argmax(axis=1) == q.argmax(axis=1))[clear].all(), name


@pytest.mark.parametrize("kv_dtype", ["f32", "f16"])
def test_the_embedded_model_s_logits_do_not_depend_on_the_steps(kv_dtype: str) -> None:
    pipe = Pipeline.from_pretrained(backend="cpu", kv_dtype=kv_dtype, **OPTIONS)
    for _, found, expected in pairs(pipe):
        assert_close(found, expected, FLOAT_TOLERANCE)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stored", FLOATS)
def test_a_float_model_s_logits_do_not_depend_on_the_steps(stored: str, backend: str) -> None:
    config, weights = random_model_stored_as(stored)
    pipe = pipeline_of(BACKENDS[backend](config, weights), context=64, sinks=2, overflow="slide", chunk=64)
    for _, found, expected in pairs(pipe, random_tokens(N_TOKENS, config)):
        assert_close(found, expected, FLOAT_TOLERANCE)


@pytest.mark.parametrize("quantize", QUANTISED)
def test_a_quantised_model_s_logits_hardly_depend_on_the_steps(quantize: str) -> None:
    pipe = Pipeline.from_pretrained(quantize=quantize, **OPTIONS)
    for name, found, expected in pairs(pipe):
        check_quantised(name, found, expected)


@pytest.mark.slow
@pytest.mark.real_model
def test_a_real_quantised_model_s_logits_hardly_depend_on_the_steps(smollm2_path: Path, gemma_path: Path) -> None:
    for path in (smollm2_path, gemma_path):
        pipe = Pipeline.from_pretrained(path, **OPTIONS)
        for name, found, expected in pairs(pipe):
            check_quantised(f"{path.name}, {name}", found, expected)
