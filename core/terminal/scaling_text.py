"""What `explain --scaling` prints, and draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ringlet.core.measurement.scaling import Scaling
from ringlet.core.measurement.scaling_claims import AGAIN, CACHE, RING, ScalingPoint
from ringlet.core.pictures.line_chart import Panel, Points, figure
from ringlet.core.terminal.columns import aligned, painted, wrapped

NAMES = {AGAIN: "all again", CACHE: "with the cache", RING: "with a ring"}
NOTE_WIDTH = 128  # characters in a line below the picture
COLOURS = {name: at for at, name in enumerate(NAMES.values())}

Values = Callable[[ScalingPoint], dict[str, float]]


def scaling_lines(found: Scaling, width: int) -> list[str]:
    """Three tables and what they say, in lines of at most `width` columns."""
    return [line for part in (introduction, tables, claims) for line in part(found, width)]


def milliseconds(point: ScalingPoint) -> dict[str, float]:
    return point.milliseconds


def millions(point: ScalingPoint) -> dict[str, float]:
    return {way: n / 1e6 for way, n in point.multiplications.items()}


def mebibytes(point: ScalingPoint) -> dict[str, float]:
    return {way: n / 2**20 for way, n in point.kv_bytes.items()}


def quantity(value: float) -> str:
    """Three digits or so."""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def introduction(found: Scaling, width: int) -> Iterator[str]:
    yield painted("What a token costs as the text grows", bold=True)
    ring = "" if found.ring_slots is None else f"; with a ring of {found.ring_slots:,} slots the oldest are overwritten"
    threads = "" if found.threads is None else f", {found.threads} threads"
    yield from wrapped(
        f"{Path(found.model).name}, backend {found.backend}{threads}. The last of n tokens: with K and V of the others "
        f"kept (the cache), or with all of them computed again{ring}.",
        width,
    )


def tables(found: Scaling, width: int) -> Iterator[str]:
    for title, values in (
        ("Milliseconds, measured here", milliseconds),
        ("Multiplications, in millions", millions),
        ("Memory of K and V, in MiB", mebibytes),
    ):
        ways = list(values(found.points[0]))
        names = [NAMES[way] if width >= 52 else NAMES[way].split()[-1] for way in ways]
        rows = [["n", *names]]
        for point in found.points:
            rows.append([f"{point.tokens:,}", *(quantity(value) for value in values(point).values())])
        lines = aligned(rows, [True] * len(rows[0]), gap="   ")
        yield from ("", painted(title, bold=True), painted(lines[0], dim=True), *lines[1:])


def claims(found: Scaling, width: int) -> Iterator[str]:
    yield from ("", painted("What the theory says", bold=True))
    for claim in found.claims:
        mark = painted("holds", fg="green") if claim.holds else painted("not here", fg="yellow")
        yield from wrapped(f"{mark}: {claim.claim}: {claim.says}.", width, indent="  ")


def scaling_picture(found: Scaling) -> str:
    """The same as an SVG file: milliseconds beside multiplications, everything beside what is kept, and memory."""
    kept = "Kept: all of it" if found.ring_slots is None else "Kept: all of it, or a ring"
    panels = [
        panel(found, "Everything again, or kept", "milliseconds a token, measured", milliseconds, (AGAIN, CACHE, RING)),
        panel(found, "The same, counted", "million multiplications a token", millions, (AGAIN, CACHE, RING)),
        panel(found, kept, "milliseconds a token, measured", milliseconds, (CACHE, RING)),
        panel(found, "The same, counted", "million multiplications a token", millions, (CACHE, RING)),
        panel(found, "Memory", "MiB of K and V", mebibytes, (CACHE, RING)),
        whole_text(found),
    ]
    notes = [
        line
        for claim in found.claims
        for line in wrapped(f"{'Holds' if claim.holds else 'Not here'}: {claim.claim}: {claim.says}.", NOTE_WIDTH)
    ]
    title = f"What a token costs as the text grows: {Path(found.model).name}"
    return figure(panels, 2, title, notes)


def panel(found: Scaling, title: str, unit: str, values: Values, ways: tuple[str, ...]) -> Panel:
    lines: dict[str, Points] = {
        NAMES[way]: [(point.tokens, values(point)[way]) for point in found.points]
        for way in ways
        if way in values(found.points[0])
    }
    return Panel(title, unit, "n, tokens so far", lines, COLOURS)


def whole_text(found: Scaling) -> Panel:
    """Seconds that all tokens of a text take together, from those measured: trapezoids between the points."""
    lines: dict[str, Points] = {}
    for way in (AGAIN, CACHE, RING):
        if way not in found.points[0].milliseconds:
            continue
        total, before, last, points = 0.0, 0, found.points[0].milliseconds[way], [(0.0, 0.0)]
        for point in found.points:
            now = point.milliseconds[way]
            total += (point.tokens - before) * (last + now) / 2 / 1000
            before, last = point.tokens, now
            points.append((float(point.tokens), total))
        lines[NAMES[way]] = points
    return Panel("The whole text", "seconds for all n tokens, one by one", "n, tokens", lines, COLOURS)
