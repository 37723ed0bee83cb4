"""A trace: what a prompt, and the tokens drawn after it, became on their way through the model, by the theory's names.

Sizes in the shapes: n tokens of a step, `keys` positions that it sees. Arrays are float32 unless said otherwise, cannot
be written to, and are the numpy backend's own, so that they recombine to its logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from typing import Any

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError, one_line, quoted


@dataclass(frozen=True)
class LayerRing:
    """What one layer's ring holds after a step.

    Positions are int64 arrays in ascending order. The ring of a trace has no more slots than a query sees.
    """

    capacity: int  # keys a query sees at most, itself included; so many slots there are
    sinks: int  # first positions that are never overwritten
    positions: np.ndarray  # (held,): the tokens whose K and V are here
    slots: np.ndarray  # (held,): where each of them lies
    added: np.ndarray  # (n,): what the step computed and wrote
    reused: np.ndarray  # what the step read and did not compute again
    overwritten: np.ndarray  # what the step wrote over
    next_slot: int | None  # where the next token goes; None where the ring is full and does not slide
    overwrites_next: int | None  # the position that the next token writes over
    nbytes: int  # memory of all slots


@dataclass(frozen=True)
class LayerTrace:
    """One layer's part of a step, in the order in which it is computed.

    An array that the recipe does not have is None.
    """

    x: np.ndarray  # (n, d_model): the residual stream that comes in
    x_normed: np.ndarray  # (n, d_model): what the projections see
    Q: np.ndarray  # (n, n_heads, d_k): x_normed·W_q
    K: np.ndarray  # (n, n_kv_heads, d_k): x_normed·W_k
    V: np.ndarray  # (n, n_kv_heads, d_v): x_normed·W_v
    Q_normed: np.ndarray | None  # (n, n_heads, d_k): after QK-norm
    K_normed: np.ndarray | None  # (n, n_kv_heads, d_k)
    Q_rotated: np.ndarray  # (n, n_heads, d_k): after RoPE, at the token's position; what meets the keys
    K_rotated: np.ndarray  # (n, n_kv_heads, d_k): what the ring keeps
    Q_sinks: np.ndarray  # (n, n_heads, d_k): what meets the sinks' keys; differs once the ring has slid
    query_positions: np.ndarray  # int64 (n,)
    key_positions: np.ndarray  # int64 (keys,): which token each column of S and α is about
    S_raw: np.ndarray  # (n_heads, n, keys): QKᵀ
    S_scaled: np.ndarray  # (n_heads, n, keys): QKᵀ·score_scale, usually QKᵀ/√d_k
    S: np.ndarray  # (n_heads, n, keys): soft-capped where the model does so, −∞ where the token may not look
    alpha: np.ndarray  # (n_heads, n, keys): softmax(S), each row sums to 1
    O_head: np.ndarray  # (n, n_heads, d_v): αV
    O_heads: np.ndarray  # (n, n_heads·d_v): the heads side by side
    O_attention: np.ndarray  # (n, d_model): O_heads·W_o
    attended: np.ndarray  # (n, d_model): what attention adds to the stream: O_attention, normed in a sandwich
    x_attended: np.ndarray  # (n, d_model): x + attended
    fed_from: np.ndarray  # (n, d_model): what feed-forward sees: the norm of x_attended; of x in a parallel block
    hidden: np.ndarray  # (n, d_ff): between W_up (and W_gate) and W_down
    O_feed_forward: np.ndarray  # (n, d_model): hidden·W_down
    fed: np.ndarray  # (n, d_model): what feed-forward adds to the stream
    x_out: np.ndarray  # (n, d_model): x_attended + fed, the next layer's x
    ring: LayerRing

    def __repr__(self) -> str:
        return f"<LayerTrace of {len(self.x)} tokens, S {self.S.shape}>"


@dataclass(frozen=True)
class BestTokens:
    """The likeliest tokens, best first. ids: int64 (…, top). probabilities: float32 (…, top), among all tokens."""

    ids: np.ndarray
    probabilities: np.ndarray


@dataclass(frozen=True)
class StepTrace:
    """One forward step: a prompt at once, or one token that was drawn."""

    token_ids: np.ndarray  # int32 (n,)
    positions: np.ndarray  # int64 (n,)
    layers: tuple[LayerTrace, ...]
    final_normed: np.ndarray  # (n, d_model): what W_t sees
    logits: np.ndarray  # (n, d_vocab): O_vocab = final_normed·W_t
    best: BestTokens  # (n, top): of softmax(logits)
    lens: BestTokens  # (n_layers + 1, n, top): the best tokens if the model ended before layer 0, 1, …, after the last
    next_id: int  # what was drawn after the step's last token

    def __repr__(self) -> str:
        return f"<StepTrace of tokens {self.positions[0]} to {self.positions[-1]}, {len(self.layers)} layers>"


@dataclass(frozen=True)
class Trace:
    """The steps of a prompt and of the tokens drawn after it.

    model: its name. weights: shape (inputs, outputs) of each matrix, all heads together, by name; a layer's are the
    same in every layer. token_ids: of all steps. text: theirs, without special tokens. pieces: each of them as people
    read it. texts: piece by id, of every id that the trace names. prompt_length: how many token_ids are the prompt.
    """

    model: str
    config: ModelConfig
    weights: dict[str, tuple[int, int]]
    token_ids: list[int]
    text: str
    pieces: list[str]
    texts: dict[int, str]
    prompt_length: int
    steps: tuple[StepTrace, ...]

    def __repr__(self) -> str:
        tokens = f"{len(self.token_ids)} tokens, {self.prompt_length} of the prompt"
        return f"<Trace of {one_line(self.model)}: {quoted(self.text)}, {tokens}, {self.config.n_layers} layers>"

    @property
    def logits(self) -> np.ndarray:
        """Of all tokens, float32 (len(token_ids), d_vocab)."""
        return np.concatenate([step.logits for step in self.steps])

    def at(self, position: int) -> tuple[StepTrace, int]:
        """The step that computed the token at a position, and the token's row in it. Raises RingletError for no such.

        Negative positions count from the end, −1 being the last token.
        """
        wanted = position + len(self.token_ids) if position < 0 else position
        for step in self.steps:
            if step.positions[0] <= wanted <= step.positions[-1]:
                return step, int(wanted - step.positions[0])
        last = len(self.token_ids) - 1
        raise RingletError(f"there is no token {position}: from 0 to {last}, or from -1 back to {-last - 1}")

    def rows(self, name: str, layer: int, positions: np.ndarray) -> np.ndarray:
        """The rows of a layer's array for tokens at these positions, whichever steps computed them."""
        found = [self.at(int(position)) for position in positions]
        return np.stack([getattr(step.layers[layer], name)[row] for step, row in found])

    def to_dict(self, logits: bool = False) -> dict[str, Any]:
        """As plain values, ready for JSON: fields by name, arrays as lists, −∞ as None, ids in `texts` as strings.

        logits: with each step's logits, which are long; `best` has the likeliest anyway.
        """
        shown = plain(self, ("config",) if logits else ("config", "logits"))
        return {**shown, "config": self.to_config()}

    def to_config(self) -> dict[str, Any]:
        """The model's sizes and what matters of its recipe, as plain values."""
        return {name: getattr(self.config, name) for name in CONFIG_NAMES}


CONFIG_NAMES = (
    "architecture", "d_model", "d_k", "d_v", "d_ff", "d_vocab", "n_layers", "n_heads", "n_kv_heads", "context_length",
    "score_scale", "score_soft_cap", "norm", "activation", "gated", "residual", "tied",
)  # fmt: skip


def plain(value: Any, left_out: tuple[str, ...] = ()) -> Any:
    """Dataclasses as dicts, arrays as lists, numbers that JSON does not have as None. left_out: names of fields."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(part, left_out) for name, part in items(value) if name not in left_out}
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            numbers = value.astype(object)
            numbers[~np.isfinite(value)] = None
            return numbers.tolist()
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(part, left_out) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part, left_out) for part in value]
    number = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(number, float) and not isfinite(number) else number


def items(value: Any) -> Iterator[tuple[str, Any]]:
    """A dataclass's fields and what they hold."""
    return ((field.name, getattr(value, field.name)) for field in fields(value))
