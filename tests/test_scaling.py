"""`explain --scaling`: counts follow the formulas, claims follow from the points; no time is asserted."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tiny_models import open_tiny
from tiny_pipeline import pipeline_of, random_pipeline

from ringlet.cli import main
from ringlet.core.errors import RingletError
from ringlet.core.measurement import scaling
from ringlet.core.measurement.scaling import (
    Again,
    Cached,
    Scaling,
    least_seconds,
    measure_scaling,
    ring_layout,
    text_lengths,
    whole_layout,
)
from ringlet.core.measurement.scaling_claims import ScalingPoint, claims_of, fitted
from ringlet.core.pipeline import Pipeline
from ringlet.core.terminal.scaling_text import quantity, scaling_lines, scaling_picture
from ringlet.plugins.backends.numpy import NumpyBackend


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "ENOUGH", 0.0)
    monkeypatch.setattr(scaling, "ROUNDS", 1)


def quiet(_: str) -> None:
    pass


def test_lengths_double_up_to_the_context() -> None:
    assert text_lengths(1024) == [16, 32, 64, 128, 256, 512, 1024]
    assert text_lengths(4096) == [64, 128, 256, 512, 1024, 2048, 4096]
    assert text_lengths(100) == [25, 50, 100]
    with pytest.raises(RingletError, match="context is 63: at least 64 is needed"):
        text_lengths(63)


def test_what_is_counted_follows_the_formulas() -> None:
    pipe = random_pipeline(context=128)
    config = pipe.model.config
    found = measure_scaling(pipe, quiet)
    assert found.ring_slots == 16
    weights = sum(
        np.prod(matrix.shape) for layer in pipe.model.weights.layers for name, matrix in vars(layer).items()
        if name.startswith("W_") and matrix is not None
    )  # fmt: skip
    W_t, per_key = config.d_model * config.d_vocab, config.n_layers * config.n_heads * (config.d_k + config.d_v)
    per_slot = config.n_layers * config.n_kv_heads * (config.d_k + config.d_v) * 4
    for point in found.points:
        n = point.tokens
        assert point.multiplications == {
            "again": n * weights + W_t + per_key * n * (n + 1) // 2,
            "cache": weights + W_t + per_key * n,
            "ring": weights + W_t + per_key * min(n, 16),
        }
        assert point.kv_bytes == {"cache": n * per_slot, "ring": min(n, 16) * per_slot}
        assert set(point.milliseconds) == {"again", "cache", "ring"}
        assert all(ms > 0 for ms in point.milliseconds.values())
    assert len(found.claims) == 3


def test_each_way_computes_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rings' lengths before and after each timed call."""
    pipe = random_pipeline(context=64)
    seen: list[tuple[str, int, int]] = []

    def spied(name: str, call: object) -> object:
        def run(pipe: Pipeline, rings: list, ids: list[int]) -> None:
            before = rings[0].length
            call(pipe, rings, ids)  # type: ignore[operator]
            seen.append((name, before, rings[0].length))

        return run

    monkeypatch.setattr(scaling, "decode", spied("decode", scaling.decode))
    monkeypatch.setattr(scaling, "prefill", spied("prefill", scaling.prefill))
    cached, ring = Cached(pipe, whole_layout(pipe, 64)), Cached(pipe, ring_layout(pipe, 8))
    for run in (cached, ring):
        for n in (16, 64, 32):  # back again, as in a second round
            seen.clear()
            run.seconds(n)
            assert {step for step in seen if step[0] == "decode"} == {("decode", n - 1, n)}
    seen.clear()
    Again(pipe, 64).seconds(40)
    assert seen == [("prefill", 0, 40)] * 2


def test_a_model_with_learned_positions_has_no_ring_to_slide() -> None:
    tiny = open_tiny("gpt2")
    pipe = pipeline_of(NumpyBackend(tiny.config, tiny.weights), context=64)
    found = measure_scaling(pipe, quiet)
    assert found.ring_slots is None
    assert len(found.claims) == 2
    assert all(set(point.milliseconds) == {"again", "cache"} for point in found.points)
    assert "ring" not in scaling_picture(found).partition("<style>")[2].partition("</style>")[2]


def test_the_least_of_the_rounds_counts_and_what_is_slow_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "ROUNDS", 3)
    monkeypatch.setattr(scaling, "ENOUGH", 1.0)

    class Said:
        def __init__(self, *seconds: float) -> None:
            self.left = list(seconds)

        def seconds(self, n: int) -> float:
            return self.left.pop(0)

    slow, quick = Said(5.0), Said(0.5, 0.3, 0.4)
    assert least_seconds({"slow": slow, "quick": quick}, [7], quiet) == {("slow", 7): 5.0, ("quick", 7): 0.3}  # type: ignore[dict-item]
    assert slow.left == quick.left == []


# --- claims ----------------------------------------------------------------------------------------------------------


@given(st.floats(0, 10), st.floats(0, 10), st.sampled_from([(0, 1), (1, 2)]))
def test_a_fit_finds_the_factors(first: float, second: float, powers: tuple[int, int]) -> None:
    n = np.array([16.0, 32, 64, 128, 256, 512])
    t = first * n ** powers[0] + second * n ** powers[1]
    if first + second < 1e-3:
        return
    (a, b), stray = fitted(n, t, powers)
    np.testing.assert_allclose(a * n ** powers[0] + b * n ** powers[1], t, rtol=1e-6)
    assert stray < 1e-6


def test_a_fit_s_factors_are_not_negative() -> None:
    n = np.array([1.0, 2, 4, 8])
    (fixed, per_key), stray = fitted(n, 10 - n, (0, 1))
    assert per_key == 0
    assert 2 < fixed < 9
    assert stray > 0.2


def points(cache: str, again: str, ring: str) -> list[ScalingPoint]:
    ways = {"cache": cache, "again": again, "ring": ring}
    return [
        ScalingPoint(n, {way: eval(formula, {"n": n}) for way, formula in ways.items()}, {}, {})
        for n in (64, 128, 256, 512, 1024)
    ]


def test_claims_that_hold() -> None:
    linear, quadratic, flat = claims_of(points("1 + n / 1000", "n / 100 + n * n / 1000", "2"), 128)
    assert linear.holds
    assert linear.says == "1 ms + 1 µs for each token before it, within 0%; at n = 1,024 that is 51% of the time"
    assert quadratic.holds
    assert quadratic.says == "10 µs · n + 1,000 ns · n²; at n = 1,024 the n² part is 99%"
    assert flat.holds
    assert flat.says == "from n = 128 to 1,024 it lies between 2 and 2 ms"


def test_claims_that_do_not_show_say_why() -> None:
    linear, quadratic, flat = claims_of(points("1 + (n > 200)", "n / 10 + n * n / 1e5", "n"), 100)
    assert not linear.holds
    assert linear.says.startswith("the points stray up to ")
    assert not quadratic.holds
    assert "at n = 1,024 the n² part is 9% of it, and the rest are the weights" in quadratic.says
    assert quadratic.says.endswith("n² takes over at about n = 10,000")
    assert not flat.holds


def test_a_cost_of_weights_alone_is_told_as_looking_flat() -> None:
    linear, quadratic, _ = claims_of(points("5", "n", "1"), 64)
    assert linear.holds
    assert linear.says.endswith("the weights still take 100% of the time, so it looks flat")
    assert not quadratic.holds
    assert "takes over" not in quadratic.says


# --- text and picture ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured() -> Scaling:
    pipe = random_pipeline(context=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "ENOUGH", 0.0)
        return measure_scaling(pipe, quiet)


@pytest.mark.parametrize("width", [40, 80])
def test_the_tables_fit_and_hold_the_numbers(measured: Scaling, width: int) -> None:
    lines = [click.unstyle(line) for line in scaling_lines(measured, width)]
    assert max(map(cell_len, lines)) <= width
    rows = [" ".join(line.split()) for line in lines]
    for point in measured.points:
        for values, unit in ((point.milliseconds, 1), (point.multiplications, 1e6), (point.kv_bytes, 2**20)):
            assert " ".join([str(point.tokens), *(quantity(value / unit) for value in values.values())]) in rows


def test_the_picture_has_every_point(measured: Scaling) -> None:
    root = ElementTree.fromstring(scaling_picture(measured))
    svg = "{http://www.w3.org/2000/svg}"
    n = len(measured.points)
    assert len(list(root.iter(f"{svg}circle"))) == (3 + 3 + 2 + 2 + 2) * n + 3 * (n + 1)
    numbers = [float(c.get(name, "")) for c in root.iter(f"{svg}circle") for name in ("cx", "cy")]
    assert np.isfinite(numbers).all()
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    assert max(numbers) < max(width, height)
    words = " ".join(element.text or "" for element in root.iter(f"{svg}text"))
    for claim in measured.claims:
        assert claim.claim in words


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "scaling.svg"
    arguments = ["explain", "--scaling", "--backend", "numpy", "--context", "64", "--svg", str(path)]
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == 0
    value = json.loads(result.stdout)
    assert [point["tokens"] for point in value["points"]] == [16, 32, 64]
    assert value["backend"] == "numpy"
    ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert "What a token costs as the text grows" in CliRunner().invoke(main, arguments).stdout
