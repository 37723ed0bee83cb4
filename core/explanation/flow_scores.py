"""Steps 4 and 5: Q meets every K, softmax makes weights of the scores, and the weights mix the values."""

from __future__ import annotations

import numpy as np

from ringlet.core.explanation.flow_page import (
    ASIDE,
    GAP,
    GRID,
    GRID_END,
    QUERY,
    VECTOR,
    FlowPage,
    digits,
    shape,
)

ROW = 24.0
BAR = 46.0  # height of the largest α's bar


def scores(page: FlowPage) -> None:
    """Rows of numbers, each key's below its K: QKᵀ, scaled, capped, masked; then α."""
    page.arrows_down("k", page.columns)
    page.drawing.arrow([(QUERY, page.y), (QUERY, page.y + GAP)], "q")
    top, S = page.y + GAP, page.asked.scores("S")
    y = top + 26
    for at, (formula, numbers) in enumerate(steps_of_scores(page)):
        row(page, y, formula, [digits(value) for value in numbers], 4 if at == 0 else None)
        y += ROW
    row(page, y, "+ mask", [digits(value) if np.isneginf(value) else "0" for value in S])
    y += ROW
    page.drawing.path(f"M{GRID:g} {y - 17:.1f}H{GRID_END:g}", "stroke-line")
    row(page, y, "S", [digits(value) for value in S], kind="ink bold")
    end = weights(page, y + 20)
    noted = page.notes(score_facts(page, top + 26), score_notes(page))
    page.y = max(end, noted)
    page.panel(top, page.y - top)


def steps_of_scores(page: FlowPage) -> list[tuple[str, np.ndarray]]:
    """What is computed before the mask, with its formula."""
    config, asked = page.config, page.asked
    scale = "/√d_k" if has_usual_scale(page) else f" × {config.score_scale:.4g}"
    found = [("Q·K^T", asked.scores("S_raw")), (f"Q·K^T{scale}", asked.scores("S_scaled"))]
    if config.score_soft_cap is not None:
        cap = config.score_soft_cap
        found.append((f"{cap:g}·tanh(·/{cap:g})", cap * np.tanh(found[-1][1] / cap)))
    return found


def has_usual_scale(page: FlowPage) -> bool:
    return bool(np.isclose(page.config.score_scale, page.config.d_k**-0.5))


def row(page: FlowPage, y: float, formula: str, numbers: list[str], step: int | None = None, kind: str = "ink") -> None:
    page.label(y, [formula], step=step)
    for column in page.columns:
        words = "⋯" if column.position is None else numbers[column.keys[0]]
        page.drawing.text(column.x, y, words, kind, "usual", "middle")


def weights(page: FlowPage, y: float) -> float:
    """α as bars, and below them as numbers; returns where they end."""
    alpha, foot = page.asked.scores("alpha"), y + BAR + 4
    page.label(foot - 16, ["α = softmax(S)"], [shape(1, len(alpha))])
    shares = [float(alpha[column.keys].sum()) for column in page.columns]
    for column, share in zip(page.columns, shares, strict=True):
        height = BAR * share / max(shares)
        page.drawing.box(column.x - 16, foot - height, 32, height, "a", 1.5)
        page.drawing.text(column.x, foot + 16, digits(share, 3), "a bold", "usual", "middle")
    page.drawing.path(f"M{GRID:g} {foot:.1f}H{GRID_END:g}", "stroke-line")
    return foot + 28


def score_facts(page: FlowPage, y: float) -> float:
    """√d_k in figures; returns where notes begin."""
    d_k = page.config.d_k
    page.drawing.formula(ASIDE, y, f"√d_k = √{d_k} = {d_k**0.5:.4g}", "faint")
    return y + 22


def score_notes(page: FlowPage) -> list[str]:
    asked, found = page.asked, []
    if not has_usual_scale(page):
        found.append(f"This model multiplies by {page.config.score_scale:.4g}.")
    hidden = page.arrays.key_positions[np.isneginf(asked.scores("S"))]
    later, gone = int((hidden > asked.position).sum()), int((hidden < asked.position).sum())
    if later:
        found.append(f"The causal mask, −∞, hides the {n_tokens(later)} after this one.")
    else:
        found.append("The causal mask hides what comes later; nothing does here.")
    if gone:
        found.append(f"−∞ too for {n_tokens(gone)} outside the window of {page.ring.capacity}.")
    if page.ring.sinks and asked.position >= page.ring.capacity:
        found.append(f"Sinks are asked as from position {page.ring.capacity - 1}, where the ring ends.")
    return [*found, f"α sums to {digits(asked.scores('alpha').sum(), 4)}."]


def n_tokens(n: int) -> str:
    return f"{n:,} {'token' if n == 1 else 'tokens'}"


def mix(page: FlowPage) -> None:
    """Each value times its weight, and their sum."""
    page.arrows_down("a", page.columns)
    asked, drawing, top = page.asked, page.drawing, page.y + GAP
    alpha, values = asked.scores("alpha"), asked.values
    page.panel(top, VECTOR + 28)
    page.label(top + 34, ["O_head = Σ α_i·v_i"], [f"α·V {shape(1, page.config.d_v)}"], 5)
    for at, column in enumerate(page.columns):
        page.vector(column.x, top + 14, alpha[column.keys] @ values[column.keys], "v")
        if at:
            drawing.text(column.x - page.column_width / 2, top + 42, "+", "faint", "usual", "middle")
    out = asked.vector("O_head")
    assert out is not None
    drawing.text(ASIDE, top + 42, "=", "faint", "big", "middle")
    page.vector(ASIDE + 50, top + 14, out, "o")
    drawing.formula(ASIDE + 90, top + 42, "O_head", "o")
    page.y = top + VECTOR + 28
