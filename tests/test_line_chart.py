"""Line charts: points lie where they belong, names do not touch, and every colour has one for the dark."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlet.core.pictures.line_chart import (
    BOTTOM,
    HEIGHT,
    LINE_HEIGHT,
    MOST_TICKS,
    TOP,
    WIDTH,
    Panel,
    apart,
    axis,
    figure,
    text_width,
    ticks,
)

SVG = "{http://www.w3.org/2000/svg}"


def panel(lines: dict, title: str = "title") -> Panel:
    return Panel(title, "ms", "tokens", lines)


def circles(root: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in root.iter(f"{SVG}circle")]


def words(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("largest", "end", "step"), [(4096, 5000, 1000), (7, 8, 2), (0.03, 0.03, 0.005), (1, 1, 0.2), (0, 1, 1), (6, 6, 1)]
)
def test_axes(largest: float, end: float, step: float) -> None:
    assert axis(largest) == pytest.approx((end, step))


@given(st.floats(1e-9, 1e12))
def test_an_axis_reaches_the_largest_in_a_few_round_steps(largest: float) -> None:
    end, step = axis(largest)
    assert end >= largest * (1 - 1e-9)
    assert len(ticks(end, step)) <= MOST_TICKS + 2
    assert re.fullmatch(r"[125]\.?0*", f"{step:e}".split("e")[0])


def test_points_lie_where_they_belong() -> None:
    root = ElementTree.fromstring(figure([panel({"a & b": [(0, 1), (10, 2)], "c": [(5, 2)]}, "<title>")]))
    (left, middle), (right, top), (between, as_high) = circles(root)
    assert left < between < right
    assert between == pytest.approx((left + right) / 2)
    assert middle > top == as_high
    assert {"<title>", "ms", "tokens", "a & b", "c", "0", "10"} <= set(words(root))


def test_panels_stand_beside_and_below_each_other() -> None:
    panels = [panel({"line": [(0, 0), (1, 1)]}, str(at)) for at in range(3)]
    root = ElementTree.fromstring(figure(panels, columns=2, title="all", notes=["one", "two"]))
    places = [group.get("transform") for group in root.iter(f"{SVG}g")]
    assert len(set(places)) == 3
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    assert width == 2 * WIDTH
    assert height > 2 * HEIGHT
    notes = [element for element in root.iter(f"{SVG}text") if element.text in ("one", "two")]
    assert 2 * HEIGHT < float(notes[0].get("y", "")) < float(notes[1].get("y", "")) < height


@given(st.lists(st.floats(TOP, HEIGHT - BOTTOM), min_size=1, max_size=6).map(sorted))
def test_names_do_not_touch(heights: list[float]) -> None:
    placed = apart(heights)
    assert all(below - above >= LINE_HEIGHT - 1e-9 for above, below in pairwise(placed))
    assert placed[-1] <= HEIGHT - BOTTOM
    if all(below - above >= LINE_HEIGHT for above, below in pairwise(heights)):
        assert placed == heights


def test_names_stay_inside_the_picture() -> None:
    names = ["with the cache", "有缓存的时候", "x"]
    root = ElementTree.fromstring(figure([panel({name: [(0, 1), (9, 1)] for name in names})]))
    for element in root.iter(f"{SVG}text"):
        if element.text in names:
            assert float(element.get("x", "")) + text_width(element.text) <= WIDTH


def test_a_line_of_zeros_and_a_single_point_are_drawn() -> None:
    root = ElementTree.fromstring(figure([panel({"zero": [(0, 0), (4, 0)], "point": [(4, 0)]})]))
    assert all(y == HEIGHT - BOTTOM for _, y in circles(root))


def test_names_keep_their_colours() -> None:
    given_colours = {"b": 1, "a": 0}
    text = figure(
        [Panel("", "", "", {"b": [(1, 1)]}, given_colours), Panel("", "", "", {"a": [(1, 1)]}, given_colours)]
    )
    assert re.findall(r'class="name f(\d)"', text) == ["1", "0"]


def test_every_colour_has_one_for_the_dark() -> None:
    light, dark = figure([panel({"a": [(1, 1)]})]).split("@media (prefers-color-scheme: dark)")
    rules = [re.findall(r"\.(\w+) { (\w+): (#\w{6}) }", part) for part in (light, dark)]
    assert [rule[:2] for rule in rules[0]] == [rule[:2] for rule in rules[1]]
    assert len(rules[0]) == 15
    assert not {rule[2] for rule in rules[0]} & {rule[2] for rule in rules[1]}
