"""What drawings as SVG are made of: boxes, arrows, words that fit their place, and formulas, in colours by name.

A colour has a name and is a CSS custom property, dark where the reader's system prefers it and light on paper; readers
of SVG that know no such properties (converters for LaTeX, slides) take the light one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import cos, radians, sin
from unicodedata import category
from xml.sax.saxutils import escape, quoteattr

from rich.cells import cell_len

LIGHT = {
    "paper": "#ffffff", "panel": "#f6f8fa", "line": "#d0d7de", "ink": "#1f2328", "faint": "#59636e",
    "q": "#3b5bbd", "k": "#b93a0b", "v": "#0b6e4f", "a": "#8a5d00", "o": "#8250a8", "kept": "#fff1e5",
}  # fmt: skip
DARK = {
    "paper": "#0d1117", "panel": "#161b22", "line": "#3d444d", "ink": "#e6edf3", "faint": "#9ea7b1",
    "q": "#8aa8ff", "k": "#ff9a6b", "v": "#4cc38a", "a": "#e3b341", "o": "#d2a8ff", "kept": "#2d2018",
}  # fmt: skip
OTHER_FILLS = {"plus": "q", "minus": "k", "badge": "faint", "on-badge": "paper"}
SANS = 'system-ui, -apple-system, "Segoe UI", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif'
SERIF = '"STIX Two Text", "Cambria", "Times New Roman", "Liberation Serif", "Noto Sans CJK SC", serif'
SIZES = {"head": 18.0, "big": 15.0, "usual": 13.0, "number": 12.0, "small": 11.0, "tiny": 9.0}
BOLD = 1.12  # times as wide
FORMULA, SUBSCRIPT = 16.0, 0.72  # size of a formula in pixels, and its subscripts' share of it
KNOWN = re.compile(  # Latin, Greek, Cyrillic, signs, CJK, Hangul: characters whose width can be told
    r"[ -~\u00a0-\u024f\u0370-\u052f\u2010-\u2027\u2190-\u21ff\u2200-\u22ff\u2420-\u2426"
    r"\u2e80-\u9fff\uac00-\ud7a3\uff00-\uff60]*"
)
PARTS = re.compile(r"[_^](?:\{[^}]*\}|\w+)|[A-Za-z]+|.")


def character_width(character: str) -> float:
    """In parts of the text's size, as wide as in the widest of usual fonts."""
    if cell_len(character) == 2:
        return 1.0
    if category(character) in ("Mn", "Me"):
        return 0.3
    if character in "mwMW@%—…⋯∞":
        return 1.0
    if character in " .,:;'|!ilj()[]·":
        return 0.4
    return 0.8 if character.isupper() else 0.66


def text_width(words: str, size: float) -> float:
    """In pixels, at most."""
    return size * sum(map(character_width, words))


def fitting(words: str, room: float, size: float) -> str:
    """The words, or as many of their characters as fit before an ellipsis."""
    if text_width(words, size) <= room:
        return words
    kept = words
    while kept and text_width(f"{kept}…", size) > room:
        kept = kept[:-1]
    return f"{kept}…"


def lines_of(words: str, room: float, size: float) -> list[str]:
    """The words in lines that fit; one that does not is cut."""
    lines: list[str] = []
    for word in words.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(fitting(word, room, size))
    return lines


def formula_parts(markup: str) -> list[tuple[str, str]]:
    """A formula's parts with their kinds: "i" italic (single letters), "sub", "sup" or ""; W_q, W_{q}, K^T."""
    found: list[tuple[str, str]] = []
    for part in PARTS.findall(markup):
        if part[0] in "_^" and len(part) > 1:
            found.append((part[1:].strip("{}"), "sub" if part[0] == "_" else "sup"))
        else:
            kind = "i" if len(part) == 1 and part.isalpha() else ""
            if found and found[-1][1] == kind:
                found[-1] = (found[-1][0] + part, kind)
            else:
                found.append((part, kind))
    return found


def formula_width(markup: str, size: float = FORMULA) -> float:
    return sum(
        text_width(part, size * (SUBSCRIPT if kind in ("sub", "sup") else 1)) for part, kind in formula_parts(markup)
    )


class Drawing:
    """Elements in the order in which they are drawn. name: the class and the beginning of ids of its <svg>."""

    def __init__(self, width: float, name: str) -> None:
        self.width, self.name = width, name
        self.grounds: list[str] = []  # below everything else
        self.parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, kind: str = "ink", size: str = "usual", anchor: str = "start",
        room: float | None = None,
    ) -> None:  # fmt: skip
        """Words on a line at y. room: how many pixels there are; what is too long is cut, and whole in a title."""
        pixels = SIZES[size] * (BOLD if "bold" in kind else 1)
        shown = words if room is None else fitting(words, room, pixels)
        whole = "" if shown == words else f"<title>{escape(words)}</title>"
        pressed = ""
        if not KNOWN.fullmatch(shown):  # nobody knows how wide its characters are: they are pressed into their place
            pressed = f' textLength="{text_width(shown, pixels):.1f}" lengthAdjust="spacingAndGlyphs"'
        place = f'x="{x:.1f}" y="{y:.1f}" class="{kind} {size}"{anchored(anchor)}{pressed}'
        self.parts.append(f"<text {place}>{escape(shown)}{whole}</text>")

    def formula(self, x: float, y: float, markup: str, kind: str = "ink", anchor: str = "start") -> None:
        """Typeset: single letters italic, W_q with its subscript, K^T with its superscript."""
        spans, shift = [], 0.0
        for part, style in formula_parts(markup):
            target = {"sub": 4.0, "sup": -6.0}.get(style, 0.0)
            moved = f' dy="{target - shift:g}"' if target != shift else ""
            named = f' class="{style}"' if style else ""
            spans.append(f"<tspan{named}{moved}>{escape(part)}</tspan>")
            shift = target
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{kind} math"{anchored(anchor)} xml:space="preserve">'
            f"{''.join(spans)}</text>"
        )

    def box(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 6) -> None:
        self.parts.append(box(x, y, width, height, kind, radius))

    def ground(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """A box below everything else, whenever it is drawn."""
        self.grounds.append(box(x, y, width, height, kind, 8))

    def shade(self, x: float, y: float, width: float, height: float, kind: str, share: float) -> None:
        """A cell of a heat map; share: how dark, from 0 to 1."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}" '
            f'fill-opacity="{share:.2f}"/>'
        )

    def path(self, d: str, kind: str) -> None:
        self.parts.append(f'<path d="{d}" class="{kind}"/>')

    def arrow(self, points: list[tuple[float, float]], kind: str) -> None:
        """A line through the points with a head at the last; the last part is level or upright."""
        (x0, y0), (x1, y1) = points[-2:]
        dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in [*points[:-1], (x1 - 5 * dx, y1 - 5 * dy)])
        self.path(f"M{line}", f"stroke-{kind}")
        back, aside = (x1 - 7 * dx, y1 - 7 * dy), (4 * dy, 4 * dx)
        corners = [(x1, y1), (back[0] + aside[0], back[1] + aside[1]), (back[0] - aside[0], back[1] - aside[1])]
        self.path(f"M{'L'.join(f'{x:.1f} {y:.1f}' for x, y in corners)}Z", kind)

    def sector(self, x: float, y: float, inner: float, outer: float, first: float, last: float, kind: str) -> None:
        """A piece of a ring around (x, y), between two angles in degrees, clockwise from the top."""

        def at(radius: float, angle: float) -> str:
            return f"{x + radius * sin(radians(angle)):.2f} {y - radius * cos(radians(angle)):.2f}"

        large = int(last - first > 180)
        self.path(
            f"M{at(outer, first)}A{outer} {outer} 0 {large} 1 {at(outer, last)}"
            f"L{at(inner, last)}A{inner} {inner} 0 {large} 0 {at(inner, first)}Z",
            kind,
        )

    def pointer(self, x: float, y: float, radius: float, angle: float, kind: str) -> None:
        """A small triangle that points from outside at a ring's edge, at an angle in degrees."""
        turned = f"translate({x:.1f} {y:.1f}) rotate({angle:.1f})"
        self.parts.append(f'<path d="M0 {-radius:g}l-5 -8h10Z" transform="{turned}" class="{kind}"/>')

    def svg(self, height: float, title: str, description: str) -> str:
        """The whole, which stands alone as a file and inside an HTML page."""
        size = f'viewBox="0 0 {self.width:g} {height:g}" width="{self.width:g}" height="{height:g}"'
        name = self.name
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} class={quoteattr(name)} role="img" '
                f'aria-labelledby="{name}-title {name}-description">',
                f'<title id="{name}-title">{escape(title)}</title>',
                f'<desc id="{name}-description">{escape(description)}</desc>',
                f"<style>{style(name)}</style>",
                f'<rect width="{self.width:g}" height="{height:g}" rx="10" class="paper"/>',
                *self.grounds,
                *self.parts,
                "</svg>",
                "",
            ]
        )


def box(x: float, y: float, width: float, height: float, kind: str, radius: float) -> str:
    size = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {size} rx="{radius:g}" class="{kind}"/>'


def anchored(anchor: str) -> str:
    return "" if anchor == "start" else f' text-anchor="{anchor}"'


def style(name: str) -> str:
    """Rules for elements inside the class alone: a colour's name is a fill, with "stroke-" before it a line."""
    rules = [
        properties(f".{name}", LIGHT, "max-width: 100%; height: auto"),
        f"@media (prefers-color-scheme: dark) {{ {properties(f'.{name}', DARK)} }}",
        f"@media print {{ {properties(f'.{name}', LIGHT)} }}",
        f".{name} text {{ font-family: {SANS}; font-variant-numeric: tabular-nums }}",
        f".{name} .math {{ font-family: {SERIF}; font-size: {FORMULA:g}px }}",
        f".{name} .i {{ font-style: italic }}",
        f".{name} .sub, .{name} .sup {{ font-size: {FORMULA * SUBSCRIPT:.1f}px }}",
        f".{name} .bold {{ font-weight: 600 }}",
    ]
    rules += [f".{name} .{size} {{ font-size: {pixels:g}px }}" for size, pixels in SIZES.items()]
    fills = {colour: colour for colour in LIGHT} | OTHER_FILLS
    rules += [f".{name} .{kind} {{ {painted('fill', colour)} }}" for kind, colour in fills.items()]
    rules += [
        f".{name} .stroke-{colour} {{ fill: none; {painted('stroke', colour)}; stroke-width: 1.5 }}" for colour in LIGHT
    ]
    rules += [
        f".{name} .chip {{ {painted('fill', 'paper')}; {painted('stroke', 'line')} }}",
        f".{name} .asks {{ {painted('stroke', 'q')}; stroke-width: 2 }}",
        f".{name} .dashed {{ stroke-dasharray: 3 3 }}",
        f".{name} .pale {{ fill-opacity: 0.45 }}",
    ]
    return "\n" + "\n".join(rules) + "\n"


def painted(what: str, colour: str) -> str:
    return f"{what}: {LIGHT[colour]}; {what}: var(--flow-{colour})"


def properties(selector: str, colours: Mapping[str, str], more: str = "") -> str:
    held = "; ".join([*(f"--flow-{name}: {colour}" for name, colour in colours.items()), *([more] if more else [])])
    return f"{selector} {{ {held} }}"
