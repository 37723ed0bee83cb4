"""`explain --html`: one page that stands alone, whose data are the trace's, whatever its tokens hold."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from headless_browser import Browser, find_browser
from tiny_models import NAMES, open_tiny
from tiny_pipeline import pipeline_of, random_pipeline

from ringlet.cli import main
from ringlet.core.errors import RingletError
from ringlet.core.explanation.html_page import html_page
from ringlet.core.explanation.page_data import check_page_size
from ringlet.core.explanation.trace import Trace
from ringlet.core.pipeline import Pipeline
from ringlet.plugins.backends.numpy import NumpyBackend

MEGABYTE = 1_000_000
HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>{{data}} \u2028\u2029\u202e]]>&lt;&amp;'\"\\u003c"
LINKS = ("src", "href", "xlink:href", "action", "data", "poster", "srcset")
VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """A page's elements in order, and the text inside each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.faults: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data

    @property
    def data(self) -> dict:
        return json.loads(self.scripts[0])


@cache
def poet() -> Pipeline:
    return Pipeline.from_pretrained(backend="numpy")


@cache
def sliding() -> Pipeline:
    return Pipeline.from_pretrained(backend="numpy", context=8, sinks=2, overflow="slide")


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


# --- the data are the trace's ----------------------------------------------------------------------------------------


def decoded(text: str) -> list[float]:
    """Two digits of base64url are twelve bits, as the standard library reads them: four are three bytes."""
    data = base64.urlsafe_b64decode(text + "AA" * (len(text) % 4 // 2))
    bits = int.from_bytes(data, "big")
    numbers = [(bits >> (8 * len(data) - 12 * (at + 1))) & 4095 for at in range(len(text) // 2)]
    return [number / 4095 for number in numbers]


def told_weights(data: dict, layer: int, head: int) -> dict[tuple[int, int], float]:
    """α by (query, key), as the page's script finds it."""
    ring = data["rings"][data["ring_of_layer"][layer]]
    numbers = iter(decoded(data["alpha"][layer][head]))
    found = {}
    for (first, count, _), state in zip(data["steps"], ring["states"], strict=True):
        for query in range(first, first + count):
            keys = sorted(key for key in state["reused"] + state["added"] if key <= query)
            found.update({(query, key): next(numbers) for key in keys})
    assert next(numbers, None) is None
    return found


def true_weights(trace: Trace, layer: int, head: int) -> dict[tuple[int, int], float]:
    """Of all that the mask lets through."""
    found = {}
    for step in trace.steps:
        arrays = step.layers[layer]
        for row, column in np.argwhere(np.isfinite(arrays.S[head])).tolist():
            pair = int(arrays.query_positions[row]), int(arrays.key_positions[column])
            found[pair] = float(arrays.alpha[head, row, column])
    return found


def check_data(trace: Trace) -> dict:
    """The page's data, compared with the trace."""
    data = Page(html_page(trace)).data
    config = trace.config
    assert data["ids"] == trace.token_ids
    assert data["pieces"] == trace.pieces
    assert len(data["alpha"]) == config.n_layers
    for layer, head in np.ndindex(config.n_layers, config.n_heads):
        told, true = told_weights(data, layer, head), true_weights(trace, layer, head)
        assert told.keys() == true.keys()
        assert max(abs(told[pair] - true[pair]) for pair in true) <= 0.5 / 4095 + 1e-6
    for at in range(config.n_layers + 1):
        lens = data["lens"][at]
        rows = [[getattr(step.lens, name)[at] for step in trace.steps] for name in ("ids", "probabilities")]
        ids, shares = (np.concatenate(found)[:, : lens["top"]].ravel() for found in rows)
        assert lens["ids"] == ids.tolist()
        assert np.abs(lens["probabilities"] - shares).max() < 0.51e-4
    best = np.concatenate([step.best.ids[:, : data["best"]["top"]] for step in trace.steps])
    assert np.reshape(data["best"]["ids"], best.shape).tolist() == best.tolist()
    for layer, kind in enumerate(data["ring_of_layer"]):
        for step, state in zip(trace.steps, data["rings"][kind]["states"], strict=True):
            ring = step.layers[layer].ring
            held = {slot: position for slot, position in enumerate(state["held"]) if position >= 0}
            assert held == dict(zip(ring.slots.tolist(), ring.positions.tolist(), strict=True))
            assert (state["next_slot"], state["overwrites_next"]) == (ring.next_slot, ring.overwrites_next)
            assert state["overwritten"] == ring.overwritten.tolist()
    return data


@pytest.mark.parametrize("name", NAMES)
def test_the_data_are_those_of_every_architecture(name: str) -> None:
    tiny = open_tiny(name, "hf")
    pipe = pipeline_of(NumpyBackend(tiny.config, tiny.weights), context=64)
    pipe.removed_ids = np.empty(0, np.int64)  # the tokenizer knows ids beyond these vocabularies
    check_data(pipe.trace(tiny.ids[:20], max_tokens=3))


def test_the_data_are_those_of_rings_with_windows_and_sinks() -> None:
    slid = check_data(sliding().trace("床前明月光，疑是地上霜", max_tokens=9))
    assert slid["rings"][0]["sinks"] == 2
    assert any(state["overwritten"] for state in slid["rings"][0]["states"])
    windows = check_data(random_pipeline(window=5).trace("ring ring", max_tokens=4))
    assert [ring["is_window"] for ring in windows["rings"]] == [True, False]
    assert windows["rings"][0]["capacity"] == 5


def test_a_trace_of_one_token_has_a_page() -> None:
    check_data(random_pipeline().trace("a"))


def test_what_the_page_begins_with_is_what_was_asked_for() -> None:
    trace = poet().trace("我爱你", max_tokens=2)
    page = html_page(trace, -1, 2, -3)
    assert Page(page).data["start"] == {"layer": trace.config.n_layers - 1, "head": 2, "position": 3}


# --- the file stands alone -------------------------------------------------------------------------------------------


def check_page(text: str) -> Page:
    """It is HTML in which every element is closed, with one script, and nothing that is fetched."""
    page = Page(text)
    assert page.faults == []
    assert page.open == []
    names = [tag for tag, _ in page.elements]
    assert names.count("script") == 2
    assert not {"link", "iframe", "object", "embed", "base", "form", "img", "audio", "video"} & set(names)
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in LINKS:
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    policies = [attributes.get("content") or "" for _, attributes in page.elements if "http-equiv" in attributes]
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert len(policies) == 1
    assert policies[0].startswith(f"default-src 'none'; script-src 'sha256-{digest}';")
    assert set(re.findall(r"\w+://[^\s\"'<>)]+", text.replace(page.scripts[0], ""))) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\((?!#)", text.replace(page.scripts[0], ""))
    return page


def test_the_page_stands_alone_and_can_be_read_without_a_mouse() -> None:
    page = check_page(html_page(poet().trace("我爱你", max_tokens=2)))
    assert [attributes["lang"] for tag, attributes in page.elements if tag == "html"] == ["en"]
    for tag, attributes in page.elements:
        if tag == "button":
            assert attributes.get("aria-label"), attributes
        if tag in ("nav", "canvas") or attributes.get("role") in ("radiogroup", "img"):
            assert {"aria-label", "aria-labelledby", "aria-describedby"} & set(attributes), (tag, attributes)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [attributes.get("aria-labelledby") or "" for _, attributes in page.elements]
    assert set(" ".join(named).split()) <= set(ids)


def test_every_id_that_the_script_asks_for_is_there() -> None:
    page = check_page(html_page(poet().trace("春")))
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert set(re.findall(r"byId\('([^']+)'\)", page.scripts[1])) <= ids


@pytest.mark.parametrize("text", [HOSTILE, "{{script}}{{nothing}}", "]]></svg><script>x"])
def test_tokens_cannot_become_markup(text: str) -> None:
    """Bytes one by one, and as one token."""
    trace = random_pipeline().trace(text)
    as_one = trace_with_piece(trace, text)
    for found in (trace, as_one, poet().trace(text)):
        page = check_page(html_page(found))
        assert page.data["pieces"] == found.pieces
        assert not set("<>&\u2028\u2029") & set(page.scripts[0])


def trace_with_piece(trace: Trace, piece: str) -> Trace:
    """Every token is this one, whichever it was."""
    n = len(trace.pieces)
    return replace(trace, pieces=[piece] * n, texts=dict.fromkeys(trace.texts, piece), text=piece * n)


def test_a_page_of_64_tokens_is_small() -> None:
    trace = poet().trace(poet().tokenizer.encode("春江潮水连海平，海上明月共潮生。" * 8)[:64])
    assert len(trace.token_ids) == 64
    assert len(html_page(trace).encode()) < 2 * MEGABYTE


@pytest.mark.real_model
@pytest.mark.slow
@pytest.mark.parametrize("model", ["smollm2_path", "gemma_path"])
def test_a_page_of_64_tokens_of_a_real_model_is_small(model: str, request: pytest.FixtureRequest) -> None:
    pipe = Pipeline.from_pretrained(request.getfixturevalue(model), backend="numpy")
    ids = pipe.tokenizer.encode("The cat sat on the mat because it was warm. 床前明月光，疑是地上霜。 " * 4)[:60]
    trace = pipe.trace(ids, max_tokens=4)
    assert len(html_page(trace).encode()) < 2 * MEGABYTE


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    result = explain("我爱你", "--max-tokens", "2", "--layer", "1", "--html", str(path))
    assert result.exit_code == 0, result.output
    assert "我爱你" in result.stdout
    assert check_page(path.read_text(encoding="utf-8")).data["start"]["layer"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["春", "--html", "{tmp}/none/page.html"], "{tmp}/none/page.html: there is no directory {tmp}/none"),
        (["春", "--html", "{tmp}"], "{tmp} is a directory: name a file"),
        (["--softmax", "--html", "{tmp}/a.html"], "--html goes with neither --softmax nor --scaling"),
        (["--scaling", "--html", "{tmp}/a.html"], "--html goes with neither --softmax nor --scaling"),
    ],
    ids=["no-directory", "directory", "softmax", "scaling"],
)
def test_what_cannot_be_is_told_in_a_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = explain(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: {message.format(tmp=tmp_path)}")
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_would_be_too_large_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    result = explain("春" * 900, "--max-tokens", "2000", "--html", str(tmp_path / "page.html"))
    assert result.exit_code == 2
    assert re.fullmatch(
        r"Error: a page of 2,9\d\d tokens would take 10\d MB; with this model 1,154 are possible: give a shorter "
        r"PROMPT, or draw less \(--max-tokens\)\n",
        result.stderr,
    )
    assert list(tmp_path.iterdir()) == []


def test_as_many_tokens_as_are_said_to_be_possible_are() -> None:
    config = poet().model.config
    with pytest.raises(RingletError) as refused:
        check_page_size(config, 10**6)
    found = re.search(r"model ([\d,]+) are", str(refused.value))
    assert found
    most = int(found[1].replace(",", ""))
    check_page_size(config, most)
    with pytest.raises(RingletError):
        check_page_size(config, most + 1)


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if find_browser() is None:
        pytest.skip("no Chromium on the PATH")
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def pictures(browser: Browser) -> list[str]:
    """What the drawn parts show now: both kinds of maps as PNG, lens and ring as text."""
    return [
        browser.run("document.querySelector('.map canvas').toDataURL()"),
        browser.run("document.getElementById('head').toDataURL()"),
        browser.run("document.getElementById('lens').textContent"),
        browser.run("document.getElementById('ring').outerHTML"),
        browser.run("document.getElementById('where').textContent"),
    ]


PRESS = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{}', bubbles: true}}))"


@pytest.mark.slow
def test_the_slider_changes_every_picture(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html_page(sliding().trace("床前明月光，疑是地上霜", max_tokens=9)), encoding="utf-8")
    browser.open(path)
    last = pictures(browser)
    browser.run("(s => { s.value = 1; s.dispatchEvent(new Event('input')) })(document.getElementById('step'))")
    earlier = pictures(browser)
    assert not [one for one, other in zip(last, earlier, strict=True) if one == other]
    browser.run("document.getElementById('forth').click()")
    assert pictures(browser)[-1].startswith("Step 3 of ")
    assert browser.faults() == []


@pytest.mark.slow
def test_the_page_is_led_by_keys(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html_page(poet().trace("我爱你", max_tokens=2)), encoding="utf-8")
    browser.open(path)
    browser.run("document.querySelector('.map[aria-checked=true]').focus()")
    for key in ("ArrowDown", "ArrowRight"):
        browser.run(PRESS.format(key))
    checked = browser.run("document.querySelector('.map[aria-checked=true]').getAttribute('aria-label')")
    assert checked.startswith("layer 1, head 1: ")
    assert "Layer 1, head 1" in browser.run("document.getElementById('head-lead').textContent")
    browser.run("document.getElementById('head').focus()")
    before = browser.run("document.getElementById('readout').textContent")
    browser.run(PRESS.format("ArrowUp"))
    assert browser.run("document.getElementById('readout').textContent") != before
    assert browser.faults() == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_hostile_tokens_in_a_browser(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    """Nothing runs, nothing is asked for, and nothing is wider than the window."""
    trace = random_pipeline(window=5).trace("hostile!", max_tokens=3)
    path = tmp_path / "page.html"
    path.write_text(html_page(trace_with_piece(trace, HOSTILE)), encoding="utf-8")
    browser.open(path, width=width, dark=dark)
    assert browser.faults() == []
    assert browser.requests() == [path.absolute().as_uri()]
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.querySelectorAll('.map').length") == trace.config.n_layers * trace.config.n_heads
    assert browser.run("document.documentElement.scrollWidth") <= width
