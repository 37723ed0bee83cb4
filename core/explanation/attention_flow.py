"""One attention step drawn: a token's way through one head of one layer, as an SVG for a page, a paper or a slide."""

from __future__ import annotations

from pathlib import Path

from ringlet.core.explanation.flow_output import best, output
from ringlet.core.explanation.flow_page import MARGIN, WIDTH, FlowPage, digits
from ringlet.core.explanation.flow_projections import projections
from ringlet.core.explanation.flow_scores import mix, scores
from ringlet.core.explanation.flow_tokens import tokens
from ringlet.core.explanation.trace import Trace
from ringlet.core.explanation.walk import question
from ringlet.core.readable import visible


def attention_flow(trace: Trace, layer: int = 0, head: int = 0, token: int = -1, name: str = "attention-flow") -> str:
    """An SVG of the token's question, in the order and the symbols of the theory, with the trace's numbers.

    Negative numbers count from the end. name: the class of the <svg>, to which its rules keep, and the beginning of its
    ids; two pictures in one HTML page need two. Raises RingletError for a layer, head or token that there is not.
    """
    page = FlowPage(question(trace, layer, head, token), name)
    title(page)
    for section in (tokens, projections, scores, mix, output):
        section(page)
    return page.drawing.svg(page.y + MARGIN, heading(page), description(page))


def title(page: FlowPage) -> None:
    room = WIDTH - 2 * MARGIN
    page.drawing.text(MARGIN, 38, heading(page), "ink bold", "head", room=room)
    page.drawing.text(MARGIN, 59, " · ".join(facts(page)), "faint", "usual", room=room)
    page.y = 76


def heading(page: FlowPage) -> str:
    return f"One step of attention: 「{page.piece(page.asked.position)}」 asks"


def facts(page: FlowPage) -> list[str]:
    asked, config = page.asked, page.config
    model = visible(Path(page.trace.model).name).replace("␣", " ")
    return [
        f"{model}, {config.architecture}",
        f"layer {asked.layer} of 0–{config.n_layers - 1}",
        f"head {asked.head} of 0–{config.n_heads - 1}",
        f"token {asked.position}",
        "the model's own numbers",
    ]


def description(page: FlowPage) -> str:
    """The picture in words."""
    alpha = page.asked.scores("alpha")
    weights = [
        f"「{page.piece(column.position)}」 {digits(alpha[column.keys[0]], 3)}"
        for column in page.columns
        if column.position is not None
    ]
    likeliest = [f"「{piece}」 {share}" for piece, share in best(page)]
    return (
        f"{', '.join(facts(page))}. α: {', '.join(weights)}. The likeliest next tokens: {', '.join(likeliest)}. "
        "From top to bottom: tokens, embedding, Q, K and V, the ring, S, α, O_head, O_attention, probabilities."
    )
