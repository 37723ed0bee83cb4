"""Line charts as SVG: milliseconds a token over the depth.

Where attention costs the same for each key, a line is straight.
"""

from __future__ import annotations

from pathlib import Path

from comparison.report import Report

from ringlet.core.pictures.line_chart import Panel, figure

TITLES = {"pp": "Prompt", "tg": "Generation"}


def write_charts(report: Report, folder: Path) -> list[Path]:
    """A file for each kind of test and batch that was run at several depths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, title in TITLES.items():
        for batch in dict.fromkeys(found.test.batch for found in report.comparisons):
            chosen = [found for found in report.comparisons if (found.test.kind, found.test.batch) == (kind, batch)]
            lines = {
                name: sorted((found.test.depth, 1000 / found.speed(name)) for found in chosen)
                for name in report.engines
            }
            if len(chosen) > 1:
                several = f", {batch} sequences" if batch > 1 else ""
                path = folder / f"{report.model}-{title.lower()}-{batch}.svg"
                panel = Panel(f"{title}{several}: {report.model}", "ms a token", "depth, tokens", lines)
                path.write_text(figure([panel]), encoding="utf-8")
                written.append(path)
    return written
