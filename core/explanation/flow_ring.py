"""The ring beside K and V: what it holds, what the step added, what was not computed again."""

from __future__ import annotations

from itertools import pairwise
from math import cos, radians, sin

import numpy as np

from ringlet.core.explanation.flow_page import ASIDE, ASIDE_ROOM, FlowPage
from ringlet.core.explanation.trace import LayerRing
from ringlet.core.pictures.drawing import SIZES, text_width

CENTRE = ASIDE + ASIDE_ROOM / 2
RADIUS, HOLE = 54.0, 33.0
MIDDLE = (RADIUS + HOLE) / 2
MOST_SLOTS = 16  # drawn one by one; where there are more, runs of slots are
LEAST_ANGLE = 14.0  # of a run
KINDS = {"sink": "a", "kept": "k pale", "new": "k", "free": "line"}  # colours of slots


def ring_beside(page: FlowPage, y: float) -> float:
    """Drawn at the right, its top at y; returns where its words end."""
    ring, drawing = page.ring, page.drawing
    x, middle = CENTRE, y + RADIUS + 14
    page.badge(ASIDE, y + 18, 9)
    circle(page, x, middle)
    held = f"{len(ring.positions):,} of {ring.capacity:,}"
    size = "small" if text_width(held, SIZES["small"]) <= 2 * HOLE - 6 else "tiny"
    drawing.text(x, middle - 1, "K, V", "ink bold", "usual", "middle")
    drawing.text(x, middle + 13, held, "faint", size, "middle", 2 * HOLE - 6)
    words = middle + RADIUS + 24
    for kind, meaning in legend(ring):
        drawing.box(ASIDE, words - 9, 10, 10, KINDS[kind], 2)
        drawing.text(ASIDE + 16, words, meaning, "ink", "small", room=ASIDE_ROOM - 16)
        words += 15
    return page.notes(words + 4, [*fate(ring), "Q is not kept: no later step asks for it."])


def circle(page: FlowPage, x: float, y: float) -> None:
    """The slots, clockwise from the top, with their positions if there is room, and a pointer at the next to write."""
    ring, runs, angle = page.ring, slot_runs(page.ring), 0.0
    gap = 1.2 if len(runs) > 1 else 0.05
    at = dict(zip(ring.slots.tolist(), ring.positions.tolist(), strict=True)) if len(runs) == ring.capacity else {}
    for (kind, first, last), size in zip(runs, run_angles(runs), strict=True):
        page.drawing.sector(x, y, HOLE, RADIUS, angle + gap, angle + size - gap, KINDS[kind])
        if first in at and text_width(str(at[first]), SIZES["tiny"]) + 4 <= radians(size) * MIDDLE:
            turn = radians(angle + size / 2)
            ink = "ink" if kind == "kept" else "on-badge bold"
            page.drawing.text(x + MIDDLE * sin(turn), y + 3 - MIDDLE * cos(turn), str(at[first]), ink, "tiny", "middle")
        if ring.next_slot is not None and first <= ring.next_slot <= last:
            beside = size / 2 if first == last else min(size / 2, LEAST_ANGLE / 2)
            page.drawing.pointer(x, y, RADIUS + 2, angle + beside, "ink")
        angle += size


def connect(page: FlowPage, y: float, rows: list[float], start: float) -> None:
    """Lines from the rows of what is kept, which end at x = start, to the ring whose top is at y."""
    middle, turn = y + RADIUS + 14, (start + ASIDE) / 2
    for row in rows:
        page.drawing.arrow([(start, row), (turn, row), (turn, middle), (CENTRE - RADIUS - 3, middle)], "faint")


def slot_runs(ring: LayerRing) -> list[tuple[str, int, int]]:
    """Kinds of slots with the first and the last of each run; runs of one where all slots can be drawn."""
    kinds = np.full(ring.capacity, "free", dtype="<U4")
    kinds[ring.slots] = np.where(ring.slots < ring.sinks, "sink", "kept")
    kinds[ring.slots[np.isin(ring.positions, ring.added)]] = "new"
    if ring.capacity <= MOST_SLOTS:
        return [(str(kind), slot, slot) for slot, kind in enumerate(kinds)]
    borders = [0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), ring.capacity]
    return [(str(kinds[first]), first, end - 1) for first, end in pairwise(borders)]


def run_angles(runs: list[tuple[str, int, int]]) -> list[float]:
    """Degrees of each run: in proportion, except that none is too small to be seen."""
    sizes = np.array([last - first + 1 for _, first, last in runs], float)
    least = min(LEAST_ANGLE, 360 / len(runs))
    shares: np.ndarray = least + (360 - least * len(runs)) * sizes / sizes.sum()
    return shares.tolist()


def legend(ring: LayerRing) -> list[tuple[str, str]]:
    """What the colours of the slots mean, with the positions that are there."""
    new = np.isin(ring.positions, ring.added)
    sink = ~new & (ring.slots < ring.sinks)
    words = [
        ("sink", f"sinks, which stay: {spans(ring.positions[sink])}"),
        ("kept", f"kept: {spans(ring.positions[~new & ~sink])}"),
        ("new", f"added by this step: {spans(ring.positions[new])}"),
        ("free", f"free: {ring.capacity - len(ring.positions):,} slots"),
    ]
    there = {kind for kind, _, _ in slot_runs(ring)}
    return [(kind, meaning) for kind, meaning in words if kind in there]


def fate(ring: LayerRing) -> list[str]:
    """What was read, and what was and will be written over."""
    if len(ring.reused):
        n = len(ring.reused)
        found = [f"Not computed again: k and v of {n:,} {'token' if n == 1 else 'tokens'}, {spans(ring.reused)}."]
    else:
        found = ["Nothing was there to be read; from now on k and v stay."]
    if len(ring.overwritten):
        found.append(f"Written over: {spans(ring.overwritten)}.")
    if ring.next_slot is None:
        found.append("Full, and it does not slide: the text ends here.")
    elif ring.overwrites_next is None:
        found.append(f"The next token goes to slot {ring.next_slot:,}.")
    else:
        found.append(f"The next token goes to slot {ring.next_slot:,}, over token {ring.overwrites_next}.")
    return found


def spans(positions: object) -> str:
    """Positions in ascending order, runs as "2–5"."""
    runs: list[list[int]] = []
    for position in np.asarray(positions).tolist():
        if runs and position == runs[-1][1] + 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)
