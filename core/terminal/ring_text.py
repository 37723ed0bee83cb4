"""What `explain` says about the ring: what it holds, what the step added, what was not computed again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ringlet.core.explanation.trace import LayerRing
from ringlet.core.terminal.columns import heading, painted
from ringlet.core.terminal.text_tables import size_text
from ringlet.core.terminal.walk_page import INDENT, WalkPage

MARKS = {"S": "sink", "#": "kept", "+": "new", ">": "next", "·": "free"}


def ring_section(page: WalkPage) -> Iterator[str]:
    """The ring of the walk's layer after its step."""
    walk, ring = page.walk, page.arrays.ring
    yield from heading(9, "The ring (KV cache)", "softmax(Q_new·K_cachedᵀ/√d_k)·V_cached", page.width)
    held, sinks = len(ring.positions), f", {ring.sinks} of them sinks that stay" if ring.sinks else ""
    yield from page.prose(
        f"Layer {walk.layer} keeps K and V of {held:,} {'token' if held == 1 else 'tokens'} in {ring.capacity:,} "
        f"slots{sinks}: {size_text(ring.nbytes)} a layer."
    )
    yield from slots(ring, page.width - len(INDENT))
    yield from page.prose(what_was_added(page))
    if len(ring.reused):
        yield from page.prose(f"Not computed again: k and v of {span(ring.reused)}.")
    else:
        yield from page.prose("Nothing was there to be read. From now on k and v stay.")
    yield from page.prose("q is never kept: no later step asks for it.")
    if walk.position:
        with_ring, again = walk.multiplications["ring"], walk.multiplications["again"]
        yield from page.prose(
            f"「{page.asking}」 alone takes {with_ring:,} multiplications; everything up to it, computed again, "
            f"{again:,}: {again / with_ring:.1f} times as many."
        )
    yield from page.prose(what_comes_next(page))


def what_was_added(page: WalkPage) -> str:
    ring, n = page.arrays.ring, len(page.step.token_ids)
    what = f"the {n} tokens of the prompt at once" if n > 1 else f"the new token alone, 「{page.asking}」"
    over = f", over those of {span(ring.overwritten)}" if len(ring.overwritten) else ""
    return f"This step computed q, k and v of {what}, and wrote k and v of {span(ring.added)}{over}."


def what_comes_next(page: WalkPage) -> str:
    ring = page.arrays.ring
    if ring.next_slot is None:
        return "The ring is full and does not slide: the text ends here."
    gone = ring.overwrites_next
    over = "" if gone is None else f", over those of token {gone} 「{page.piece(gone)}」"
    return f"k and v of the next token go to slot {ring.next_slot}{over}."


def slots(ring: LayerRing, room: int) -> Iterator[str]:
    """The slots as a row of marks, those around the next where all do not fit, and what the marks mean."""
    marks = ["·"] * ring.capacity
    for position, slot in zip(ring.positions, ring.slots, strict=True):
        marks[slot] = "+" if position in ring.added else "S" if slot < ring.sinks else "#"
    if ring.next_slot is not None:
        marks[ring.next_slot] = ">"
    here = len(marks) if ring.next_slot is None else ring.next_slot
    first = 0 if len(marks) <= room else max(0, min(here - room // 2, len(marks) - room))
    row = marks[first : first + room]
    if first:
        row[0] = "…"
    if first + room < len(marks):
        row[-1] = "…"
    yield f"{INDENT}{''.join(row)}"
    known = [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in row]
    yield f"{INDENT}{painted('   '.join(known), dim=True)}"


def span(positions: np.ndarray) -> str:
    """Positions in ascending order, runs as "2–5"."""
    runs: list[list[int]] = []
    for position in positions.tolist():
        if runs and position == runs[-1][1] + 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    text = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)
    return f"{'token' if len(positions) == 1 else 'tokens'} {text}"
