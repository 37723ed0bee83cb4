"""Step 3: Q, K and V as they are projected, normed and turned, and beside them the ring that keeps K and V."""

from __future__ import annotations

from ringlet.core.explanation.flow_page import (
    GAP,
    GRID,
    GRID_END,
    QUERY,
    VECTOR,
    FlowPage,
    shape,
)
from ringlet.core.explanation.flow_ring import connect, ring_beside

BETWEEN = 24.0  # rows of vectors
KEPT, KEPT_END = GRID - 6, GRID_END + 6  # what the ring holds has a ground of its own
Stage = tuple[str, list[str], list[str]]  # the end of an array's name, formulas, facts


def projections(page: FlowPage) -> None:
    page.arrows_down("faint", [column for column in page.columns if column.computed and column.position is not None])
    bend, start = page.y + 9, page.asking.x - 7
    top = page.y + GAP
    page.drawing.arrow([(start, page.y), (start, bend), (QUERY, bend), (QUERY, top)], "q")
    found = stages(page)
    ring_end = ring_beside(page, top + 6)
    rows = len(found) + 1
    height = rows * VECTOR + (rows - 1) * BETWEEN
    spare = max(0.0, ring_end - top - 34 - height)
    first = top + 28 + spare / 2
    page.y = max(ring_end, vectors(page, found, first)) + 4
    kept_rows = [first + (VECTOR + BETWEEN) * (rows - 2), first + (VECTOR + BETWEEN) * (rows - 1)]
    connect(page, top + 6, [row + VECTOR / 2 for row in kept_rows], KEPT_END)
    page.panel(top, page.y - top)


def stages(page: FlowPage) -> list[Stage]:
    """What Q and K become on their way, in order."""
    config = page.config
    shared = [] if config.heads_per_kv_head == 1 else [f"with K/V head {page.asked.kv_head}"]
    found = [("", ["Q = x·W_q", "K = x·W_k"], [f"both {shape(config.d_model, config.d_k)}", *shared])]
    if page.arrays.Q_normed is not None:
        found.append(("_normed", ["Q, K ← RMSNorm"], ["over d_k, each head"]))
    if config.layers[page.asked.layer].rope is not None:
        found.append(("_rotated", ["Q, K ← RoPE"], ["turned, each by its", "position"]))
    return found


def vectors(page: FlowPage, found: list[Stage], y: float) -> float:
    """Their rows, the first at y; returns where they end."""
    config, n_keys = page.config, len(page.arrays.key_positions)
    middle = (GRID + GRID_END) / 2
    page.drawing.text(QUERY, y - 8, f"Q {shape(1, config.d_k)}", "q bold", "number", "middle")
    page.drawing.text(middle, y - 8, f"K {shape(n_keys, config.d_k)}, a column each", "k bold", "number", "middle")
    for at, (stage, formulas, facts) in enumerate(found):
        is_last = at == len(found) - 1
        if is_last:
            kept(page, y, "k")
        if stage == "_rotated":
            positions(page, y)
        page.label(y + 16, formulas, facts, 3 if at == 0 else None)
        query = page.asked.vector(f"Q{stage}")
        assert query is not None
        page.vector(QUERY, y, query, "q")
        keys(page, y, "K_rotated" if is_last else f"K{stage}", "k", is_last)
        y += VECTOR + BETWEEN
    page.drawing.text(middle, y - 8, f"V {shape(n_keys, config.d_v)}, a column each", "v bold", "number", "middle")
    kept(page, y, "v")
    page.label(y + 20, ["V = x·W_v"], [shape(config.d_model, config.d_v)])
    keys(page, y, "V", "v", True)
    return y + VECTOR + 6


def keys(page: FlowPage, y: float, name: str, kind: str, is_kept: bool) -> None:
    """A vector for each column, if the step computed it or the ring keeps it."""
    for column in page.columns:
        if column.position is None:
            page.drawing.text(column.x, y + 30, "⋯", kind, "usual", "middle")
        elif is_kept or column.computed:
            page.vector(column.x, y, page.own(name, column, page.asked.kv_head), kind)
        else:
            page.drawing.text(column.x, y + 30, "–", "faint", "usual", "middle")


def positions(page: FlowPage, y: float) -> None:
    """By which Q and K turn, above them."""
    page.drawing.text(QUERY, y - 8, f"at {page.asked.position}", "faint", "small", "middle")
    for column in page.columns:
        if column.position is not None:
            page.drawing.text(column.x, y - 8, f"at {column.position}", "faint", "small", "middle")


def kept(page: FlowPage, y: float, kind: str) -> None:
    """The ground of what the ring holds."""
    page.drawing.box(KEPT, y - 4, KEPT_END - KEPT, VECTOR + 6, "kept", 6)
    page.drawing.box(KEPT_END - 3, y - 4, 3, VECTOR + 6, kind, 1.5)
