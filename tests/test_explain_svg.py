"""`explain --svg`: a picture that is sound XML, says what the trace says, and in which no words touch or leave it."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from unicodedata import east_asian_width
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from test_trace import tiny_pipe, tiny_trace
from tiny_models import FORMS, NAMES
from tiny_pipeline import EOS, random_pipeline

from ringlet import Pipeline
from ringlet.cli import main
from ringlet.core.errors import RingletError
from ringlet.core.explanation.attention_flow import attention_flow
from ringlet.core.explanation.flow_ring import run_angles, slot_runs
from ringlet.core.explanation.trace import Trace
from ringlet.core.explanation.walk import Question, question
from ringlet.core.pictures.drawing import character_width, fitting, formula_parts

SVG = "{http://www.w3.org/2000/svg}"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = [
    "<script>&amp;]]>", "\x00\x07\x1b[31m", "\n", "\r\n\t", "中华人民共和国万岁万岁万万岁",
    "\u202eabc", "\ufdfd" * 4, "W" * 40,
    "\ud800", "\ufffe\uffff", "e" + "\u0301" * 9, "👩\u200d👩\u200d👧", "", "\"'", "\\", "\ufdfa",
]  # fmt: skip


@cache
def embedded() -> Pipeline:
    return Pipeline.from_pretrained(backend="numpy")


def drawn(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)


def words(picture: str) -> list[str]:
    """The text of each element, without titles that readers show at the pointer."""
    found = []
    for element in drawn(picture).iter(f"{SVG}text"):
        for title in element.findall(f"{SVG}title"):
            element.remove(title)
        found.append("".join(element.itertext()))
    return found


def numbers(picture: str, kind: str) -> list[str]:
    """What elements of a class say, from top to bottom."""
    return [
        "".join(element.itertext())
        for element in drawn(picture).iter(f"{SVG}text")
        if (element.get("class") or "").startswith(kind)
    ]


def agrees(shown: str, value: float) -> bool:
    """A number as it is shown, cut to some digits, and what it stands for."""
    if shown in ("−∞", "∞"):
        return bool(np.isinf(value))
    text = shown.replace("−", "-")
    decimals = len(text.partition("e")[0].partition(".")[2])
    exponent = int(text.partition("e")[2] or 0)
    return abs(float(text) - float(value)) <= 0.5 * 10.0 ** (exponent - decimals) * 1.0001


def all_agree(shown: list[str], values: np.ndarray) -> bool:
    return len(shown) == len(values) and all(map(agrees, shown, values))


# --- what it says ----------------------------------------------------------------------------------------------------


def rows_of(picture: str) -> dict[float, list[tuple[float, str, str]]]:
    """By height: x, kind and words of every text on a line, from left to right."""
    found: dict[float, list[tuple[float, str, str]]] = {}
    for element in drawn(picture).iter(f"{SVG}text"):
        text = "".join(part for part in element.itertext())
        found.setdefault(float(element.get("y", "")), []).append(
            (float(element.get("x", "")), element.get("class", ""), text)
        )
    return {y: sorted(row) for y, row in sorted(found.items())}


def row_named(picture: str, name: str) -> list[str]:
    """The words in the columns of tokens, of the row with this label."""
    for row in rows_of(picture).values():
        if any(text == name and x < 200 for x, _, text in row):
            return [text for x, _, text in row if 292 < x < 720]
    raise AssertionError(f"no row {name}")


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_scores_and_weights_are_those_of_the_trace(name: str, form: str) -> None:
    trace = tiny_trace(name, form)
    for layer in range(trace.config.n_layers):
        asked = question(trace, layer, -1, 4)
        picture = attention_flow(trace, layer, -1, 4)
        keys = shown_keys(asked)
        assert all_agree(row_named(picture, "Q·KT")[: len(keys)], asked.scores("S_raw")[keys])
        scaled = next(text for text in words(picture) if re.fullmatch(r"Q·KT(/√dk| × [\d.]+)", text))
        assert all_agree(row_named(picture, scaled)[: len(keys)], asked.scores("S_scaled")[keys])
        assert all_agree(row_named(picture, "S")[: len(keys)], asked.scores("S")[keys])
        alpha = asked.scores("alpha")
        shares = numbers(picture, "a bold")
        assert all_agree(shares[: len(keys)], alpha[keys])
        rest = 1 - float(alpha[keys].sum())
        assert len(shares) == len(keys) + (len(keys) < len(alpha))
        assert len(keys) == len(alpha) or agrees(shares[-1], rest)


def shown_keys(asked: Question) -> list[int]:
    """The keys with columns: all of six, else the asking token and the four heaviest of the others."""
    positions, alpha = asked.arrays.key_positions.tolist(), asked.scores("alpha")
    if len(positions) <= 6:
        return list(range(len(positions)))
    own = positions.index(asked.position)
    ranked = sorted((key for key in range(len(positions)) if key != own), key=lambda key: (-alpha[key], key))
    return sorted([own, *ranked[:4]])


@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_those_of_the_trace(name: str) -> None:
    """Q and K as they are projected, normed, turned; V; the terms of O_head, which add up to it."""
    trace = tiny_trace(name)
    asked = question(trace, 0, 0, 5)
    picture, keys = attention_flow(trace, 0, 0, 5), shown_keys(asked)
    turned = trace.config.layers[0].rope is not None
    stages = ["", *(["_normed"] if asked.arrays.Q_normed is not None else []), *(["_rotated"] if turned else [])]
    queries = np.concatenate([asked.vector(f"Q{stage}")[:3] for stage in stages])
    assert all_agree(numbers(picture, "q number"), queries)
    positions = asked.arrays.key_positions[keys]
    rows = [trace.rows(f"K{stage}", 0, positions)[:, asked.kv_head, :3].ravel() for stage in stages]
    assert all_agree(numbers(picture, "k number"), np.concatenate(rows))
    V, alpha = asked.values, asked.scores("alpha")
    terms = [alpha[key] * V[key, :3] for key in keys]
    if len(keys) < len(alpha):
        others = [key for key in range(len(alpha)) if key not in keys]
        terms.append(alpha[others] @ V[others, :3])
    assert all_agree(numbers(picture, "v number"), np.concatenate([V[keys, :3].ravel(), np.concatenate(terms)]))
    assert all_agree(numbers(picture, "o number"), asked.vector("O_head")[:3])
    np.testing.assert_allclose(np.sum(terms, axis=0), asked.vector("O_head")[:3], atol=1e-5)
    at = [text for text in words(picture) if text.startswith("at ")]
    assert at == ([f"at {asked.position}", *(f"at {position}" for position in positions)] if turned else [])


@pytest.mark.parametrize("name", NAMES)
def test_the_stream_and_the_best_tokens_are_those_of_the_trace(name: str) -> None:
    trace = tiny_trace(name)
    asked, picture = question(trace, -1, 0, -1), attention_flow(trace, -1, 0, -1)
    O_attention = asked.vector("O_attention")
    streams = [O_attention, *([asked.vector("attended")] if trace.config.post_norms else [])]
    assert all_agree(numbers(picture, "o usual"), np.concatenate([vector[:4] for vector in streams]))
    summed = [text for x, _, text in row_with(picture, "= x for what follows") if 250 < x < 502]
    assert all_agree(summed, asked.vector("x_attended")[:4])
    probabilities = asked.step.best.probabilities[asked.row][:5]
    shown = [text for row in rows_of(picture).values() for x, kind, text in row if x > 665 and kind == "ink usual"]
    assert all_agree(shown[-5:], probabilities)
    assert "then a last norm" in words(picture)


def row_with(picture: str, name: str) -> list[tuple[float, str, str]]:
    return next(row for row in rows_of(picture).values() if any(text == name for _, _, text in row))


def test_each_head_says_what_it_looks_at_most() -> None:
    trace = embedded().trace("我爱你")
    picture = attention_flow(trace, 1, 2)
    alpha = trace.steps[0].layers[1].alpha[:, -1]
    assert all_agree(numbers(picture, "a small"), alpha.max(axis=-1))
    pieces = [text for x, _, text in row_with(picture, "looks at most") if x > 170]
    assert pieces == [trace.pieces[at] for at in alpha.argmax(axis=-1)]


def test_a_model_without_rope_has_no_rope_and_one_with_shows_positions() -> None:
    assert not any("RoPE" in text for text in words(attention_flow(tiny_trace("gpt2"))))
    assert "x ← LayerNorm(x)" in words(attention_flow(tiny_trace("gpt2")))
    assert any("RoPE" in text for text in words(attention_flow(tiny_trace("llama"))))


def test_the_mask_hides_the_future_and_what_a_window_does_not_reach() -> None:
    trace = random_pipeline().trace("abcde")
    picture = attention_flow(trace, token=2)
    assert row_named(picture, "+ mask") == ["0", "0", "0", "−∞", "−∞"]
    assert row_named(picture, "S")[3:] == ["−∞", "−∞"]
    assert "2 tokens" in " ".join(words(picture))
    assert row_named(attention_flow(trace, token=-1), "+ mask") == ["0"] * 5


def test_a_step_with_the_ring_computes_one_token_and_keeps_the_others() -> None:
    trace = embedded().trace("我爱你", max_tokens=1)
    whole = " ".join(words(attention_flow(trace)))
    assert "not computed again: k and v are in the ring" in whole
    assert "Not computed again: k and v of 4 tokens, 0–3." in whole
    assert "kept: 0–3" in whole
    assert "added by this step: 4" in whole
    first = " ".join(words(attention_flow(trace, token=3)))
    assert "added by this step: 0–3" in first
    assert "ot computed again" not in first


def test_a_ring_that_slides_shows_sinks_and_what_goes_next() -> None:
    trace = random_pipeline(context=8, sinks=2, overflow="slide").trace("abcdefghijkl", max_tokens=4)
    ring, picture = trace.steps[-1].layers[1].ring, attention_flow(trace, 1)
    whole = " ".join(words(picture))
    assert "sinks, which stay: 0–1" in whole
    assert f"Written over: {ring.overwritten[0]}." in whole
    assert f"The next token goes to slot {ring.next_slot}, over token {ring.overwrites_next}." in whole
    assert "Sinks are asked as from position 7" in whole
    kinds = [kind for kind, _, _ in slot_runs(ring)]
    assert kinds.count("sink") == 2
    assert kinds.count("new") == 1
    assert kinds[int(ring.slots[ring.positions == trace.steps[-1].positions[-1]][0])] == "new"
    assert len(kinds) == ring.capacity == 8
    slots = [(float(t.get("x", "")), float(t.get("y", "")), t.text or "") for t in tiny_texts(picture)]
    middle_x, middle_y = np.mean([slot[:2] for slot in slots], axis=0)
    turns = {text: np.arctan2(x - middle_x, middle_y - y) % (2 * np.pi) for x, y, text in slots}
    assert sorted(turns, key=turns.__getitem__) == [
        str(position) for position in ring.positions[np.argsort(ring.slots)]
    ]


def tiny_texts(picture: str) -> list[ElementTree.Element]:
    return [t for t in drawn(picture).iter(f"{SVG}text") if "tiny" in (t.get("class") or "").split()]


@pytest.mark.parametrize("runs", [[("new", 0, 3), ("free", 4, 9999)], [("free", i, i) for i in range(16)]])
def test_the_ring_closes_and_every_run_can_be_seen(runs: list) -> None:
    angles = run_angles(runs)
    assert sum(angles) == pytest.approx(360)
    assert min(angles) >= min(14, 360 / len(runs))


def test_the_picture_in_the_docs_is_the_one_that_is_drawn(repository: Path) -> None:
    """But for the last digits of numbers."""
    kept = words((repository / "docs/pictures/attention-poet.svg").read_text(encoding="utf-8"))
    found = words(attention_flow(embedded().trace("我爱你")))
    assert len(kept) == len(found)
    for shown, fresh in zip(kept, found, strict=True):
        numbers_shown, numbers_fresh = (re.findall(r"−?\d+\.\d+", text) for text in (shown, fresh))
        assert re.sub(r"−?\d+\.\d+", "#", shown) == re.sub(r"−?\d+\.\d+", "#", fresh)
        for one, other in zip(numbers_shown, numbers_fresh, strict=True):
            assert abs(float(one.replace("−", "-")) - float(other.replace("−", "-"))) < 0.011


# --- how it looks ----------------------------------------------------------------------------------------------------


def long_prompt() -> Trace:
    return embedded().trace("床前明月光，疑是地上霜。举头望明月，低头思故乡。" * 4)


def renamed(trace: Trace, pieces: list[str]) -> Trace:
    """With these for the names of its tokens, and of all that it would say."""
    from dataclasses import replace

    named = [pieces[at % len(pieces)] for at in range(len(trace.pieces))]
    texts = {token_id: pieces[token_id % len(pieces)] for token_id in trace.texts}
    return replace(trace, pieces=named, texts=texts, model=f"folder/{pieces[0]}\n.gguf")


def pictures() -> dict[str, str]:
    """Every shape of a step."""
    ring = random_pipeline(scale=40.0, context=12, sinks=2, overflow="slide", window=5).trace("abc" * 9, max_tokens=9)
    poem = embedded().trace("我爱你", max_tokens=9)
    hostile = {f"hostile {at}": attention_flow(renamed(poem, [piece]), 1) for at, piece in enumerate(HOSTILE)}
    architectures = {
        f"{name} {layer}": attention_flow(tiny_trace(name), layer, -1, token)
        for name in NAMES
        for layer, token in ((0, -1), (-1, 2))
    }
    return {
        "one token": attention_flow(embedded().trace([1])),
        "short": attention_flow(poem, token=3),
        "drawn": attention_flow(poem, 2, 1),
        "long": attention_flow(long_prompt(), 3, 2),
        "middle of a long one": attention_flow(long_prompt(), 0, 0, 30),
        "ring": attention_flow(ring, 1),
        "window": attention_flow(ring, 0, 0, 20),
        **hostile,
        **architectures,
    }


ALL_PICTURES = cache(pictures)


def em(character: str) -> float:
    """How wide a character is at most; the mean of what is said is less."""
    return 1.0 if east_asian_width(character) in "WF" else character_width(character)


def boxes(picture: str) -> list[tuple[str, float, float, float, float]]:
    """Words with left, top, right and bottom, from the widths of characters."""
    sizes = dict(re.findall(r"\.attention-flow \.(head|big|usual|number|small|tiny) \{ font-size: ([\d.]+)px", picture))
    found = []
    for element in drawn(picture).iter(f"{SVG}text"):
        kind = (element.get("class") or "").split()
        size = next((float(sizes[name]) for name in kind if name in sizes), 16.0)
        if "math" in kind:
            width = 0.0
            for span in element.iter(f"{SVG}tspan"):
                small = 0.72 if span.get("class") in ("sub", "sup") else 1.0
                width += small * size * 0.9 * sum(map(em, span.text or ""))
        else:
            text = element.text or ""
            width = float(element.get("textLength") or size * 0.92 * sum(map(em, text)))
        x, y = float(element.get("x", "")), float(element.get("y", ""))
        left = x - width * {"middle": 0.5, "end": 1.0}.get(element.get("text-anchor", ""), 0.0)
        found.append(("".join(element.itertext()), left, y - 0.74 * size, left + width, y + 0.2 * size))
    return found


def test_no_words_touch_and_none_leave_the_picture() -> None:
    for name, picture in ALL_PICTURES().items():
        _, _, width, height = map(float, (drawn(picture).get("viewBox") or "").split())
        found = boxes(picture)
        assert len(found) > 40
        for at, (text, left, top, right, bottom) in enumerate(found):
            assert 20 <= left <= right <= width - 20, (name, text)
            assert 10 <= top <= bottom <= height - 20, (name, text)
            for other, left_2, top_2, right_2, bottom_2 in found[at + 1 :]:
                apart = right <= left_2 or right_2 <= left or bottom <= top_2 or bottom_2 <= top
                assert apart, (name, text, other)


MEASURE = """<script>onload = () => {
  const found = [...document.querySelectorAll("svg")].map(svg => {
    const origin = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].filter(t => t.getBBox().width > 0).map(t => {
      const b = t.getBoundingClientRect(), m = parseFloat(getComputedStyle(t).fontSize);
      const base = parseFloat(t.getAttribute("y"));
      return [t.firstChild ? t.textContent : "", b.left - origin.left, base - 0.74 * m, b.right - origin.left,
              base + 0.2 * m].join("\\u0001");
    }).join("\\u0002");
  });
  document.body.textContent = "BEGIN" + found.join("\\u0003") + "END";
}</script>"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_no_words_touch_in_a_browser(tmp_path: Path) -> None:
    """As a real browser sets them, in the fonts of this machine."""
    import html

    everything = ALL_PICTURES()
    page = tmp_path / "page.html"
    body = "".join(f"<div>{picture}</div>" for picture in everything.values())
    page.write_text(f"<!doctype html><meta charset=utf-8><body style='width:1200px'>{body}{MEASURE}", encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"file://{page}"]
    dumped = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode()
    measured = html.unescape(dumped[dumped.index("BEGIN") + 5 : dumped.index("END")]).split("\u0003")
    assert len(measured) == len(everything)
    for name, texts in zip(everything, measured, strict=True):
        found = [
            (words, *map(float, rest)) for words, *rest in (text.split("\u0001") for text in texts.split("\u0002"))
        ]
        for at, (text, left, top, right, bottom) in enumerate(found):
            assert 20 <= left < right <= 940, (name, text)
            for other, left_2, top_2, right_2, bottom_2 in found[at + 1 :]:
                apart = right <= left_2 or right_2 <= left or bottom <= top_2 or bottom_2 <= top
                assert apart, (name, text, other, left, right, left_2, right_2)


def test_tokens_stay_inside_their_chips() -> None:
    for name, picture in ALL_PICTURES().items():
        root = drawn(picture)
        chips = [
            r
            for r in root.iter(f"{SVG}rect")
            if (r.get("class") or "").startswith("chip") and r.get("height") == "25.0"
        ]
        assert 1 <= len(chips) <= 6
        top = float(chips[0].get("y", ""))
        inside = [box for box in boxes(picture) if top < box[4] < top + 25 and 292 < box[1] < 720]
        for chip in chips:
            left, width = float(chip.get("x", "")), float(chip.get("width", ""))
            own = [box for box in inside if left < (box[1] + box[3]) / 2 < left + width]
            assert all(left <= box[1] and box[3] <= left + width for box in own), (name, own)


def test_whatever_a_token_is_the_picture_is_xml_and_shows_it() -> None:
    found = ALL_PICTURES()
    for picture in found.values():
        assert "\ud800" not in picture
        picture.encode("utf-8")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\ufffe\uffff]", picture)
    assert "<script>" not in "".join(found.values())
    assert any(text.startswith("<scr") for text in words(found["hostile 0"]))
    assert r"\n" in words(found["hostile 2"])
    assert r"\u0301" in " ".join(words(found["hostile 10"]))  # marks do not pile up
    cut = [text for text in words(found["hostile 4"]) if text.startswith("中") and " · " not in text]
    assert cut
    assert all("中华人民共和国万岁万岁万万岁".startswith(text.strip("…")) for text in cut)


def test_a_long_prompt_shows_the_tokens_that_matter_and_counts_the_others() -> None:
    trace = long_prompt()
    n = len(trace.token_ids)
    picture = attention_flow(trace, 3, 2)
    assert n > 64
    assert "others" in words(picture)
    assert f"{n - 5:,}" in words(picture)
    assert len(picture) < 60_000


def test_colours_have_a_twin_in_the_dark_and_nothing_comes_from_elsewhere() -> None:
    picture = attention_flow(embedded().trace("我"), name="flow-1")
    style = "".join(element.text or "" for element in drawn(picture).iter(f"{SVG}style"))
    light, dark, paper = re.findall(r"\{[^{}]*--flow-paper:[^{}]*\}", style)
    properties = re.compile(r"--flow-[\w-]+")
    assert properties.findall(light) == properties.findall(dark) == properties.findall(paper)
    assert set(re.findall(r"var\((--flow-[\w-]+)\)", style)) <= set(properties.findall(light))
    assert re.sub(r"max-width.*", "", light).strip("{ ;}") == paper.strip("{ ;}")
    rules = [rule for rule in re.findall(r"([^{};]+)\{", style) if not rule.strip().startswith("@")]
    assert all(part.strip().startswith(".flow-1") for rule in rules for part in rule.split(","))
    used = {kind for element in drawn(picture).iter() for kind in (element.get("class") or "").split()}
    known = set(re.findall(r"\.([a-z][\w-]*)", " ".join(rules)))
    assert used - known - {"i", "sub", "sup"} == set()
    assert set(re.findall(r"https?://[^\"' ]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in picture


@pytest.mark.parametrize("theme", [0, 1])
def test_words_can_be_read_on_their_grounds(theme: int) -> None:
    """WCAG 2.1's contrast of 4.5, in light and in dark."""
    from ringlet.core.pictures.drawing import DARK, LIGHT

    colours = (LIGHT, DARK)[theme]

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        bright, dim = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
        return (bright + 0.05) / (dim + 0.05)

    pairs = [(ink, ground) for ink in ("ink", "faint", "q", "k", "v", "a", "o") for ground in ("paper", "panel")]
    pairs += [("k", "kept"), ("v", "kept"), ("paper", "o"), ("paper", "faint")]
    assert [pair for pair in pairs if contrast(*pair) < 4.5] == []


def test_readers_without_sight_are_told() -> None:
    trace = embedded().trace("我爱你")
    root = drawn(attention_flow(trace))
    ids = {element.get("id"): element.text or "" for element in root if element.get("id")}
    title, description = (ids[name] for name in (root.get("aria-labelledby") or "").split())
    assert root.get("role") == "img"
    assert "你" in title
    alpha = trace.steps[0].layers[0].alpha[0, -1]
    assert all(f"「{piece}」 {share:.3f}" in description for piece, share in zip(trace.pieces, alpha, strict=True))


def test_formulas_are_set_as_they_are_written() -> None:
    assert formula_parts("Q·K^T/√d_k") == [
        ("Q", "i"), ("·", ""), ("K", "i"), ("T", "sup"), ("/√", ""), ("d", "i"), ("k", "sub")
    ]  # fmt: skip
    assert formula_parts("O_head = softmax(S)")[:3] == [("O", "i"), ("head", "sub"), (" = softmax(", "")]
    assert fitting("中华人民", 41, 13) == "中华…"
    preserve = "{http://www.w3.org/XML/1998/namespace}space"  # else some readers drop blanks between the parts
    math = [
        element
        for element in drawn(attention_flow(tiny_trace("llama"))).iter()
        if element.find(f"{SVG}tspan") is not None
    ]
    assert len(math) > 10
    assert all(element.get(preserve) == "preserve" for element in math)


# --- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["explain", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_writes_the_picture_of_what_it_tells(tmp_path: Path) -> None:
    path = tmp_path / "图.svg"
    status, out, err = run("我爱你", "--layer", "-1", "--head", "1", "--token", "2", "--svg", str(path))
    assert status == 0
    assert "爱" in out
    assert err == ""
    assert path.read_text(encoding="utf-8") == attention_flow(embedded().trace("我爱你"), 3, 1, 2)
    assert [file.name for file in tmp_path.iterdir()] == ["图.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("我", "--svg", "nowhere/there.svg"), "nowhere/there.svg: there is no directory"),
        (("我", "--svg", "."), ". is a directory: name a file"),
        (("我", "--head", "9", "--svg", "x.svg"), "there is no head 9: from 0 to 2"),
        (("--softmax", "--svg", "x.svg"), "--svg does not go with --softmax"),
    ],
)
def test_a_picture_that_cannot_be_is_refused_in_a_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(*arguments)
    assert status == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_trace_has_no_such_token_or_layer() -> None:
    trace = random_pipeline().trace([97, EOS, 98])
    for wrong in ({"token": 3}, {"layer": 2}, {"head": -99}):
        with pytest.raises(RingletError, match="there is no"):
            attention_flow(trace, **wrong)
    assert tiny_pipe("llama") is not None
