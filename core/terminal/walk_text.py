"""What `explain` prints: a token's way through attention, in the order and the symbols of the theory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ringlet.core.explanation.walk import Walk
from ringlet.core.readable import number
from ringlet.core.terminal.columns import bar, cut, heading, painted, width_of, wrapped
from ringlet.core.terminal.ring_text import ring_section
from ringlet.core.terminal.walk_page import MOST_KEYS, WalkPage, length

FIRST_BEST = 5  # rows of the best tokens
FOLLOWING = 4  # rows of tokens that come after the one that asks, where not all are shown


def walk_lines(walk: Walk, width: int) -> list[str]:
    """The whole walk, in lines of at most `width` columns."""
    return list(WalkText(walk, width).lines())


def shape(*sizes: int) -> str:
    return f"({', '.join(f'{size:,}' for size in sizes)})"


class WalkText(WalkPage):
    """The sections of a walk, in the theory's order."""

    def lines(self) -> Iterator[str]:
        yield from self.title()
        sections = [self.tokens, self.embedding, self.projections, self.scores, self.mix, self.heads]
        for section in [*sections, self.stream, self.vocabulary]:
            yield from section()
        yield from ring_section(self)

    def title(self) -> Iterator[str]:
        walk, config = self.walk, self.config
        text = cut(" ".join(self.trace.text.split()), 3 * self.width)
        yield from (painted(line, bold=True) for line in wrapped(text, self.width))
        facts = (
            f"{Path(self.trace.model).name}: {config.architecture}, layer {walk.layer} of 0–{config.n_layers - 1}, "
            f"head {walk.head} of 0–{config.n_heads - 1}. "
            f"「{self.asking}」 asks, token {walk.position}. Every number is the model's own, in float32."
        )
        yield from wrapped(facts, self.width)

    def tokens(self) -> Iterator[str]:
        yield from heading(1, "Text → tokens", f"d_vocab = {self.config.d_vocab:,} of them", self.width)
        positions = range(len(self.trace.token_ids))
        first = max(0, min(len(positions), self.walk.position + FOLLOWING + 1) - MOST_KEYS)
        rows = []
        for position in positions[first : first + MOST_KEYS]:
            drawn = "drawn" if position >= self.trace.prompt_length else ""
            note = "← asks" if position == self.walk.position else drawn
            rows.append([str(position), self.piece(position), str(self.trace.token_ids[position]), note])
        if first:
            yield from self.prose(f"… {first} before these")
        yield from self.table(rows, (True, False, True, False))
        if first + MOST_KEYS < len(positions):
            yield from self.prose(f"… {len(positions) - first - MOST_KEYS} after these")

    def embedding(self) -> Iterator[str]:
        config, walk = self.config, self.walk
        yield from heading(2, "Tokens → x", f"d_model = {config.d_model:,}", self.width)
        scale = "" if config.embedding_scale == 1 else f", times {config.embedding_scale:.4g}"
        learned = ", plus a learned row for its position" if config.learned_positions else ""
        yield from self.prose(
            f"Each token is a row of the embedding table {shape(*self.trace.weights['embedding'])}{scale}{learned}. "
            f"x of 「{self.asking}」, its length ‖x‖ and its first numbers:"
        )
        rows = [("x", self.step.layers[0].x[walk.row])]
        if walk.layer:
            rows.append((f"x, layer {walk.layer}", self.arrays.x[walk.row]))
        yield from self.vectors(rows)

    def projections(self) -> Iterator[str]:
        config, walk = self.config, self.walk
        d_model, d_k, d_v = config.d_model, config.d_k, config.d_v
        yield from heading(3, "x → Q, K, V", "Q = x·W_q, K = x·W_k, V = x·W_v", self.width)
        own = (
            ""
            if config.heads_per_kv_head == 1
            else f"; W_k and W_v have {config.n_kv_heads}, for {config.n_heads} heads"
        )
        yield from self.prose(
            f"x is normed first. One head's W_q is {shape(d_model, d_k)}, its W_k {shape(d_model, d_k)}, its W_v "
            f"{shape(d_model, d_v)}. The layer's W_q, {shape(*self.trace.weights['W_q'])}, has h = {config.n_heads} "
            f"side by side{own}."
        )
        turned = config.layers[walk.layer].rope is not None
        yield f"   Q {shape(1, d_k)}: what 「{self.asking}」 looks for"
        names = [("x·W_q", "Q"), ("normed", "Q_normed"), ("turned", "Q_rotated" if turned else "")]
        found = [(label, walk.vector(name)) for label, name in names if name]
        yield from self.vectors([(label, vector) for label, vector in found if vector is not None])
        if turned:
            yield from self.prose("RoPE turns pairs of the numbers in Q and K, further for later tokens.")
        keys, values, positions = walk.keys, walk.values, self.arrays.key_positions
        for name, meaning, rows, width in (
            ("K", "what each can be found by", keys, d_k),
            ("V", "what each brings", values, d_v),
        ):
            yield from self.prose(f"{name} {shape(len(rows), width)}: {meaning}")
            yield from self.vectors([(self.piece(int(positions[column])), rows[column]) for column in self.shown])

    def scores(self) -> Iterator[str]:
        config, walk = self.config, self.walk
        d_k = config.d_k
        yield from heading(4, "Scores and weights", "S = QKᵀ/√d_k, α = softmax(S)", self.width)
        is_usual = np.isclose(config.score_scale, d_k**-0.5)
        scale = (
            f"√d_k = √{d_k} = {d_k**0.5:.4g}"
            if is_usual
            else f"scale {config.score_scale:.4g} (√d_k is {d_k**0.5:.4g})"
        )
        capped = f" S is capped at ±{config.score_soft_cap:g}." if config.score_soft_cap else ""
        yield from self.prose(f"The Q of 「{self.asking}」 meets every K: {scale}.{capped}")
        raw, S, alpha = (walk.scores(name) for name in ("S_raw", "S", "alpha"))
        positions = self.arrays.key_positions
        rows = [["", "QKᵀ", "S", "α"]]
        for column in self.shown:
            weight = number(float(alpha[column]), 3)
            rows.append(
                [self.piece(int(positions[column])), number(float(raw[column])), number(float(S[column])), weight]
            )
        lines = self.table(rows, (False, True, True, True))
        room = self.width - max(map(width_of, lines)) - 2
        largest = float(alpha.max())
        yield painted(lines[0], dim=True)
        for line, column in zip(lines[1:], self.shown, strict=True):
            weight = bar(float(alpha[column]) / largest, min(room, 40))
            yield f"{line}  {painted(weight, fg='yellow')}".rstrip()
        yield from self.left_out()
        future = int(np.isneginf(S).sum())
        if future:
            later = "1 token that comes" if future == 1 else f"{future} tokens that come"
            yield from self.prose(f"−∞ is the causal mask: 「{self.asking}」 may not look at {later} later.")
        yield from self.prose(f"α sums to {float(alpha.sum()):.4f}.")
        yield from self.whole_prompt()

    def whole_prompt(self) -> Iterator[str]:
        """S of all the step's queries, where that is a table that fits."""
        S, positions = self.arrays.S[self.walk.head], self.step.positions.tolist()
        keys = self.arrays.key_positions.tolist()
        names = [self.piece(position) for position in keys]
        rows = [["", *names]]
        for row, position in enumerate(positions):
            rows.append([self.piece(position), *(number(float(value)) for value in S[row])])
        if len(positions) == 1 or len(keys) > MOST_KEYS:
            return
        lines = self.table(rows, [False] + [True] * len(keys))
        if max(map(width_of, lines)) > self.width:
            return
        yield from self.prose(
            f"The prompt is computed at once: a row for each query, S {shape(*S.shape)}. The causal mask sets what "
            "comes later to −∞, so that its α is 0:"
        )
        yield painted(lines[0], dim=True)
        yield from lines[1:]

    def mix(self) -> Iterator[str]:
        yield from heading(5, "O_head", "O_head = αV = Σ αᵢ·vᵢ", self.width)
        vector = self.walk.vector("O_head")
        assert vector is not None
        yield from self.prose(f"The values, mixed by those weights: {shape(1, self.config.d_v)}.")
        yield from self.vectors([("O_head", vector)])

    def heads(self) -> Iterator[str]:
        config, walk = self.config, self.walk
        h, d_v = config.n_heads, config.d_v
        yield from heading(6, "All heads", "O_attention = O_heads·W_o", self.width)
        yield from self.prose(
            f"h = {h} heads look at different things. Side by side they are O_heads {shape(1, h * d_v)}; "
            f"W_o {shape(*self.trace.weights['W_o'])} maps that back to d_model."
        )
        rows = [["head", "looks at", "α", "‖O_head‖"]]
        for head in range(h):
            alpha = self.arrays.alpha[head, walk.row]
            best = int(alpha.argmax())
            label = f"{head} ←" if head == walk.head and h > 1 else str(head)
            own = number(length(self.arrays.O_head[walk.row, head]))
            rows.append([label, self.piece(int(self.arrays.key_positions[best])), number(float(alpha[best]), 3), own])
        lines = self.table(rows, (False, False, True, True))
        yield painted(lines[0], dim=True)
        yield from lines[1:]
        O_heads, O_attention = walk.vector("O_heads"), walk.vector("O_attention")
        assert O_heads is not None
        assert O_attention is not None
        yield from self.vectors([("O_heads", O_heads), ("O_attention", O_attention)])

    def stream(self) -> Iterator[str]:
        config, walk = self.config, self.walk
        yield from heading(7, "The residual stream", "x + attention + feed-forward", self.width)
        gate, size = "W_gate, " if config.gated else "", f"{config.activation}, d_ff = {config.d_ff:,}"
        if config.residual == "parallel":
            parts = f"What attention finds and what {gate}W_up and W_down ({size}) make of the same x are added to it."
        else:
            parts = f"What attention found is added to x; then {gate}W_up and W_down ({size}) add what they make of it."
        sandwich = " Both are normed once more before." if config.post_norms else ""
        yield from self.prose(f"{parts}{sandwich}")
        names = (("x", "x"), ("+ attention", "attended"), ("+ feed-forward", "fed"), ("= next x", "x_out"))
        yield from self.vectors([(label, getattr(self.arrays, name)[walk.row]) for label, name in names])
        yield from self.prose(f"If the model ended there, 「{self.asking}」 would be followed by:")
        lens, rows = self.step.lens, []
        for layer in range(config.n_layers + 1):
            place = "embedding" if layer == 0 else f"layer {layer - 1}"
            share = float(lens.probabilities[layer, walk.row, 0])
            rows.append([place, self.named(int(lens.ids[layer, walk.row, 0])), number(share, 3)])
        yield from self.with_bars(rows, [float(lens.probabilities[layer, walk.row, 0]) for layer in range(len(rows))])

    def vocabulary(self) -> Iterator[str]:
        config, walk, step = self.config, self.walk, self.step
        yield from heading(8, "To a token", "O_vocab = x·W_t, p = softmax(O_vocab)", self.width)
        tied = ", the embedding table turned round" if config.tied else ""
        d_model, d_vocab = self.trace.weights.get("W_t", (config.d_model, config.d_vocab))
        yield from self.prose(
            f"The last layer's x, normed, meets W_t {shape(d_model, d_vocab)}{tied}: a score for each of "
            f"{d_vocab:,} tokens. The best:"
        )
        ids, shares = step.best.ids[walk.row][:FIRST_BEST], step.best.probabilities[walk.row][:FIRST_BEST]
        rows = [[self.named(int(i)), str(i), number(float(share), 3)] for i, share in zip(ids, shares, strict=True)]
        yield from self.with_bars(rows, [float(share) for share in shares])
        is_last = walk.position == len(self.trace.token_ids) - 1
        following = "Drawn" if is_last or walk.position + 1 >= self.trace.prompt_length else "In the text follows"
        yield from self.prose(f"{following}: 「{self.named(walk.next_id)}」.")
