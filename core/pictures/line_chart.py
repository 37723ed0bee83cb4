"""Line charts as SVG: panels side by side, each line named where it ends, readable on light and on dark.

Both axes begin at 0, so that what is proportional looks so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from xml.sax.saxutils import escape

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 460, 310  # of a panel
LEFT, TOP, BOTTOM = 58, 66, 46  # around its plot
NAME_GAP, LINE_HEIGHT = 9, 15
CHARACTER = 7.4  # width of one in a name, bold and at 12 pixels, at most
MOST_TICKS = 6
ON_LIGHT = ("#0b6e4f", "#c2410c", "#3b5bbd", "#9a6700", "#6e7781")  # of the lines
ON_DARK = ("#4cc38a", "#ff8f5c", "#8aa8ff", "#e3b341", "#a0a8b2")
STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", "Noto Sans", "PingFang SC", "Microsoft YaHei", sans-serif }
  .title { font-size: 15px; font-weight: 600 } .head { font-size: 18px; font-weight: 600 } .name { font-weight: 600 }
  .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round }
  .grid, .axis { stroke-width: 1 }
"""


@dataclass(frozen=True)
class Panel:
    """One chart. unit: what the vertical axis counts. x_label: what the horizontal one does.

    lines: points (x, y) in order of x, not negative, by name. colours: which of the five each name has; in the order of
    the lines where it is left out. A name keeps its colour from panel to panel if it is given here.
    """

    title: str
    unit: str
    x_label: str
    lines: Mapping[str, Points]
    colours: Mapping[str, int] | None = None


def figure(panels: Sequence[Panel], columns: int = 1, title: str = "", notes: Sequence[str] = ()) -> str:
    """An SVG file of the panels, row by row. title: above all of them. notes: lines of text below."""
    head = 44 if title else 0
    rows = -(-len(panels) // columns)
    width, height = WIDTH * columns, head + HEIGHT * rows + 20 * len(notes) + (14 if notes else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{escape(title or panels[0].title)}</title>",
        f"<style>{style()}</style>",
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
    ]
    if title:
        parts.append(text(24, 32, title, "start", "ink head"))
    for at, panel in enumerate(panels):
        x, y = WIDTH * (at % columns), head + HEIGHT * (at // columns)
        parts += [f'<g transform="translate({x} {y})">', *panel_parts(panel), "</g>"]
    for at, note in enumerate(notes):
        parts.append(text(24, head + HEIGHT * rows + 14 + 20 * at, note, "start", "faint"))
    return "\n".join([*parts, "</svg>", ""])


def style() -> str:
    """Dark colours where the reader's system prefers them."""
    light = colours(("#ffffff", "#1f2328", "#59636e", "#d8dee4", "#818b98"), ON_LIGHT)
    dark = colours(("#0d1117", "#e6edf3", "#9198a1", "#2a313a", "#656c76"), ON_DARK)
    return f"{STYLE}{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def colours(grounds: Sequence[str], lines: Sequence[str]) -> str:
    """Rules for paper, ink, faint ink, grid and axis, and for the lines: s is a stroke, f a fill."""
    rules = [f".{name} {{ fill: {colour} }}" for name, colour in zip(("paper", "ink", "faint"), grounds, strict=False)]
    rules += [f".{name} {{ stroke: {colour} }}" for name, colour in zip(("grid", "axis"), grounds[3:], strict=True)]
    rules += [f".s{at} {{ stroke: {colour} }} .f{at} {{ fill: {colour} }}" for at, colour in enumerate(lines)]
    return "".join(f"  {rule}\n" for rule in rules)


def panel_parts(panel: Panel) -> list[str]:
    """The elements of one panel, whose corner is at (0, 0)."""
    longest = max(map(text_width, panel.lines))
    right = WIDTH - NAME_GAP - longest - 12
    x_end, x_step = axis(max(x for line in panel.lines.values() for x, _ in line))
    y_end, y_step = axis(max(y for line in panel.lines.values() for _, y in line))
    last_x = max(x for line in panel.lines.values() for x, _ in line)

    def x_at(x: float) -> float:
        return LEFT + (right - LEFT) * x / last_x

    def y_at(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / y_end

    parts = [text(24, 30, panel.title, "start", "ink title"), text(24, 49, panel.unit, "start", "faint")]
    for y in ticks(y_end, y_step):
        kind = "axis" if y == 0 else "grid"
        parts.append(f'<path class="{kind}" d="M{LEFT} {y_at(y):.1f}H{right:.1f}"/>')
        parts.append(text(LEFT - 8, y_at(y) + 4, tick_text(y), "end", "faint"))
    for x in ticks(x_end, x_step):
        if x <= last_x:
            parts.append(text(x_at(x), HEIGHT - BOTTOM + 18, tick_text(x), "middle", "faint"))
    parts.append(text((LEFT + right) / 2, HEIGHT - 10, panel.x_label, "middle", "faint"))
    ends = []
    for at, (name, line) in enumerate(panel.lines.items()):
        colour = (panel.colours[name] if panel.colours else at) % len(ON_LIGHT)
        points = [(x_at(x), y_at(y)) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line s{colour}" points="{path}"/>')
        parts += [f'<circle class="f{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
        ends.append((points[-1][1], name, colour))
    for (_, name, colour), y in zip(sorted(ends), apart([y for y, _, _ in sorted(ends)]), strict=True):
        parts.append(text(right + NAME_GAP, y + 4, name, "start", f"name f{colour}"))
    return parts


def apart(heights: Sequence[float]) -> list[float]:
    """The heights, in ascending order, moved as little as lets no two names touch, and none leave the plot."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + LINE_HEIGHT) if placed else max(height, TOP))
    lowest = float(HEIGHT - BOTTOM)
    for at in reversed(range(len(placed))):
        placed[at] = min(placed[at], lowest)
        lowest = placed[at] - LINE_HEIGHT
    return placed


def text(x: float, y: float, words: str, anchor: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def text_width(words: str) -> float:
    """About how wide a name is, in pixels; Chinese characters are as wide as high."""
    return sum(12.0 if ord(character) > 0x2E7F else CHARACTER for character in words)


def tick_text(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def axis(largest: float) -> tuple[float, float]:
    """Where an axis from 0 ends, and its steps: 1, 2 or 5 times a power of ten, MOST_TICKS at most."""
    if largest <= 0:
        return 1.0, 1.0
    power = 10.0 ** floor(log10(largest / MOST_TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10) if largest <= MOST_TICKS * factor * power)
    return step * -(-largest // step), step


def ticks(end: float, step: float) -> list[float]:
    return [at * step for at in range(round(end / step) + 1)]
