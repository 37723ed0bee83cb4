"""A comparison as plain data, and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from comparison.ringlet_engine import RingletEngine
from comparison.rounds import LLAMA, Comparison

from ringlet.core.errors import RingletError
from ringlet.core.terminal.text_tables import size_text


@dataclass
class Report:
    """machine: name → value. starts: seconds; peaks: bytes; both by engine, empty where they were not measured."""

    model: str
    repeat: int
    machine: Mapping[str, str]
    comparisons: Sequence[Comparison]
    starts: Mapping[str, float] = field(default_factory=dict)
    peaks: Mapping[str, int] = field(default_factory=dict)

    @property
    def engines(self) -> list[str]:
        return list(self.comparisons[0].speeds)

    @property
    def others(self) -> list[str]:
        """What Ringlet is compared with: llama.cpp once, at its best."""
        names = dict.fromkeys(LLAMA if name.startswith(LLAMA) else name for name in self.engines)
        return [name for name in names if name != RingletEngine.name]


def as_data(report: Report) -> dict[str, Any]:
    """Ready for JSON."""
    return {
        "model": report.model,
        "repeat": report.repeat,
        "machine": dict(report.machine),
        "tests": [
            {
                "test": found.test.name,
                "depth": found.test.depth,
                "batch": found.test.batch,
                "tokens_per_second": {name: found.speed(name) for name in report.engines},
                "stdev": {name: found.spread(name) for name in report.engines},
                "ratio": {name: found.ratio(name) for name in report.others},
                "share_of_limit": median(found.shares) if found.shares else None,
            }
            for found in report.comparisons
        ],
        "seconds_to_first_token": dict(report.starts),
        "peak_bytes": dict(report.peaks),
    }


def as_markdown(report: Report, charts: Sequence[str] = ()) -> str:
    """Tables, and links to the charts' files."""
    head = ["test", "depth", "batch", *report.engines, "share of limit", *(f"over {name}" for name in report.others)]
    rows = [[*row_of(found, report)] for found in report.comparisons]
    parts = [
        f"Tokens a second, medians of {report.repeat} rounds in which the engines took turns; ratios are medians too:"
    ]
    parts.append(markdown_table(head, rows, text_columns=1))
    parts += [f"![{Path(chart).stem}]({chart})" for chart in charts]
    if report.starts:
        seconds = [[name, f"{value:.2f}"] for name, value in report.starts.items()]
        parts.append(markdown_table(["a process that writes one token", "seconds"], seconds, text_columns=1))
    if report.peaks:
        sizes = [[name, size_text(value)] for name, value in report.peaks.items()]
        parts.append(markdown_table(["a process", "memory at most"], sizes, text_columns=1))
    parts.append(markdown_table(["measured on", ""], [list(fact) for fact in report.machine.items()], text_columns=2))
    return "\n\n".join(parts)


def row_of(found: Comparison, report: Report) -> list[str]:
    test = found.test
    share = f"{median(found.shares):.0%}" if found.shares else "–"
    ratios = [f"{ratio:.2f}×" if (ratio := found.ratio(name)) is not None else "–" for name in report.others]
    speeds = [f"{found.speed(name):.1f}" for name in report.engines]
    return [f"`{test.name}`", str(test.depth), str(test.batch), *speeds, share, *ratios]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> str:
    """The first columns hold texts, the others numbers, which stand to the right."""
    rule = ["---"] * text_columns + ["--:"] * (len(head) - text_columns)
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in [head, rule, *rows])


def put_into_page(page: Path, mark: str, text: str) -> None:
    """Replace what stands between <!-- compare MARK --> and <!-- /compare --> in a page.

    A page that is not there is made. Raises RingletError for one without that place.
    """
    begin, end = f"<!-- compare {mark} -->", "<!-- /compare -->"
    block = f"{begin}\n\n{text}\n\n{end}"
    if not page.exists():
        page.write_text(block + "\n", encoding="utf-8")
        return
    old = page.read_text(encoding="utf-8")
    new, count = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: block, old, count=1, flags=re.DOTALL)
    if not count:
        raise RingletError(f"{page} has no place for this: put the lines {begin} and {end} into it")
    page.write_text(new, encoding="utf-8")
