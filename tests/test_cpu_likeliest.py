"""The likeliest tokens that a step of the cpu backend lists, against NumPy's sort."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet import Pipeline
from ringlet.core.step import run_step, run_step_for_likeliest
from ringlet.plugins.backends.cpu import likeliest
from ringlet.plugins.backends.cpu.compiling import entry_point
from ringlet.plugins.backends.cpu.records import LOGITS_A_BLOCK, address, padded


@entry_point
def find(logits, n, maxima):
    likeliest.find_block_maxima(logits, 0, n, maxima)


@entry_point
def make_list(logits, n, maxima, count, heap, ids, values):
    likeliest.list_likeliest(logits, n, maxima, count, heap, ids, values)


def listed(logits: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    maxima = np.full(padded(-(-len(logits) // LOGITS_A_BLOCK)), np.inf, np.float32)
    heap, ids, values = np.empty(count, np.int64), np.full(count + 1, -7, np.int32), np.full(count + 1, -7, np.float32)
    find(address(logits), len(logits), address(maxima))
    make_list(address(logits), len(logits), address(maxima), count, address(heap), address(ids), address(values))
    assert (ids[-1], values[-1]) == (-7, -7)  # nothing beyond the last
    return ids[:-1], values[:-1]


def sorted_ids(logits: np.ndarray, count: int) -> np.ndarray:
    """The largest first, of equal ones the lowest id, NaN before all."""
    return np.lexsort((-logits, ~np.isnan(logits)))[:count]


def kinds(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    normal = rng.normal(0, 3, n).astype(np.float32)
    return {
        "normal": normal,
        "ties": np.round(normal),
        "all equal": np.full(n, 2.5, np.float32),
        "zeros of both signs": np.where(rng.random(n) < 0.5, np.float32(0), np.float32(-0.0)),
        "rising": np.sort(normal),
        "falling": np.sort(normal)[::-1].copy(),
        "mostly removed": np.where(rng.random(n) < 0.99, np.float32(-np.inf), normal),
        "all removed": np.full(n, -np.inf, np.float32),
        "infinite": np.where(rng.random(n) < 0.01, np.float32(np.inf), normal),
        "no numbers": np.where(rng.random(n) < 0.01, np.float32(np.nan), normal),
        "negative NaN": np.where(rng.random(n) < 0.01, np.copysign(np.float32(np.nan), np.float32(-1)), normal),
        "extreme": normal * np.float32(1e37),
        "tiny": normal * np.float32(1e-44),
    }


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 255, 1000, 8191, 8193, 50_001])
def test_the_list_is_numpys(n: int) -> None:
    rng = np.random.default_rng(n)
    for name, logits in kinds(rng, n).items():
        for count in {1, min(n, 7), min(n, 256), n if n < 2000 else 1000}:
            ids, values = listed(logits, count)
            expected = sorted_ids(logits, count)
            assert np.array_equal(ids, expected), (name, count)
            assert np.array_equal(values, logits[expected], equal_nan=True), (name, count)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_step_lists_the_likeliest_of_its_own_logits(threads: int) -> None:
    """For several sequences at once; the logits are those of a step that lists nothing."""
    pipe = Pipeline.from_pretrained(backend="cpu", threads=threads)
    prompts = [pipe.tokenizer.encode(text) for text in ("我爱你", "春眠不觉晓", "月")]

    def parts():
        return [(pipe.new_ring(), ids, "last") for ids in prompts]

    logits = run_step(pipe.backend, parts())
    for count in (1, 256, 10**6):
        rows = run_step_for_likeliest(pipe.backend, parts(), count)
        assert len(rows) == len(prompts)
        for row, expected in zip(rows, logits, strict=True):
            assert np.array_equal(row.all, expected)
            assert np.array_equal(row.ids, sorted_ids(expected, min(count, len(expected))))
            assert np.array_equal(row.values, expected[row.ids])
