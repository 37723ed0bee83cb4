"""Steps 1 and 2: the tokens, what they are as vectors, and the norm before the projections."""

from __future__ import annotations

from itertools import pairwise

from ringlet.core.explanation.flow_page import (
    ASIDE,
    ASIDE_ROOM,
    LINE,
    WORDS,
    Column,
    FlowPage,
    digits,
    norm_of,
)
from ringlet.core.pictures.drawing import SIZES, lines_of, text_width

HEIGHT = 158.0
NORMS = {"rms": "RMSNorm", "layer": "LayerNorm"}


def tokens(page: FlowPage) -> None:
    top = page.y
    page.panel(top, HEIGHT)
    page.badge(40, top + 28, 1)
    page.drawing.text(WORDS, top + 28, "tokens", "ink", "big")
    page.drawing.text(WORDS, top + 48, "id", "faint", "small")
    page.drawing.text(WORDS, top + 62, "position", "faint", "small")
    for column in page.columns:
        token(page, column, top)
    left_out(page, top + 22)
    embedding(page, top + 88)
    not_again(page, top + 76, 72)
    sizes(page, top + 26)
    page.y = top + HEIGHT


def token(page: FlowPage, column: Column, top: float) -> None:
    drawing, x = page.drawing, column.x
    if column.position is None:
        drawing.text(x, top + 27, f"{len(column.keys):,}", "ink", "usual", "middle")
        drawing.text(x, top + 42, "others", "faint", "small", "middle")
        return
    width, piece, asks = page.column_width - 12, page.piece(column.position), column is page.asking
    drawing.box(x - width / 2, top + 10, width, 25, "chip asks" if asks else "chip", 6)
    size = "usual" if text_width(piece, SIZES["usual"]) <= width - 6 else "small"
    drawing.text(x, top + 27, piece, "ink bold" if asks else "ink", size, "middle", width - 6)
    drawing.text(x, top + 48, str(page.trace.token_ids[column.position]), "faint", "small", "middle")
    drawing.text(x, top + 62, str(column.position), "faint", "small", "middle")


def left_out(page: FlowPage, y: float) -> None:
    """Dots where tokens between two columns have none."""
    for before, after in pairwise(page.columns):
        if before.position is not None and after.position is not None and after.position > before.position + 1:
            for at in (-3, 0, 3):
                page.drawing.box((before.x + after.x) / 2 + at - 1, y, 2, 2, "faint", 1)


def embedding(page: FlowPage, y: float) -> None:
    """x and its norm, of the tokens that the step computed."""
    config, layer = page.config, page.asked.layer
    if layer == 0:
        scale = "" if config.embedding_scale == 1 else f" × {config.embedding_scale:.4g}"
        facts = f"embedding{scale}" + (" + position" if config.learned_positions else "")
    else:
        facts = "after layer 0" if layer == 1 else f"after layers 0–{layer - 1}"
    page.label(y + 4, ["x"], step=2)
    page.drawing.text(WORDS + 20, y + 4, facts, "faint", "small", room=150)
    page.drawing.formula(WORDS, y + 42, f"x ← {NORMS[config.norm]}(x)")
    for name, top in (("x", y - 8), ("x_normed", y + 30)):
        for column in page.columns:
            if column.computed and column.position is not None:
                vector = page.own(name, column)
                page.shades(column.x, top, vector, page.column_width - 14)
                page.drawing.text(column.x, top + 24, f"‖x‖ {digits(norm_of(vector))}", "faint", "small", "middle")


def not_again(page: FlowPage, y: float, height: float) -> None:
    """Over the columns whose tokens the step did not compute."""
    read = [column.x for column in page.columns if not column.computed and column.position is not None]
    if not read:
        return
    half = page.column_width / 2 - 4
    first, last = min(read) - half, max(read) + half
    page.drawing.box(first, y, last - first, height, "stroke-line dashed", 6)
    lines = lines_of("not computed again: k and v are in the ring", last - first - 8, SIZES["small"])
    start = y + (height - LINE * len(lines)) / 2 + 11
    for at, line in enumerate(lines):
        page.drawing.text((first + last) / 2, start + LINE * at, line, "faint", "small", "middle")


def sizes(page: FlowPage, y: float) -> None:
    """What the symbols are in this model."""
    config = page.config
    shared = "" if config.heads_per_kv_head == 1 else f", K/V {config.n_kv_heads}"
    rows = [
        ("d_model", f"{config.d_model:,}"),
        ("d_k, d_v", f"{config.d_k:,}, {config.d_v:,}"),
        ("h", f"{config.n_heads}{shared}"),
        ("d_vocab", f"{config.d_vocab:,}"),
    ]
    for at, (symbol, value) in enumerate(rows):
        page.drawing.formula(ASIDE, y + 22 * at, symbol, "faint")
        page.drawing.text(ASIDE + 72, y + 22 * at, value, room=ASIDE_ROOM - 72)
