"""Candidates, and the search for the largest, against plain NumPy on the whole vocabulary."""

from __future__ import annotations

import naive_samplers as naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.core.candidates import Candidates, UnusableLogits, distinct_ids
from ringlet.core.largest import column_maxima, kth_largest, places_of_largest
from ringlet.core.likeliest import Logits
from ringlet.core.whole_vocabulary import WholeVocabulary

INFINITY = np.float32(np.inf)
sizes = st.sampled_from([1, 2, 5, 64, 1023, 1024, 1025, 2047, 2049, 5000, 65_537, 70_001])


def array(seed: int, size: int, ties: bool, removed: float) -> np.ndarray:
    """Normal numbers, rounded for ties, a share of them −inf, one at least not."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 3, size).astype(np.float32)
    values = np.round(values) if ties else values
    values[rng.random(size) < removed] = -np.inf
    values[rng.integers(size)] = 1
    return values


some_arrays = st.builds(array, st.integers(0, 10_000), sizes, st.booleans(), st.sampled_from([0, 0, 0.3, 0.999]))


@settings(max_examples=60)
@given(some_arrays, st.data())
def test_the_kth_largest(values, data):
    k = data.draw(st.integers(1, len(values)))
    assert kth_largest(values, k) == np.sort(values)[len(values) - k]


@settings(max_examples=60)
@given(some_arrays, st.data())
def test_places_of_the_largest(values, data):
    count = data.draw(st.integers(1, len(values)))
    places = places_of_largest(values, column_maxima(values), count)
    border = np.sort(values)[len(values) - count]
    needed = np.flatnonzero((values >= border) & (values > -np.inf))
    assert (np.diff(places) > 0).all()
    assert set(needed) <= set(places)
    assert (values[places] > -np.inf).all()


def test_nan_and_infinity_show_in_the_maxima():
    for size in (1, 5, 3000, 70_001):
        for place in {0, size // 2, size - 1}:
            for value in (np.nan, np.inf):
                values = np.zeros(size, np.float32)
                values[place] = value
                assert not np.isfinite(column_maxima(values)).all()


def listed(values: np.ndarray, count: int = 64) -> Logits:
    """Logits of which a backend has listed the likeliest."""
    likeliest = np.lexsort((-values, ~np.isnan(values)))[: min(count, len(values))]
    return Logits(likeliest.astype(np.int32), values[likeliest], len(values), lambda: values)


def all_kinds(values: np.ndarray) -> tuple[Candidates, Candidates, Candidates]:
    """The same as a chain begins with it, with nothing listed or the likeliest; and as what is left of it."""
    ids = np.flatnonzero(values > -np.inf)
    return WholeVocabulary(values), WholeVocabulary(listed(values)), Candidates(ids, values[ids], len(values))


def assert_is(candidates: Candidates, dense: np.ndarray) -> None:
    """It holds what a vocabulary of these logits holds, in every way."""
    ids = np.flatnonzero(dense > -np.inf)
    assert np.array_equal(candidates.dense(), dense)
    assert candidates.dense().dtype == candidates.logits.dtype == np.float32
    assert np.array_equal(candidates.ids, ids)
    assert np.array_equal(candidates.logits, dense[ids])
    assert (len(candidates), candidates.d_vocab) == (len(ids), len(dense))
    candidates.check()
    for token_id in {0, len(dense) // 2, len(dense) - 1}:
        assert candidates.holds(token_id) == (dense[token_id] > -np.inf)


@settings(max_examples=80)
@given(some_arrays, st.data())
def test_whatever_is_done_in_a_row(values, data):
    """The operations in any order on both kinds, beside the same on a plain array."""
    kinds = all_kinds(values)
    dense = values.copy()
    for _ in range(data.draw(st.integers(1, 4))):
        step = data.draw(
            st.sampled_from(["top", "change", "lower", "remove", "only", "keep", "at_least", "with_logits"])
        )
        left = np.flatnonzero(dense > -np.inf)
        if step == "top":
            k = data.draw(st.sampled_from([1, 2, 40, 700, len(dense)]))
            kinds = [each.top(k) for each in kinds]
            order = left[np.argsort(-dense[left], kind="stable")]
            dense = naive.kept(dense, order[:k])
        elif step in ("change", "lower"):
            few = distinct_ids(np.random.default_rng(len(left)).integers(0, len(dense), 50), len(dense))
            ids = data.draw(st.sampled_from([few, np.sort(left[np.argsort(-dense[left])[:30]])]))
            shift = np.float32(-1.5 if step == "lower" else 40)
            kinds = [each.change(ids, lambda logits, shift=shift: logits + shift) for each in kinds]
            dense[ids] += shift
        elif step == "remove" and len(left) > 1:
            ids = [*left[1::2].tolist(), *left[1:2].tolist(), -4, len(dense)]
            kinds = [each.remove(ids) for each in kinds]
            dense[left[1::2]] = -np.inf
        elif step == "only":
            ids = [*left[::3].tolist()[::-1], 10**9]
            kinds = [each.only(ids) for each in kinds]
            dense = naive.kept(dense, left[::3])
        elif step == "keep":
            which = dense[left] >= np.median(dense[left])
            kinds = [each.keep(np.flatnonzero(which) if each is kinds[-1] else which) for each in kinds]
            dense = naive.kept(dense, left[which])
        elif step == "at_least":
            border = data.draw(st.sampled_from([dense.max(), dense.max() - 1, dense.max() - 9, np.median(dense[left])]))
            kinds = [each.at_least(border) for each in kinds]
            dense = naive.kept(dense, left[dense[left] >= border])
        elif step == "with_logits":
            kinds = [each.with_logits(each.logits / np.float32(2)) for each in kinds]
            dense[left] /= np.float32(2)
        assert {float(each.largest) for each in kinds} == {float(dense.max())}
    for each in kinds:
        assert_is(each, dense)


def test_what_is_listed_is_not_looked_for():
    """Top-k, and what it leaves, of a list: nobody asks for all the logits, even where some of the list are lowered."""
    values = np.random.default_rng(0).normal(0, 3, 5000).astype(np.float32)
    lent = listed(values, 256)
    asked = Logits(lent.ids, lent.values, 5000, lambda: pytest.fail("all logits were asked for"))
    assert (
        WholeVocabulary(asked).top(40).nucleus(0.9).ids.tolist()
        == WholeVocabulary(values).top(40).nucleus(0.9).ids.tolist()
    )
    assert (
        WholeVocabulary(asked).at_least(values.max() - 2).ids.tolist()
        == np.flatnonzero(values >= values.max() - 2).tolist()
    )
    assert asked.without(lent.ids[:7]).ids.tolist() == lent.ids[7:].tolist()

    fetched = Logits(lent.ids, lent.values, 5000, lambda: values)
    lowered = WholeVocabulary(fetched).change(np.sort(lent.ids[:200]), lambda logits: logits - 5)
    expected = values.copy()
    expected[lent.ids[:200]] -= 5
    assert lowered.top(40).ids.tolist() == np.sort(np.argsort(-expected, kind="stable")[:40]).tolist()


def test_nothing_is_changed_that_was_made_before():
    values = np.arange(5000, dtype=np.float32)
    lent = values.copy()
    for candidates in all_kinds(values):
        dense = candidates.dense()
        first = candidates.change(np.array([7, 9]), lambda logits: logits * 0)
        second = first.change(np.array([7, 4999]), lambda logits: logits - 1e6)
        first.remove([9, 4998])
        second.top(3), second.only([1, 2]), second.with_logits(second.logits * 0)
        assert np.array_equal(candidates.dense(), dense)
        assert first.dense()[[7, 9, 4999]].tolist() == [0, 0, 4999]
        assert second.dense()[[7, 9, 4999]].tolist() == [-1e6, 0, np.float32(4999 - 1e6)]
        assert np.array_equal(values, lent)
        with pytest.raises(ValueError, match="read-only"):
            candidates.logits[0] = 5


def test_logits_that_cannot_be_drawn_from():
    ids = np.arange(3)
    for values, message in (
        ([0, np.nan, 1], "NaN"),
        ([0, np.inf, 1], r"\+inf"),
        ([-np.inf] * 3, "removed every token"),
    ):
        bad = np.array(values, np.float32)
        for lent in (bad, listed(bad)):
            with pytest.raises(UnusableLogits, match=message):
                WholeVocabulary(lent)
        for candidates in all_kinds(np.zeros(3, np.float32)):
            with pytest.raises(UnusableLogits, match=message):
                candidates.with_logits(bad)
            with pytest.raises(UnusableLogits, match=message):
                candidates.change(ids, lambda logits, bad=bad: bad)
    for candidates in all_kinds(np.zeros(3, np.float32)):
        for remove in (lambda c: c.remove([0, 1, 2]), lambda c: c.only([7]), lambda c: c.keep(np.zeros(3, bool))):
            with pytest.raises(UnusableLogits, match="removed every token"):
                remove(candidates)
        with pytest.raises(UnusableLogits, match=r"made logits of the shape \(2,\), not \(3,\)"):
            candidates.with_logits(np.zeros(2))


def test_removing_all_but_the_last_token_of_a_large_vocabulary():
    values = np.random.default_rng(0).normal(0, 3, 3000).astype(np.float32)
    whole = WholeVocabulary(values).remove(np.arange(2999))
    assert whole.top(40).ids.tolist() == [2999]
    with pytest.raises(UnusableLogits, match="removed every token"):
        whole.remove([2999])


@pytest.mark.parametrize(
    ("ids", "logits", "message"),
    [
        ([0, 0], [1, 2], "not ascending"),
        ([1, 0], [1, 2], "not ascending"),
        ([0, 5], [1, 2], "outside the vocabulary"),
        ([-1, 2], [1, 2], "outside the vocabulary"),
        ([0, 1], [1, -np.inf], "not finite"),
        ([0, 1], [1, np.nan], "not finite"),
        ([0, 1], [1, 2, 3], r"ids int64 \(2,\) and logits float32 \(3,\)"),
    ],
)
def test_what_a_plugin_made_amiss_is_found(ids, logits, message):
    with pytest.raises(UnusableLogits, match=message):
        Candidates(np.array(ids, np.int64), np.array(logits, np.float32), 5).check()


class FixedUniform:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


@pytest.mark.parametrize("size", [4, 20_000])
def test_a_draw_inverts_the_cumulative_sum(size):
    """Of many tokens the weights are float32, and right to 1e-6."""
    logits = np.full(size, -40, np.float32)
    logits[[1, 2]] = np.log([0.25, 0.75])
    for u, expected in ((0.2499, 1), (0.2501, 2), (0.9999, 2)):
        assert WholeVocabulary(logits).draw(FixedUniform(u)) == expected
    assert WholeVocabulary(logits).draw(FixedUniform(0.0)) == 0
    assert WholeVocabulary(logits).draw(FixedUniform(1 - 2**-53)) >= 2


def test_probabilities():
    for size in (5, 20_000):
        logits = np.random.default_rng(1).normal(0, 3, size).astype(np.float32)
        for candidates in all_kinds(logits):
            assert np.allclose(candidates.probabilities, naive.softmax(logits), rtol=2e-6)
            assert candidates.weights.max() == 1
