"""What `explain --softmax` prints: spreads, entropies and two histograms, with √d_k and without."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ringlet.core.explanation.softmax import Histogram, SoftmaxStudy
from ringlet.core.readable import number
from ringlet.core.terminal.columns import aligned, bar, cut, painted, width_of, wrapped

HEAD = ["layer", "±QKᵀ", "±S", "H", "H, no √d_k", "ln n"]
SURE = 0.9  # a query gives almost everything to one token


def softmax_lines(study: SoftmaxStudy, width: int) -> list[str]:
    """The study in lines of at most `width` columns."""
    return [line for part in (introduction, table, score_bars, largest_bars) for line in part(study, width)]


def introduction(study: SoftmaxStudy, width: int) -> Iterator[str]:
    yield painted("Why √d_k", bold=True)
    text = cut(" ".join(study.text.split()), 60)
    yield from wrapped(f"{Path(study.model).name}, {study.n_tokens} tokens: {text}", width)
    yield ""
    root, usual = study.d_k**0.5, abs(study.score_scale * study.d_k**0.5 - 1) < 1e-6
    yield from wrapped(
        f"q·k is a sum of d_k = {study.d_k} products. Were each of variance 1, the sum's would be {study.d_k}, and "
        f"QKᵀ would spread by √{study.d_k} = {root:.4g}, too far for a softmax. So S = QKᵀ/√d_k.",
        width,
    )
    if not usual:
        yield from wrapped(f"This model divides by {1 / study.score_scale:.4g} instead of {root:.4g}.", width)
    if study.score_soft_cap is not None:
        yield from wrapped(f"It also caps S at ±{study.score_soft_cap:g}, in both cases here.", width)


def table(study: SoftmaxStudy, width: int) -> Iterator[str]:
    rows = [HEAD if width >= 46 else [*HEAD[:4], "H, no √", "ln n"]]
    for layer in study.layers:
        spreads = [number(layer.spread_raw), number(layer.spread)]
        entropies = [number(value) for value in (layer.entropy, layer.entropy_raw, layer.entropy_even)]
        rows.append([str(layer.layer), *spreads, *entropies])
    lines = aligned(rows, [True] * len(HEAD))
    yield ""
    yield painted(lines[0], dim=True)
    yield from lines[1:]
    yield ""
    yield from wrapped(
        "± is the standard deviation in a query's row of scores; H = −Σ αᵢ·ln αᵢ is the mean entropy of its α, from 0 "
        "(one token has it all) to ln n (all have the same).",
        width,
    )


def score_bars(study: SoftmaxStudy, width: int) -> Iterator[str]:
    edges = study.scores.edges
    digits = 0 if edges[-1] >= 20 else 1
    labels = [f"{(low + high) / 2:+.{digits}f}" for low, high in pairwise(edges)]
    labels[len(labels) // 2] = "0"
    yield from histogram("Scores, less the mean of their row", labels, study.scores, ("S", "QKᵀ"), width)


def largest_bars(study: SoftmaxStudy, width: int) -> Iterator[str]:
    edges = study.largest.edges
    labels = [f"{low:.1f}–{high:.1f}" for low, high in pairwise(edges)]
    yield from histogram("The largest α of a query", labels, study.largest, ("with √d_k", "without"), width)
    with_scale, without = float(study.largest.scaled[-1]), float(study.largest.raw[-1])
    yield ""
    yield from wrapped(
        f"Without the scale {without:.0%} of the queries would give more than {SURE:g} to a single token; with it "
        f"{with_scale:.0%} do.",
        width,
    )


def histogram(title: str, labels: list[str], shown: Histogram, names: tuple[str, str], width: int) -> Iterator[str]:
    """Two bars beside each other for each label, as long as the shares are among all bars."""
    label_width = max(map(width_of, labels))
    room = min((width - label_width - 4) // 2, 30)
    largest = max(float(shown.scaled.max()), float(shown.raw.max()))
    yield from ("", painted(title, bold=True))
    yield painted(f"{'':{label_width}}  {names[0]:{room}}  {names[1]}", dim=True)
    for label, scaled, raw in zip(labels, shown.scaled, shown.raw, strict=True):
        left = painted(bar(float(scaled) / largest, room).ljust(room), fg="green")
        right = painted(bar(float(raw) / largest, room), fg="red")
        yield f"{label.rjust(label_width)}  {left}  {right}".rstrip()
