"""The stop strings' filter against a plain search in the whole text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlet.core.generation.stop_strings import StopStrings

few_letters = st.text(alphabet="ab爱", max_size=24)
some_stops = st.lists(st.text(alphabet="ab爱", min_size=1, max_size=4), max_size=3)


def pieces_of(text: str, borders: list[int]) -> list[str]:
    cuts = [0, *sorted({border for border in borders if 0 < border < len(text)}), len(text)]
    return [text[start:stop] for start, stop in pairwise(cuts)]


def naive_cut(text: str, stops: list[str]) -> str:
    found = [text.index(stop) for stop in stops if stop in text]
    return text[: min(found)] if found else text


@given(few_letters, some_stops, st.lists(st.integers(0, 24)))
def test_what_comes_out_is_the_text_before_the_first_stop_string(text, stops, borders):
    stream = StopStrings(stops)
    out = "".join([stream.push(piece) for piece in pieces_of(text, borders)]) + stream.flush()
    assert out == naive_cut(text, stops)
    assert stream.found == any(stop in text for stop in stops)
    at_the_cut = [stop for stop in stops if text.startswith(stop, len(out))]
    assert stream.which == min(at_the_cut, key=len, default=None)


@given(few_letters, some_stops, st.lists(st.integers(0, 24)))
def test_nothing_leaks_and_nothing_is_held_longer_than_needed(text, stops, borders):
    stream, so_far, out = StopStrings(stops), "", ""
    for piece in pieces_of(text, borders):
        out += stream.push(piece)
        so_far += piece
        if stream.found:
            break
        # What is not out must be able to become a stop string, or to be cut by one that begins before it.
        beginnings = [
            at
            for at in range(len(so_far) + 1)
            if any(len(s) > len(so_far) - at and s.startswith(so_far[at:]) for s in stops)
        ]
        assert out == so_far[: min(beginnings, default=len(so_far))]


@pytest.mark.parametrize(
    ("stops", "pieces", "expected"),
    [
        (["\n\n"], ["one\n", "two\n", "\nthree"], ["one", "\ntwo", ""]),
        (["END"], ["E", "N", "E", "N", "D", "x"], ["", "", "EN", "", "", ""]),
        (["abcd", "bc"], ["ab", "c", "x"], ["", "", "a"]),  # "abcd" may still come, and would begin earlier
        (["abcd", "bc"], ["ab", "c", "d"], ["", "", ""]),
        ([], ["any", "thing"], ["any", "thing"]),
        (["你好"], ["你", "们"], ["", "你们"]),
    ],
)
def test_examples(stops, pieces, expected):
    stream = StopStrings(stops)
    assert [stream.push(piece) for piece in pieces] == expected


def test_what_is_held_comes_out_at_the_end():
    stream = StopStrings(["STOP"])
    assert stream.push("a ST") == "a "
    assert stream.flush() == "ST"
    assert not stream.found
