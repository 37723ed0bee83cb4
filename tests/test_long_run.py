"""The measurements behind docs/reliability.md: what they would say of a run that goes wrong, and what they measure."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from long_run import STRETCHES, WARM_UP, Stretch, picture, piece_perplexity, verdict
from streaming import stream_perplexity
from tiny_pipeline import D_VOCAB, random_pipeline

from ringlet.core.ring_cache import RingLayout

SHORT = 20.0
FLAT = [Stretch((at + 1) * 1000, 100 << 20, 700.0, 700.0, SHORT, "") for at in range(STRETCHES)]
CLAIMS = ("memory_flat", "time_flat", "alive")


def bent(**changes: float) -> list[Stretch]:
    """Each value grows, over the run after the warm-up, to this many times what it was."""

    def factor(at: int, most: float) -> float:
        return 1 + (most - 1) * max(0, at - WARM_UP) / (STRETCHES - 1 - WARM_UP)

    return [
        replace(each, **{name: getattr(each, name) * factor(at, most) for name, most in changes.items()})
        for at, each in enumerate(FLAT)
    ]


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        (FLAT, set()),
        (bent(rss_bytes=1.009, cpu_us=1.05, perplexity=1.4), set()),
        (bent(rss_bytes=1.02), {"memory_flat"}),
        (bent(cpu_us=1.2), {"time_flat"}),
        (bent(cpu_us=2, new_cpu_us=2), set()),  # a neighbour's doing
        (bent(perplexity=1.6), {"alive"}),
        (bent(perplexity=0.5), {"alive"}),
        ([*FLAT[:-1], replace(FLAT[-1], perplexity=1.0)], {"alive"}),
    ],
)
def test_what_is_said_of_a_run(found: list[Stretch], broken: set[str]) -> None:
    told = verdict(found, SHORT)
    assert {claim for claim in CLAIMS if not told[claim]} == broken
    assert picture(found, SHORT, "a run").startswith("<svg ")


def negative_log_likelihoods(logits: np.ndarray, ids: list[int]) -> np.ndarray:
    """Of ids[1:], plainly."""
    p = np.exp(logits[:-1].astype(np.float64))
    return -np.log((p / p.sum(axis=1, keepdims=True))[np.arange(len(ids) - 1), ids[1:]])


def test_a_piece_is_scored_by_its_second_half() -> None:
    pipe, ids = random_pipeline(), np.random.default_rng(0).integers(0, D_VOCAB, 31).tolist()
    expected = np.exp(negative_log_likelihoods(pipe.logits(ids), ids)[14:].mean())
    assert piece_perplexity(pipe, ids) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("context", "sinks", "overflow"), [(60, 0, "stop"), (12, 0, "slide"), (12, 4, "slide")])
def test_a_stream_s_perplexity_is_that_of_each_token_given_what_the_ring_holds(
    context: int, sinks: int, overflow: str
) -> None:
    ids = np.random.default_rng(1).integers(0, D_VOCAB, 60).tolist()
    one_by_one = random_pipeline(context=context, sinks=sinks, overflow=overflow, chunk=1)
    expected = np.exp(negative_log_likelihoods(one_by_one.logits(ids), ids)[19:].mean())
    for chunk in (1, 7, 12):
        layout = RingLayout.of(one_by_one.model.config, context, sinks, overflow, chunk=chunk)
        assert stream_perplexity(one_by_one, layout, ids, 20) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_of_25_000_tokens_holds(repository: Path, tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/long_run.py", "--tokens", "25000", "--picture", str(tmp_path / "run.svg")]
    ran = subprocess.run(command, cwd=repository, capture_output=True, encoding="utf-8", check=False)
    *lines, last = map(json.loads, ran.stdout.splitlines())
    assert last["memory_flat"]
    assert last["alive"]
    assert [line["tokens"] for line in lines] == [1920 * (at + 1) for at in range(13)]
    assert (tmp_path / "run.svg").read_text(encoding="utf-8").startswith("<svg ")
