"""A model's logits from plainly kept keys and values, in float64: no ring, no slots, no chunks.

For each query the visible positions are listed from the definition: the sinks and the latest keys, capacity in all,
or the window. Keys are kept unrotated and rotated at their place inside that list, as StreamingLLM states it
(Xiao et al. 2023, section 3.2), which for a list without gaps is the same as absolute positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.core.config import LayerConfig, ModelConfig, Rope
from ringlet.core.weights import Matrix, ModelWeights
from ringlet.testing.random_models import random_model, rope_of


def plain_model(
    seed: int, *, windows: tuple[int | None, ...] = (None, None), d_k: int = 8, **sizes: Any
) -> tuple[ModelConfig, ModelWeights]:
    """A random model of the recipe that `dense_logits` follows."""
    layers = tuple(LayerConfig(window, rope_of(d_k)) for window in windows)
    return random_model(seed, d_vocab=40, d_k=d_k, score_scale=2 / np.sqrt(d_k), tied=True, layers=layers, **sizes)


def visible_positions(position: int, window: int | None, context: int, sinks: int) -> list[int]:
    """What the query at `position` sees, from the definition."""
    seen = list(range(position + 1))
    if window is not None and window <= context:
        return seen[-window:]
    if len(seen) <= context:
        return seen
    return seen[:sinks] + seen[len(seen) - (context - sinks) :]


def dense_logits(
    config: ModelConfig,
    weights: ModelWeights,
    token_ids: list[int],
    *,
    context: int,
    sinks: int = 0,
    half: bool = False,
) -> np.ndarray:
    """float64 (len(token_ids), d_vocab): every position's logits, each query over its visible positions.

    half: keys and values are kept as a ring of float16 keeps them, a key rotated at its own position.
    """
    x = weights.embedding.dequantize()[token_ids].astype(np.float64)
    n, group = len(token_ids), config.n_heads // config.n_kv_heads
    for layer, recipe in zip(weights.layers, config.layers, strict=True):
        h = _rms(x, layer.attention_norm)
        Q = _times(h, layer.W_q).reshape(n, config.n_heads, config.d_k)
        K = _times(h, layer.W_k).reshape(n, config.n_kv_heads, config.d_k)
        V = _times(h, layer.W_v).reshape(n, config.n_kv_heads, config.d_v)
        if half:
            K, V = _rounded_keys(K, recipe.rope), V.astype(np.float16).astype(float)
        out = np.zeros((n, config.n_heads, config.d_v))
        for p in range(n):
            seen = visible_positions(p, recipe.window, context, sinks)
            for head in range(config.n_heads):
                keys = np.stack([_rotate(K[j, head // group], place, recipe.rope) for place, j in enumerate(seen)])
                S = keys @ _rotate(Q[p, head], len(seen) - 1, recipe.rope) * config.score_scale
                alpha = np.exp(S - S.max())
                out[p, head] = alpha / alpha.sum() @ V[seen, head // group]
        x = x + _times(out.reshape(n, -1), layer.W_o)
        h = _rms(x, layer.feed_forward_norm)
        assert layer.W_gate is not None
        gate = _times(h, layer.W_gate)
        x = x + _times(gate / (1 + np.exp(-gate)) * _times(h, layer.W_up), layer.W_down)
    return _times(_rms(x, weights.final_norm), weights.W_t)


def _rounded_keys(K: np.ndarray, rope: Rope | None) -> np.ndarray:
    """K (n, n_kv_heads, d_k) rotated at its own position, rounded to float16, and rotated back."""
    rounded = np.empty_like(K)
    for position, head in np.ndindex(K.shape[:2]):
        stored = _rotate(K[position, head], position, rope).astype(np.float16).astype(float)
        rounded[position, head] = _rotate(stored, -position, rope)
    return rounded


def _times(x: np.ndarray, W: Matrix) -> np.ndarray:
    return x @ W.dequantize().astype(np.float64).T


def _rms(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def _rotate(vector: np.ndarray, position: int, rope: Rope | None) -> np.ndarray:
    if rope is None:
        return vector
    turned = vector[: rope.width // 2] + 1j * vector[rope.width // 2 :]
    turned = turned * np.exp(1j * position * np.array(rope.frequencies))
    return np.concatenate([turned.real, turned.imag])
