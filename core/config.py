"""What a model is: its sizes, in the symbols of the theory, and the recipe of its blocks.

Every backend interprets this recipe and nothing else; no backend asks for an architecture's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal, get_args

from ringlet.core.errors import FormatError

LARGEST_SIZE = 1 << 31

Norm = Literal["rms", "layer"]
Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]
Residual = Literal["sequential", "parallel"]
Pairing = Literal["halves", "adjacent"]


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding (Su et al. 2021, RoFormer, eq. 34) of the first 2·len(frequencies) parts of a head.

    At position p the pair i is rotated by the angle p·frequencies[i]. Every scaling that does not depend on the length
    (linear, Llama 3, YaRN) is already in the frequencies.
    """

    frequencies: tuple[float, ...]  # radians per position, one a pair
    pairing: Pairing  # pair i is (i, i + width/2), or (2i, 2i + 1)
    magnitude: float = 1.0  # multiplies cos and sin (YaRN's attention factor)

    @property
    def width(self) -> int:
        """How many of a head's d_k parts are rotated; the rest pass unchanged."""
        return 2 * len(self.frequencies)

    def check(self, about: str, d_k: int) -> None:
        """Raises FormatError where no head of d_k parts can be rotated so."""
        if self.width > d_k:
            raise FormatError(f"{about}: RoPE rotates {self.width} parts of a head of d_k {d_k}")
        if self.pairing not in get_args(Pairing):
            raise FormatError(
                f"{about}: RoPE's pairing is {self.pairing!r}: choose from {', '.join(get_args(Pairing))}"
            )
        if not all(map(isfinite, (*self.frequencies, self.magnitude))):
            raise FormatError(f"{about}: RoPE's frequencies are no numbers")


@dataclass(frozen=True)
class LayerConfig:
    """What may differ from layer to layer."""

    window: int | None = None  # the model's own sliding window: a query sees this many last tokens, itself included
    rope: Rope | None = None


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and recipe, validated.

    A block, with `residual="sequential"`:
    ``x += post_norm(attention(norm(x)))`` then ``x += post_norm(feed_forward(norm(x)))``;
    with "parallel": ``x += attention(norm(x)) + feed_forward(norm(x))``.
    ``feed_forward(x)`` is ``(activation(x·W_gate) * (x·W_up))·W_down`` where gated, else ``activation(x·W_up)·W_down``.
    """

    architecture: str
    d_model: int
    d_k: int
    d_v: int
    d_ff: int
    d_vocab: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    context_length: int
    layers: tuple[LayerConfig, ...]
    score_scale: float  # usually 1/√d_k
    norm: Norm = "rms"
    norm_epsilon: float = 1e-5
    post_norms: bool = False  # a second norm on what attention and feed-forward return (Gemma's sandwich)
    qk_norm: bool = False  # RMS norm over d_k of each head's q and k, before RoPE
    activation: Activation = "silu"
    gated: bool = True
    residual: Residual = "sequential"
    embedding_scale: float = 1.0
    learned_positions: bool = False
    tied: bool = False  # W_t is the embedding
    score_soft_cap: float | None = None  # S = cap·tanh(S/cap)
    logit_soft_cap: float | None = None

    def __post_init__(self) -> None:
        sizes = ("d_model", "d_k", "d_v", "d_ff", "d_vocab", "n_layers", "n_heads", "n_kv_heads", "context_length")
        for name in sizes:
            value = getattr(self, name)
            if not _is_size(value):
                raise FormatError(f"{name} is {value!r}: a whole number from 1 to {LARGEST_SIZE - 1} is needed")
        for name, choices in (("norm", Norm), ("activation", Activation), ("residual", Residual)):
            if getattr(self, name) not in get_args(choices):
                raise FormatError(f"{name} is {getattr(self, name)!r}: choose from {', '.join(get_args(choices))}")
        if self.n_heads % self.n_kv_heads:
            raise FormatError(f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}")
        if len(self.layers) != self.n_layers:
            raise FormatError(f"n_layers is {self.n_layers}, but {len(self.layers)} layers are described")
        for index, layer in enumerate(self.layers):
            if layer.window is not None and not _is_size(layer.window):
                raise FormatError(f"layer {index}: window {layer.window!r} is not a positive whole number")
            if layer.rope is not None:
                layer.rope.check(f"layer {index}", self.d_k)
        if self.residual == "parallel" and self.post_norms:
            raise FormatError("residual is 'parallel' and post_norms is true: a parallel block has no post norms")
        for name in ("score_scale", "norm_epsilon", "embedding_scale"):
            if not 0 < getattr(self, name) < float("inf"):
                raise FormatError(f"{name} is {getattr(self, name)!r}: a positive number is needed")
        for name in ("score_soft_cap", "logit_soft_cap"):
            cap = getattr(self, name)
            if cap is not None and not 0 < cap < float("inf"):
                raise FormatError(f"{name} is {cap!r}: a positive number is needed")

    @property
    def sizes(self) -> str:
        """In a few words, for what shows a model on one line."""
        return f"{self.architecture}, n_layers {self.n_layers}, d_model {self.d_model}, d_vocab {self.d_vocab}"

    @property
    def heads_per_kv_head(self) -> int:
        return self.n_heads // self.n_kv_heads


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < LARGEST_SIZE
