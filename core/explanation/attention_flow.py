"""One attention step drawn: a token's way through one head of one layer, as an SVG for a page, a paper or a slide."""

from __future__ import annotations

from ringlet.core.explanation.trace import Trace
from ringlet.core.explanation.walk import question
from ringlet.core.pictures.drawing import Drawing

WIDTH = 960.0


def attention_flow(trace: Trace, layer: int = 0, head: int = 0, token: int = -1, name: str = "attention-flow") -> str:
    """An SVG of the token's question, in the order and the symbols of the theory, with the trace's numbers.

    Negative numbers count from the end. name: the class of the <svg>, to which its rules keep, and the beginning of its
    ids; two pictures in one HTML page need two. Raises RingletError for a layer, head or token that there is not.
    """
    asked = question(trace, layer, head, token)
    drawing = Drawing(WIDTH, name)
    drawing.text(24, 36, f"token {asked.position} asks", "ink bold", "head")
    return drawing.svg(900, "One step of attention", "")
