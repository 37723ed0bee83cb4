"""`explain`: what it prints fits, is aligned and is the trace's; its options; softmax with the scale and without."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from random_models import tokens
from rich.cells import cell_len
from tiny_models import FORMS, open_tiny
from tiny_pipeline import pipeline_of, random_pipeline

from ringlet.cli import main
from ringlet.core.errors import RingletError
from ringlet.core.explanation.softmax import USUAL_TEXT, study_softmax
from ringlet.core.explanation.walk import Walk, walk
from ringlet.core.pipeline import Pipeline
from ringlet.core.readable import number, visible
from ringlet.core.terminal import columns
from ringlet.core.terminal.columns import bar, cut, fitting_numbers, padded, wrapped
from ringlet.core.terminal.files import write_text_file
from ringlet.core.terminal.ring_text import span
from ringlet.core.terminal.softmax_text import softmax_lines
from ringlet.core.terminal.walk_text import walk_lines
from ringlet.plugins.backends.numpy import NumpyBackend


@pytest.fixture(scope="module")
def poet() -> Pipeline:
    return Pipeline.from_pretrained(backend="numpy")


@pytest.fixture(scope="module")
def sliding() -> Pipeline:
    return Pipeline.from_pretrained(backend="numpy", context=8, sinks=2, overflow="slide")


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


def plain_lines(found: Walk, width: int) -> list[str]:
    return [click.unstyle(line) for line in walk_lines(found, width)]


# --- the walk --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["我爱你", "春", USUAL_TEXT, "a\tb\x1b[31m \n\n  end", "𝕏 ☃ ﷽", "word " * 12], ids=ascii
)
def test_lines_fit_the_width(poet: Pipeline, text: str) -> None:
    trace = poet.trace(text, max_tokens=2)
    for token, width in ((0, 40), (len(trace.token_ids) // 2, 40), (-1, 40), (-1, 57), (2, 80), (-1, 100)):
        lines = plain_lines(walk(poet, trace, -1, 1, token), width)
        assert max(map(cell_len, lines)) <= width
        assert all(line.isprintable() and line == line.rstrip() for line in lines)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_every_architecture_can_be_walked_through(name: str, form: str) -> None:
    tiny = open_tiny(name, form)
    pipe = pipeline_of(NumpyBackend(tiny.config, tiny.weights), context=40)
    pipe.removed_ids = np.empty(0, np.int64)
    trace = pipe.trace(tiny.ids[:18], max_tokens=2)
    for layer in range(tiny.config.n_layers):
        lines = plain_lines(walk(pipe, trace, layer, -1), 40)
        assert max(map(cell_len, lines)) <= 40
        text = "\n".join(lines)
        assert ("normed  " in text) == tiny.config.qk_norm
        assert ("turned  " in text) == (tiny.config.layers[layer].rope is not None)
        assert ("is capped" in " ".join(lines)) == (tiny.config.score_soft_cap is not None)


def test_the_table_of_weights_is_the_trace_s_and_aligned_for_chinese(poet: Pipeline) -> None:
    found = walk(poet, poet.trace("我爱你"), layer=1, head=2)
    lines = plain_lines(found, 80)
    start = next(at for at, line in enumerate(lines) if line.split() == ["QKᵀ", "S", "α"])
    rows = lines[start + 1 : start + 5]
    assert [row.split()[0] for row in rows] == ["<bos>", "我", "爱", "你"]
    for column, name in ((1, "S_raw"), (2, "S"), (3, "alpha")):
        shown = [float(row.split()[column]) for row in rows]
        np.testing.assert_allclose(shown, found.scores(name), atol=0.0051)
    ends = {cell_len(row[: re.search(r"\d\.\d{3}", row).end()]) for row in rows}  # type: ignore[union-attr]
    assert len(ends) == 1
    bars = [row.split()[4] for row in rows]
    assert max(bars, key=len) == bars[int(found.scores("alpha").argmax())]


def test_an_earlier_token_meets_the_mask(poet: Pipeline) -> None:
    text = "\n".join(plain_lines(walk(poet, poet.trace("我爱你"), token=1), 80))
    assert text.count("−∞  0.000") == 2
    assert "−∞ is the causal mask: 「我」 may not look at 2 tokens that come later." in text
    assert "In the text follows: 「爱」." in text


def test_a_prompt_shows_its_whole_triangle_where_it_fits(poet: Pipeline) -> None:
    trace = poet.trace("我爱你", max_tokens=1)
    lines = plain_lines(walk(poet, trace, token=3), 80)
    start = next(at for at, line in enumerate(lines) if line.split() == ["<bos>", "我", "爱", "你"])
    counts = [line.split().count("−∞") for line in lines[start + 1 : start + 5]]
    assert counts == [3, 2, 1, 0]
    assert not any("computed at once:" in line for line in plain_lines(walk(poet, trace, token=4), 80))
    assert not any("computed at once:" in line for line in plain_lines(walk(poet, poet.trace(USUAL_TEXT)), 80))


def test_many_keys_are_cut_to_the_heaviest(poet: Pipeline) -> None:
    found = walk(poet, poet.trace(USUAL_TEXT), layer=2)
    alpha = np.sort(found.scores("alpha"))
    lines = plain_lines(found, 80)
    (more,) = (line for line in lines if "more, whose weights sum to" in line)
    assert more.split()[2] == str(len(alpha) - 16)
    assert float(more.split()[-1]) == pytest.approx(alpha[:-16].sum(), abs=6e-4)


def test_the_ring_is_told_as_it_slides(sliding: Pipeline) -> None:
    trace = sliding.trace("我爱你", max_tokens=9)
    first = "\n".join(plain_lines(walk(sliding, trace, token=3), 80))
    assert "++++>···" in first
    assert "This step computed q, k and v of the 4 tokens of the prompt at once" in first
    assert "Nothing was there to be read." in first
    last = "\n".join(plain_lines(walk(sliding, trace), 80))
    assert "SS####+>" in last
    ring = trace.steps[-1].layers[0].ring
    assert f"wrote k and v of token 12, over those of token {ring.overwritten[0]}." in last.replace("\n   ", " ")
    assert f"Not computed again: k and v of {span(ring.reused)}." in last.replace("\n   ", " ")


def test_multiplications_are_those_of_the_formulas(sliding: Pipeline) -> None:
    trace = sliding.trace("我爱你", max_tokens=9)
    config = trace.config
    weights = sum(
        np.prod(matrix.shape) for layer in sliding.model.weights.layers for name, matrix in vars(layer).items()
        if name.startswith("W_") and matrix is not None
    )  # fmt: skip
    W_t = config.d_model * config.d_vocab
    per_key = config.n_layers * config.n_heads * (config.d_k + config.d_v)
    for position in (0, 3, 12):
        work = walk(sliding, trace, token=position).multiplications
        assert work["ring"] == weights + W_t + per_key * min(position + 1, 8)
        keys = sum(min(p + 1, 8) for p in range(position + 1))
        assert work["again"] == (position + 1) * weights + W_t + per_key * keys


def test_json_holds_the_whole_walk(poet: Pipeline) -> None:
    value = json.loads(explain("我爱你", "--layer", "2", "--head", "1", "--token", "2", "--json").stdout)
    found = walk(poet, poet.trace("我爱你"), 2, 1, 2)
    np.testing.assert_allclose([key["alpha"] for key in value["keys"]], found.scores("alpha"), atol=1e-6)
    assert [key["S"] is None for key in value["keys"]] == [False, False, False, True]
    V = np.array([key["V"] for key in value["keys"]])
    alpha = np.array([key["alpha"] for key in value["keys"]])
    np.testing.assert_allclose(alpha @ V, value["vectors"]["O_head"], atol=1e-5)
    K = np.array([key["K"] for key in value["keys"]])
    raw = [key["S_raw"] for key in value["keys"]]
    np.testing.assert_allclose(K @ value["vectors"]["Q_rotated"], raw, rtol=1e-4)
    stream = value["stream"]
    np.testing.assert_allclose(np.add(stream["x"], stream["attended"]), stream["x_attended"], atol=1e-5)
    np.testing.assert_allclose(np.add(stream["x_attended"], stream["fed"]), stream["x_out"], atol=1e-5)
    assert value["next"] == {"id": 444, "piece": "你"}
    assert [token["piece"] for token in value["tokens"]] == ["<bos>", "我", "爱", "你"]
    assert len(value["lens"]) == 5
    assert value["lens"][-1]["id"] == value["best"][0]["id"]


# --- the command -----------------------------------------------------------------------------------------------------


def test_no_colours_where_the_output_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = explain("我爱你").stdout
    assert "\x1b" not in piped
    coloured = CliRunner().invoke(main, ["explain", "我爱你"], color=True).stdout
    assert "\x1b[1m" in coloured
    assert click.unstyle(coloured) == piped
    monkeypatch.setenv("NO_COLOR", "1")
    assert CliRunner().invoke(main, ["explain", "我爱你"], color=True).stdout == piped


def test_columns_says_how_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    assert max(map(cell_len, explain("我爱你").stdout.splitlines())) <= 44
    monkeypatch.setenv("COLUMNS", "9")
    assert columns.page_width() == columns.NARROWEST
    monkeypatch.setenv("COLUMNS", "400")
    assert columns.page_width() == columns.WIDEST
    monkeypatch.delenv("COLUMNS")
    assert columns.page_width() == columns.USUAL_WIDTH


def test_standard_input_is_a_prompt() -> None:
    result = CliRunner().invoke(main, ["explain", "-"], input="我爱你")
    assert result.stdout == explain("我爱你").stdout


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((), "PROMPT is missing: it may be left out with --softmax and --scaling"),
        (("",), "the prompt is empty: give at least one character"),
        (("春", "--layer", "4"), "there is no layer 4: from 0 to 3, or from -1 back to -4"),
        (("春", "--head", "-4"), "there is no head -4: from 0 to 2, or from -1 back to -3"),
        (("春", "--token", "2"), "there is no token 2: from 0 to 1, or from -1 back to -2"),
        (("春", "--max-tokens", "-1"), "max_tokens is -1"),
        (("春", "--softmax", "--scaling"), "--softmax and --scaling are two things: choose one"),
        (("--scaling", "--context", "32"), "context is 32: at least 64 is needed to show how costs grow"),
        (("--scaling", "--svg", "nowhere/there.svg"), "nowhere/there.svg: there is no directory"),
        (("--scaling", "--svg", "."), ". is a directory: name a file"),
        (("--scaling", "--backend", "nothing"), "unknown backend 'nothing'"),
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: tuple[str, ...], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = explain(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {fault}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "图.svg"
    write_text_file(str(path), "一\n")
    assert path.read_bytes() == "一\n".encode()
    monkeypatch.setattr("ringlet.core.terminal.files.os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(RingletError, match=r"图.svg: full$"):
        write_text_file(str(path), "二")
    assert [file.name for file in tmp_path.iterdir()] == ["图.svg"]
    assert path.read_bytes() == "一\n".encode()


# --- softmax ---------------------------------------------------------------------------------------------------------


def test_the_study_is_what_plain_formulas_give() -> None:
    pipe = random_pipeline(window=5)
    trace = pipe.trace(tokens(9, pipe.model.config))
    study = study_softmax(trace)
    for found in study.layers:
        spreads, entropies, even, largest = [], [], [], []
        for step in trace.steps:
            layer = step.layers[found.layer]
            for head, row in np.ndindex(layer.S.shape[:2]):
                raw = [
                    float(s) for s, kept in zip(layer.S_raw[head, row], layer.S[head, row], strict=True) if kept > -1e9
                ]
                if len(raw) < 2:
                    continue
                mean = sum(raw) / len(raw)
                spreads.append(sum((s - mean) ** 2 for s in raw) / len(raw))
                e = np.exp(np.array(raw) * 0.5)  # the random model's scale
                p = e / e.sum()
                entropies.append(-sum(x * np.log(x) for x in p))
                even.append(np.log(len(raw)))
                largest.append(max(p))
        assert found.spread_raw == pytest.approx(np.sqrt(np.mean(spreads)), rel=1e-5)
        assert found.spread == pytest.approx(0.5 * found.spread_raw, rel=1e-5)
        assert found.entropy == pytest.approx(np.mean(entropies), rel=1e-5)
        assert found.entropy_even == pytest.approx(np.mean(even), rel=1e-5)
        assert found.largest == pytest.approx(np.mean(largest), rel=1e-5)
        assert found.entropy_raw < found.entropy < found.entropy_even
        assert found.largest_raw > found.largest
    for histogram in (study.scores, study.largest):
        assert len(histogram.edges) == len(histogram.raw) + 1 == len(histogram.scaled) + 1
        assert histogram.raw.sum() == pytest.approx(1)
        assert histogram.scaled.sum() == pytest.approx(1)


def test_a_soft_cap_holds_with_the_scale_and_without() -> None:
    tiny = open_tiny("gemma2")
    pipe = pipeline_of(NumpyBackend(tiny.config, tiny.weights), context=40)
    pipe.removed_ids = np.empty(0, np.int64)
    study = study_softmax(pipe.trace(tiny.ids[:12]))
    assert study.score_soft_cap == 2
    assert all(layer.largest_raw <= np.exp(4) / (1 + np.exp(4)) for layer in study.layers)
    assert "caps S at ±2" in " ".join(softmax_lines(study, 80))


def test_one_token_has_no_softmax_to_study() -> None:
    pipe = random_pipeline()
    with pytest.raises(RingletError, match="a single token, whose α is 1 in any case"):
        study_softmax(pipe.trace([5]))


@pytest.mark.parametrize("width", [40, 80])
def test_the_study_in_the_terminal(poet: Pipeline, width: int) -> None:
    study = study_softmax(poet.trace(USUAL_TEXT))
    lines = [click.unstyle(line) for line in softmax_lines(study, width)]
    assert max(map(cell_len, lines)) <= width
    for layer in study.layers:
        shown = f"{layer.spread_raw:.2f} {layer.spread:.2f} {layer.entropy:.2f} {layer.entropy_raw:.2f}"
        assert f"{layer.layer} {shown} {layer.entropy_even:.2f}" in [" ".join(line.split()) for line in lines]
    assert explain("--softmax").stdout.splitlines()[0] == "Why √d_k"
    value = json.loads(explain("春眠不觉晓", "--softmax", "--json").stdout)
    assert value["text"] == "春眠不觉晓"


# --- text in columns -------------------------------------------------------------------------------------------------


def test_text_in_columns() -> None:
    assert padded("爱", 4) == "爱  "
    assert padded("爱", 4, right=True) == "  爱"
    assert padded("longer", 2) == "longer"
    assert (cut("我爱你", 6), cut("我爱你", 5), cut("abcd", 3)) == ("我爱你", "我爱…", "ab…")
    assert (visible(" the"), visible("\n"), visible("\x1b[0m"), visible("我")) == ("␣the", "\\n", "\\x1b[0m", "我")
    values = (1.005, -0.001, -2, 99.999, 123.456, -2529.12, 123456, -1234567, -np.inf)
    shown = ["1.00", "0.00", "-2.00", "100.00", "123.5", "-2529", "123456", "-1e+06", "−∞"]
    assert [number(value) for value in values] == shown
    assert number(0.12345, 3) == "0.123"
    assert wrapped("aa bb 「我」 cc", 7, indent="-") == ["aa bb", "-「我」", "-cc"]
    assert wrapped("a 我爱你", 5) == ["a", "我爱", "你"]
    assert fitting_numbers([1, 2, 3], 21) == "   1.00   2.00   3.00"
    assert fitting_numbers([1, 2, 3], 20) == "   1.00   2.00 …"
    assert fitting_numbers([1, 2, 3], 1) == "   1.00 …"
    assert [bar(share, 2) for share in (0, 0.5, 1, 2, -1)] == ["", "█", "██", "██", ""]
    assert bar(1 / 16, 2) == "▏"
    assert span(np.array([0, 1, 2, 5, 7, 8])) == "tokens 0–2, 5, 7–8"
    assert span(np.array([4])) == "token 4"


@given(st.text(), st.integers(10, 60))
def test_wrapped_text_keeps_its_words(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert "".join(lines).replace(" ", "") == "".join(text.split())
    assert max(map(cell_len, lines), default=0) <= width
