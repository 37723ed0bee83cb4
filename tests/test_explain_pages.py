"""The pages that teach attention: they show what comes of their commands, and both languages show the same."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_docs import Block, arguments_of, blocks_of

from ringlet.cli import main
from ringlet.core.explanation.trace import LayerRing, LayerTrace, StepTrace, Trace
from ringlet.core.measurement import scaling
from ringlet.core.measurement.inspection import describe_weights
from ringlet.core.pipeline import Pipeline
from ringlet.plugins.backends.numpy import NumpyBackend

WALK, WALK_CHINESE = "docs/self-attention.md", "docs/self-attention.zh-CN.md"
COST, COST_CHINESE = "docs/complexity.md", "docs/complexity.zh-CN.md"
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?")


@cache
def printed(command: str) -> str:
    """What a shell command of ours prints."""
    arguments = arguments_of(shlex.split(command))
    assert arguments is not None, f"nobody runs {command}"
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@cache
def ran(script: str) -> str:
    """What a Python block prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(script, "block.py", "exec"), {"__name__": "__main__"})
    return out.getvalue()


@pytest.fixture(autouse=True)
def numpy_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend "auto" is numpy, which needs no compiling; nothing is timed, for the pages show what is counted."""
    monkeypatch.setattr(NumpyBackend, "rank", 1000)
    monkeypatch.setattr(scaling.Run, "timed", lambda *_, **__: 0.001)
    monkeypatch.delenv("COLUMNS", raising=False)


def same_line(shown: str, found: str) -> bool:
    """Whether they differ in the last digits of numbers only, and in how long bars are."""

    def words(line: str) -> list[str]:
        return re.sub(r"[█▏▎▍▌▋▊▉]+", "", NUMBER.sub("#", line)).split()

    if words(shown) != words(found):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(found), strict=True)
    return all(close(mine, theirs) for mine, theirs in pairs)


def close(shown: str, found: str) -> bool:
    """Within one and a half of the last digit shown; whole numbers are the same."""
    decimals = len(shown.partition(".")[2])
    difference = abs(float(shown.replace(",", "")) - float(found.replace(",", "")))
    return difference <= 1.5 * 10.0**-decimals if decimals else difference == 0


def missing_lines(shown: str, found: str) -> list[str]:
    """Lines of an excerpt that the output does not have, in that order."""
    left, missing = iter(found.splitlines()), []
    for line in shown.splitlines():
        if line and not any(same_line(line, other) for other in left):
            missing.append(line)
            left = iter(found.splitlines())
    return missing


def outputs(page: Path) -> Iterator[tuple[Block, str]]:
    """Each text block, and what comes of the code block before it; formulas stand in blocks of no language."""
    code = Block("", "", "")
    for block in blocks_of(page):
        if block.language in ("sh", "python"):
            code = block
        elif block.language == "text":
            yield block, ran(code.text) if code.language == "python" else printed(code.text.strip())


@pytest.mark.parametrize("page", [WALK, WALK_CHINESE, COST, COST_CHINESE])
def test_what_a_page_shows_is_what_comes_of_its_commands(page: str, repository: Path) -> None:
    checked = 0
    for block, found in outputs(repository / page):
        assert missing_lines(block.text, found) == []
        checked += 1
    assert checked >= (9 if page in (WALK, WALK_CHINESE) else 1)


@pytest.mark.parametrize("page", [WALK, WALK_CHINESE])
def test_numbers_in_the_prose_are_in_what_is_shown(page: str, repository: Path) -> None:
    """Those with a decimal point, and the large ones."""
    blocks = blocks_of(repository / page)
    shown = {number for block in blocks for number in NUMBER.findall(block.text)}
    prose = (repository / page).read_text(encoding="utf-8")
    for block in blocks:
        prose = prose.replace(block.text, "")
    prose = re.sub(r"\(https?://[^)]*\)", "", prose)
    quoted = {number for number in NUMBER.findall(prose) if "." in number}
    assert len(quoted) >= 6
    assert quoted - shown == set()


@pytest.mark.parametrize(("english", "chinese"), [(WALK, WALK_CHINESE), (COST, COST_CHINESE)])
def test_both_languages_show_the_same(english: str, chinese: str, repository: Path) -> None:
    """Commands and outputs; formulas and scripts may have comments in either language."""

    def shown(page: str) -> list[tuple[str, str]]:
        kept = [(block.language, block.text) for block in blocks_of(repository / page) if block.language == "sh"]
        return kept + [("output", block.text) for block, _ in outputs(repository / page)]

    def outline(page: str) -> list[str]:
        text = (repository / page).read_text(encoding="utf-8")
        return re.findall(r"^(#+|- |\| --- |!\[|```\w*)", text, re.MULTILINE)

    assert shown(english) == shown(chinese)
    assert outline(english) == outline(chinese)


@pytest.mark.parametrize("page", [WALK, WALK_CHINESE])
def test_the_table_of_weights_is_the_model_s(page: str, repository: Path) -> None:
    text = (repository / page).read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (W_\w) \| [^|]* \| \((\d+, \d+)\) \|", text, re.MULTILINE))
    found = describe_weights(Pipeline.from_pretrained(backend="numpy").model.weights)
    assert rows == {name: "{}, {}".format(*found[name]["shape"]) for name in ("W_q", "W_k", "W_v", "W_o", "W_t")}


def test_the_page_on_traces_runs_and_names_every_field(repository: Path) -> None:
    page = repository / "docs" / "explain.md"
    (script,) = (block for block in blocks_of(page) if block.language == "python")
    assert ran(script.text).startswith("['<bos>', '我', '爱', '你', '那', '一', '般'] (4, 3, 64) (3, 4, 4)\n[0.259 ")
    text = page.read_text(encoding="utf-8")
    for title, kind in (("Trace", Trace), ("Step", StepTrace), ("Layer", LayerTrace), ("Ring", LayerRing)):
        section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
        assert section is not None
        first_cells = "".join(re.findall(r"^\| (.*?) \|", section[1], re.MULTILINE))
        assert set(re.findall(r"`(\w+)`", first_cells)) == {field.name for field in fields(kind)}


def test_the_check_sees_a_wrong_number() -> None:
    found = "   你     14.08   1.76  0.568  ████\n   那  4431  0.026  █\n"
    assert missing_lines("   你     14.09   1.76  0.568  ██▏\n", found) == []
    assert missing_lines("   你     14.12   1.76  0.568  ████\n", found) != []
    assert missing_lines("   那  4432  0.026  █\n", found) != []
    assert missing_lines("   那  4431  0.026  █\n   你     14.08   1.76  0.568  ████\n", found) != []
