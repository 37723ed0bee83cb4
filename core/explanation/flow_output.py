"""Steps 6 to 8: all heads side by side, W_o, the residual stream, W_t and the probabilities of tokens."""

from __future__ import annotations

from ringlet.core.explanation.flow_page import ASIDE, GAP, MARGIN, WIDTH, WORDS, FlowPage, digits, shape

MOST_HEADS = 5
HEADS = 178.0  # where the heads' boxes begin
BEST = 5
SPLIT, RIGHT = 536.0, 560.0  # where the left panel ends, and the right one begins
INSIDE = 16.0  # the right panel
N_NUMBERS, NUMBERS, CELL = 4, 312.0, 62.0  # of the stream; where the first ends; from one to the next
PIECE, BARS = 84.0, 184.0  # widths of a token's name and of the longest bar
HeadBox = tuple[int | None, float, float]


def output(page: FlowPage) -> None:
    top, bend = page.y + GAP, page.y + 10
    boxes = head_boxes(page)
    x = next(left + width / 2 for head, left, width in boxes if head == page.asked.head)
    page.drawing.arrow([(ASIDE + 50, page.y), (ASIDE + 50, bend), (x, bend), (x, top + 16)], "o")
    heads(page, top, boxes)
    page.y = max(residual(page, top + 116), vocabulary(page, top))
    page.panel(top, page.y - top, end=SPLIT)
    page.panel(top, page.y - top, x=RIGHT)
    page.drawing.arrow([(SPLIT, top + 60), (RIGHT, top + 60)], "o")


def head_boxes(page: FlowPage) -> list[HeadBox]:
    """Heads with where their boxes begin and how wide they are; None for those left out."""
    h, asked = page.config.n_heads, page.asked.head
    kept = list(range(h)) if h <= MOST_HEADS else sorted({0, 1, asked, h - 1})
    shown: list[int | None] = []
    for at, head in enumerate(kept):
        if at and head > kept[at - 1] + 1:
            shown.append(None)
        shown.append(head)
    width = min((SPLIT - INSIDE - HEADS) / len(shown), 112.0)
    return [(head, HEADS + width * at, width) for at, head in enumerate(shown)]


def heads(page: FlowPage, top: float, boxes: list[HeadBox]) -> None:
    """The heads, this one marked, and what each looks at most."""
    drawing, arrays = page.drawing, page.arrays
    page.label(top + 34, ["O_heads"], [shape(1, page.config.n_heads * page.config.d_v)], 6)
    drawing.text(WORDS, top + 68, "looks at most", "faint", "small", room=HEADS - WORDS - 6)
    drawing.text(WORDS, top + 83, "with α", "faint", "small")
    for head, left, width in boxes:
        middle = left + width / 2 - 1.5
        if head is None:
            drawing.text(middle, top + 36, "⋯", "faint", "usual", "middle")
            continue
        own = head == page.asked.head
        drawing.box(left, top + 18, width - 3, 28, "o" if own else "chip", 4)
        name = f"head {head}" if width > 62 else str(head)
        drawing.text(middle, top + 36, name, "on-badge bold" if own else "ink", "number", "middle", width - 6)
        alpha = arrays.alpha[head, page.asked.row]
        most = page.piece(int(arrays.key_positions[int(alpha.argmax())]))
        drawing.text(middle, top + 68, most, "ink", "number", "middle", width - 6)
        drawing.text(middle, top + 83, digits(alpha.max(), 3), "a", "small", "middle")


def residual(page: FlowPage, y: float) -> float:
    """O_attention, and the stream that it is added to; returns where they end."""
    rows = [("O_attention = O_heads·W_o", "O_attention", "o")]
    if page.config.post_norms:
        rows.append(("norm(O_attention)", "attended", "o"))
    rows += [("+ x, the residual stream", "x", "ink"), ("= x for what follows", "x_attended", "ink bold")]
    for at, (formula, name, kind) in enumerate(rows):
        row_y = y + 26 * at
        if name == "x_attended":
            page.drawing.path(f"M{WORDS:g} {row_y - 17:.1f}H{SPLIT - INSIDE:g}", "stroke-line")
        page.label(row_y, [formula], step=7 if name == "x" else None)
        vector = getattr(page.arrays, name)[page.asked.row]
        for place, value in enumerate(vector[:N_NUMBERS]):
            page.drawing.text(NUMBERS + CELL * place, row_y, digits(value), kind, "usual", "end")
        if len(vector) > N_NUMBERS:
            page.drawing.text(NUMBERS + CELL * (N_NUMBERS - 1) + 7, row_y, "…", "faint", "usual")
    facts = f"W_o {shape(*page.trace.weights['W_o'])} maps the heads back to d_model"
    page.drawing.text(WORDS, y + 26 * len(rows), facts, "faint", "small", room=SPLIT - INSIDE - WORDS)
    return y + 26 * len(rows) + 14


def vocabulary(page: FlowPage, top: float) -> float:
    """What is left of the model, and the likeliest tokens; returns where they end."""
    config, drawing, x = page.config, page.drawing, RIGHT + INSIDE
    room = WIDTH - MARGIN - INSIDE - x
    source = "of the same normed x" if config.residual == "parallel" else "of the norm of x"
    drawing.text(x, top + 26, f"+ feed-forward {source}, d_ff = {config.d_ff:,}", "ink", "number", room=room)
    drawing.text(x, top + 45, following(page), "ink", "number", room=room)
    page.badge(x, top + 76, 8)
    drawing.formula(x + 24, top + 76, "O_vocab = x·W_t")
    d_vocab = page.trace.weights.get("W_t", (config.d_model, config.d_vocab))
    drawing.text(x + 24, top + 94, f"W_t {shape(*d_vocab)}", "faint", "small")
    drawing.formula(x + 190, top + 76, "p = softmax(O_vocab)")
    shares = page.step.best.probabilities[page.asked.row][:BEST]
    y = top + 122
    for (piece, share), value in zip(best(page), shares, strict=True):
        drawing.text(x + PIECE, y, piece, "ink", "usual", "end", PIECE)
        width = BARS * float(value) / max(float(shares[0]), 1e-12)
        drawing.box(x + PIECE + 10, y - 11, max(width, 0.5), 14, "v", 2)
        drawing.text(x + PIECE + 18 + width, y, share, "ink", "usual")
        y += 22
    return y + 4


def following(page: FlowPage) -> str:
    first, last = page.asked.layer + 1, page.config.n_layers - 1
    if first > last:
        return "then a last norm"
    return f"then {f'layer {first}' if first == last else f'layers {first}–{last}'}, and a last norm"


def best(page: FlowPage) -> list[tuple[str, str]]:
    """The likeliest next tokens and their probabilities, as they are shown."""
    found, row = page.step.best, page.asked.row
    pairs = zip(found.ids[row][:BEST].tolist(), found.probabilities[row][:BEST].tolist(), strict=True)
    return [(page.named(token_id), digits(share, 3)) for token_id, share in pairs]
