"""The embedded model in the simulator, from text to text."""

from __future__ import annotations

import time

import pytest

from ringlet import Pipeline

MOST_SECONDS = 300


@pytest.mark.slow
def test_the_embedded_model_says_what_it_says_on_the_cpu() -> None:
    said = []
    for backend in ("cpu", "cuda"):
        start = time.monotonic()
        pipe = Pipeline.from_pretrained(None, backend=backend)
        done = pipe.generate("我爱你", max_tokens=3, sampler="greedy", ignore_eos=True)
        said.append(done.token_ids)
    assert time.monotonic() - start < MOST_SECONDS
    assert len(said[0]) == 3
    assert said[1] == said[0]
