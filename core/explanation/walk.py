"""One token's way through one layer and one head of a trace: what `ringlet explain` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ringlet.core.errors import RingletError
from ringlet.core.explanation.trace import LayerTrace, StepTrace, Trace, plain
from ringlet.core.measurement.workload import StepCounter

if TYPE_CHECKING:
    from ringlet.core.pipeline import Pipeline

STREAM = ("x", "attended", "x_attended", "fed", "x_out")  # the residual stream, and what is added to it
VECTORS = ("x_normed", "Q", "Q_normed", "Q_rotated", "O_head", "O_heads", "O_attention", "fed_from", "hidden")
THEORY = ("embedding", "positions", "W_q", "W_k", "W_v", "W_o", "W_gate", "W_up", "W_down", "W_t")


@dataclass(frozen=True)
class Question:
    """The token at `position` asks, in one head of one layer."""

    trace: Trace
    layer: int
    head: int
    position: int

    @property
    def step(self) -> StepTrace:
        return self.trace.at(self.position)[0]

    @property
    def row(self) -> int:
        """The token's row in its step."""
        return self.trace.at(self.position)[1]

    @property
    def arrays(self) -> LayerTrace:
        return self.step.layers[self.layer]

    @property
    def kv_head(self) -> int:
        """Whose keys and values the head uses."""
        return self.head // self.trace.config.heads_per_kv_head

    @property
    def keys(self) -> np.ndarray:
        """K as the ring keeps it, (keys, d_k), of the positions that the step sees."""
        return self.trace.rows("K_rotated", self.layer, self.arrays.key_positions)[:, self.kv_head]

    @property
    def values(self) -> np.ndarray:
        """V, (keys, d_v)."""
        return self.trace.rows("V", self.layer, self.arrays.key_positions)[:, self.kv_head]

    def vector(self, name: str) -> np.ndarray | None:
        """The token's own row of a layer's array, of this head where heads have their own; None where there is none."""
        array = getattr(self.arrays, name)
        if array is None:
            return None
        row: np.ndarray = array[self.row]
        return row[self.head] if row.ndim == 2 else row

    def scores(self, name: str) -> np.ndarray:
        """The token's scores in this head, (keys,): "S_raw", "S_scaled", "S" or "alpha"."""
        scores: np.ndarray = getattr(self.arrays, name)[self.head, self.row]
        return scores

    @property
    def next_id(self) -> int:
        """What came after the token: the next of the text, or what was drawn after the last."""
        following = self.position + 1
        return self.trace.token_ids[following] if following < len(self.trace.token_ids) else self.step.next_id


@dataclass(frozen=True)
class Walk(Question):
    """A question and what its answer costs.

    multiplications: of this token's step with the ring ("ring"), and with everything computed again ("again").
    """

    multiplications: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """All that is shown, in full, as plain values ready for JSON."""
        trace, arrays, row = self.trace, self.arrays, self.row
        keys, values, piece = self.keys, self.values, trace.texts
        names = ("S_raw", "S_scaled", "S", "alpha")
        return plain(
            {
                "model": trace.model,
                "text": trace.text,
                "config": trace.to_config(),
                "layer": self.layer,
                "head": self.head,
                "position": self.position,
                "tokens": [
                    {"position": at, "id": i, "piece": trace.pieces[at]} for at, i in enumerate(trace.token_ids)
                ],
                "prompt_tokens": trace.prompt_length,
                "weights": {name: trace.weights[name] for name in THEORY if name in trace.weights},
                "stream": {name: self.vector(name) for name in STREAM},
                "vectors": {name: self.vector(name) for name in VECTORS},
                "keys": [
                    {"position": at, "K": keys[column], "V": values[column]}
                    | {name: self.scores(name)[column] for name in names}
                    for column, at in enumerate(arrays.key_positions)
                ],
                "heads": [{"head": h, "alpha": arrays.alpha[h, row]} for h in range(trace.config.n_heads)],
                "lens": [
                    {"layer": layer - 1, "id": ids[0], "piece": piece[int(ids[0])], "probability": shares[0]}
                    for layer, (ids, shares) in enumerate(
                        zip(self.step.lens.ids[:, row], self.step.lens.probabilities[:, row], strict=True)
                    )
                ],
                "best": [
                    {"id": i, "piece": piece[int(i)], "probability": share}
                    for i, share in zip(self.step.best.ids[row], self.step.best.probabilities[row], strict=True)
                ],
                "next": {"id": self.next_id, "piece": piece[self.next_id]},
                "ring": arrays.ring,
                "multiplications": self.multiplications,
            }
        )


def walk(pipe: Pipeline, trace: Trace, layer: int = 0, head: int = 0, token: int = -1) -> Walk:
    """Where a token of the trace asks. Negative numbers count from the end.

    Raises RingletError for a layer, head or token that there is not.
    """
    asked = question(trace, layer, head, token)
    counter = StepCounter(pipe.model.config, pipe.model.weights, pipe.layout, pipe.ring_bytes)
    work = {
        "ring": counter.step(1, asked.position, asked.position + 1, 1).multiply_adds,
        "again": counter.step(1, 0, asked.position + 1, 1).multiply_adds,
    }
    return Walk(trace, asked.layer, asked.head, asked.position, work)


def question(trace: Trace, layer: int = 0, head: int = 0, token: int = -1) -> Question:
    """The same for what can be told without counting work. Raises RingletError as `walk` does."""
    config = trace.config
    step, row = trace.at(token)
    layer, head = chosen("layer", layer, config.n_layers), chosen("head", head, config.n_heads)
    return Question(trace, layer, head, int(step.positions[row]))


def chosen(name: str, index: int, n: int) -> int:
    if not -n <= index < n:
        raise RingletError(f"there is no {name} {index}: from 0 to {n - 1}, or from -1 back to {-n}")
    return index % n
