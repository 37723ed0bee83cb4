"""Line charts as SVG: milliseconds a token over the depth.

Where attention costs the same for each key, a line is straight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from pathlib import Path
from xml.sax.saxutils import escape

from comparison.report import Report

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50  # around the plot
COLOURS = ("#0b6e4f", "#c8553d", "#e0a458", "#5b6c9e", "#777777")
TITLES = {"pp": "Prompt", "tg": "Generation"}

Line = Sequence[tuple[float, float]]


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
                path.write_text(chart(f"{title}{several}: {report.model}", lines), encoding="utf-8")
                written.append(path)
    return written


def chart(title: str, lines: Mapping[str, Line], x_label: str = "depth, tokens", y_label: str = "ms a token") -> str:
    """An SVG file with a line for each name. Both axes begin at 0."""
    x_end, x_step = axis(max(x for line in lines.values() for x, _ in line))
    y_end, y_step = axis(max(y for line in lines.values() for _, y in line))

    def x_at(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * x / x_end

    def y_at(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / y_end

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(WIDTH / 2, 22, title, "middle", size=15),
        text(WIDTH / 2, HEIGHT - 12, x_label, "middle"),
        text(8, TOP - 10, y_label, "start"),
    ]
    for y in ticks(y_end, y_step):
        parts.append(f'<path d="M{LEFT} {y_at(y):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(text(LEFT - 6, y_at(y) + 4, f"{y:g}", "end"))
    parts += [text(x_at(x), HEIGHT - BOTTOM + 18, f"{x:g}", "middle") for x in ticks(x_end, x_step)]
    for at, (name, line) in enumerate(lines.items()):
        colour = COLOURS[at % len(COLOURS)]
        points = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
        parts.append(text(LEFT + 12, TOP + 14 + 16 * at, name, "start", colour))
    return "\n".join([*parts, "</svg>", ""])


def text(x: float, y: float, words: str, anchor: str, colour: str = "#333333", size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}"'
    return f"<text {place}>{escape(words)}</text>"


def axis(largest: float) -> tuple[float, float]:
    """Where an axis from 0 ends, and its steps: 1, 2 or 5 times a power of ten, seven at most."""
    power = 10.0 ** floor(log10(largest / 7))
    step = next(factor * power for factor in (1, 2, 5, 10) if largest <= 7 * factor * power)
    return step * -(-largest // step), step


def ticks(end: float, step: float) -> list[float]:
    return [at * step for at in range(round(end / step) + 1)]
