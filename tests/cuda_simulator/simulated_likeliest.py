"""The likeliest tokens of rows of logits, in the simulator, against NumPy's sort."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_gpu import Array, launch

from ringlet.plugins.backends.cuda.shapes import RANKED, RANKED_GROUPS, RANKED_PART, can_rank, ranked_parts

UNWRITTEN = 77


def listed(logits: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """ids and values, (rows, count), by both kernels."""
    rows, d_vocab = logits.shape
    parts, on_gpu = ranked_parts(d_vocab), Array(logits)
    keys = Array.unwritten(rows * parts * count + 1, dtype=np.int64)
    ids, values = Array.unwritten(rows * count + 1, dtype=np.int32), Array.unwritten(rows * count + 1)
    launch("rank", (parts, rows, 1), on_gpu, keys, d_vocab, count)
    launch("likeliest", (rows, 1, 1), on_gpu, keys, ids, values, d_vocab, parts * count, count)
    assert keys.values[-1] == ids.values[-1] == UNWRITTEN  # nothing beyond the last
    assert np.isnan(values.values[-1])
    return ids.values[:-1].reshape(rows, count), values.values[:-1].reshape(rows, count)


def check(logits: np.ndarray, count: int) -> None:
    """Ids are NumPy's, and values the bits that the logits have."""
    ids, values = listed(logits, count)
    expected = np.array([np.lexsort((-row, ~np.isnan(row)))[:count] for row in logits])
    np.testing.assert_array_equal(ids, expected)
    chosen = np.take_along_axis(logits, expected, axis=1)
    np.testing.assert_array_equal(values.view(np.uint32), chosen.view(np.uint32))


def kinds(n: int) -> dict[str, np.ndarray]:
    """Rows of n logits."""
    rng = np.random.default_rng(n)
    normal, chance = rng.normal(0, 3, n).astype(np.float32), rng.random(n)
    return {
        "normal": normal,
        "ties": np.round(normal),
        "all equal": np.full(n, -2.5, np.float32),
        "zeros of both signs": np.where(chance < 0.5, np.float32(0), np.float32(-0.0)),
        "rising": np.sort(normal),
        "falling": np.sort(normal)[::-1].copy(),
        "the largest in few groups": np.where(np.arange(n) % RANKED_GROUPS < 7, 9 - normal / 9, normal).astype("f"),
        "one group lower than the others": np.where(np.arange(n) % RANKED_GROUPS == 9, normal - 90, normal),
        "mostly removed": np.where(chance < 0.99, np.float32(-np.inf), normal),
        "all removed": np.full(n, -np.inf, np.float32),
        "infinite": np.where(chance < 0.01, np.float32(np.inf), normal),
        "no numbers": np.where(chance < 0.01, np.float32(np.nan), normal),
        "negative NaN": np.where(chance < 0.5, np.copysign(np.float32(np.nan), np.float32(-1)), np.float32(np.inf)),
        "tiny": normal * np.float32(1e-44),
    }


@pytest.mark.parametrize("n", [1, 2, 3, 31, 33, 64, 255, 257])
def test_short_rows(n: int) -> None:
    rows = np.stack(list(kinds(n).values()))
    for count in {1, (n + 1) // 2, min(n, 40), n}:
        if count <= RANKED_GROUPS:
            check(rows, count)


@pytest.mark.parametrize("n", [RANKED_PART - 1, RANKED_PART + 1, 2 * RANKED_PART, 2 * RANKED_PART + 5, 6144])
@pytest.mark.parametrize("count", [1, 40, RANKED_GROUPS])
def test_rows_of_several_parts(n: int, count: int) -> None:
    """Their parts are as long as they may be, one logit, or none too many."""
    rows = kinds(n)
    check(np.stack([rows[name] for name in ("normal", "the largest in few groups", "no numbers")]), count)


@pytest.mark.slow
@pytest.mark.parametrize("name", kinds(1))
def test_long_rows_of_every_kind(name: str) -> None:
    """As many parts as the last block has room for."""
    n = RANKED_PART * (RANKED // RANKED_GROUPS)
    assert can_rank(n, RANKED_GROUPS)
    assert not can_rank(n + 1, RANKED_GROUPS)
    check(kinds(n)[name][None], RANKED_GROUPS)
