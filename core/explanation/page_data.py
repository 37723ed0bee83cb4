"""What the page of `explain --html` knows of a trace, as plain values; page/data.js reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.explanation.short_numbers import shortened
from ringlet.core.explanation.trace import BestTokens, LayerRing, LayerTrace, StepTrace, Trace
from ringlet.core.explanation.walk import Question

LENS_TOP, BEST_TOP = 3, 5  # tokens told of each layer, and of the end
LARGEST_WEIGHTS = 16_000_000  # bytes of all α in a page


def check_page_size(config: ModelConfig, n_tokens: int) -> None:
    """Raises RingletError where a page of so many tokens would be too large to be pleasant; α grows as their square."""
    heads = config.n_layers * config.n_heads
    if heads * n_tokens * (n_tokens + 1) > LARGEST_WEIGHTS:
        most = int((LARGEST_WEIGHTS / heads + 0.25) ** 0.5 - 0.5)
        raise RingletError(
            f"a page of {n_tokens:,} tokens would take {heads * n_tokens**2 / 1e6:,.0f} MB; with this model {most:,} "
            "are possible: give a shorter PROMPT, or draw less (--max-tokens)"
        )


def page_data(asked: Question) -> dict[str, Any]:
    """A question's trace, and who asks where, which is what the page shows first.

    steps: of each the first token, how many there are, and what was drawn. alpha: for each layer and head the rows of
    all tokens one after the other, each with a number (two characters, `shortened`) for every key that the token sees,
    in order of positions: those that its step `reused` in the layer's ring and those it `added`, up to itself. rings:
    each kind once; ring_of_layer: which one a layer has.
    """
    trace, config = asked.trace, asked.trace.config
    rings, ring_of_layer = distinct_rings(trace)
    names = ("architecture", "d_model", "d_k", "d_v", "d_ff", "d_vocab", "n_layers", "n_heads", "n_kv_heads")
    return {
        "model": Path(trace.model).name,
        "config": {name: getattr(config, name) for name in names},
        "ids": trace.token_ids,
        "pieces": trace.pieces,
        "texts": {str(token_id): text for token_id, text in trace.texts.items()},
        "prompt_length": trace.prompt_length,
        "steps": [[int(step.positions[0]), len(step.positions), int(step.next_id)] for step in trace.steps],
        "start": {"layer": asked.layer, "head": asked.head, "position": asked.position},
        "alpha": [head_texts(trace, layer) for layer in range(config.n_layers)],
        "rings": rings,
        "ring_of_layer": ring_of_layer,
        "lens": [best_of([layer_of(step.lens, at) for step in trace.steps], LENS_TOP) for at in range_of_lens(trace)],
        "best": best_of([step.best for step in trace.steps], BEST_TOP),
    }


def range_of_lens(trace: Trace) -> range:
    """The logit lens looks before layer 0 too."""
    return range(trace.config.n_layers + 1)


def layer_of(lens: BestTokens, layer: int) -> BestTokens:
    return BestTokens(lens.ids[layer], lens.probabilities[layer])


def head_texts(trace: Trace, layer: int) -> list[str]:
    """For each head of a layer, its α as text."""
    rows = [row for step in trace.steps for row in visible_weights(step.layers[layer])]
    return [shortened(np.concatenate([row[head] for row in rows])) for head in range(trace.config.n_heads)]


def visible_weights(layer: LayerTrace) -> list[np.ndarray]:
    """For each query of a step, α (n_heads, keys that it sees), in order of the keys' positions."""
    order = np.argsort(layer.key_positions)
    positions = layer.key_positions[order]
    return [
        layer.alpha[:, row, order][:, positions <= query] for row, query in enumerate(layer.query_positions.tolist())
    ]


def distinct_rings(trace: Trace) -> tuple[list[dict[str, Any]], list[int]]:
    """Each kind of ring once, with its state after every step, and which kind each layer has."""
    kinds: dict[tuple[int, int, bool], int] = {}
    rings: list[dict[str, Any]] = []
    ring_of_layer = []
    for index, layer in enumerate(trace.config.layers):
        ring = trace.steps[0].layers[index].ring
        is_window = layer.window is not None and layer.window == ring.capacity
        kind = (ring.capacity, ring.sinks, is_window)
        if kind not in kinds:
            kinds[kind] = len(rings)
            rings.append(
                {
                    "capacity": ring.capacity,
                    "sinks": ring.sinks,
                    "is_window": is_window,
                    "nbytes": ring.nbytes,
                    "states": [ring_state(step, index) for step in trace.steps],
                }
            )
        ring_of_layer.append(kinds[kind])
    return rings, ring_of_layer


def ring_state(step: StepTrace, layer: int) -> dict[str, Any]:
    """held: the position in each slot up to the last that is taken, −1 in a free one."""
    ring: LayerRing = step.layers[layer].ring
    held = np.full(int(ring.slots.max()) + 1, -1)
    held[ring.slots] = ring.positions
    return {
        "held": held.tolist(),
        "added": ring.added.tolist(),
        "reused": ring.reused.tolist(),
        "overwritten": ring.overwritten.tolist(),
        "next_slot": ring.next_slot,
        "overwrites_next": ring.overwrites_next,
    }


def best_of(found: list[BestTokens], top: int) -> dict[str, Any]:
    """The `top` best tokens of each position, one position after the other."""
    ids = np.concatenate([best.ids[:, :top] for best in found])
    shares = np.concatenate([best.probabilities[:, :top] for best in found])
    return {
        "top": ids.shape[1],
        "ids": ids.ravel().tolist(),
        "probabilities": [round(float(share), 4) for share in shares.flat],
    }
