"""A model's logits from plainly kept keys and values, in float64: no ring, no slots, no chunks.

For each query the visible positions are listed from the definition: the sinks and the latest keys, capacity in all,
or the window. Keys are kept unrotated and rotated at their place inside that list, as StreamingLLM states it
(Xiao et al. 2023, section 3.2), which for a list without gaps is the same as absolute positions.
"""

from __future__ import annotations

import numpy as np

from ringlet.core.config import LayerConfig, ModelConfig, Rope
from ringlet.core.weights import LayerWeights, Matrix, ModelWeights


def random_model(
    seed: int,
    *,
    windows: tuple[int | None, ...] = (None, None),
    n_heads: int = 4,
    n_kv_heads: int = 2,
    d_k: int = 8,
    d_v: int = 8,
) -> tuple[ModelConfig, ModelWeights]:
    """A small model with weights large enough for attention to be far from uniform."""
    rng = np.random.default_rng(seed)
    d_model, d_ff, d_vocab = 16, 24, 40
    rope = Rope(tuple(1.0 / 100 ** (np.arange(0, d_k, 2) / d_k)), "halves") if d_k > 1 else None

    def matrix(rows: int, columns: int) -> Matrix:
        return Matrix.from_float((rng.standard_normal((rows, columns)) * 1.5 / np.sqrt(columns)).astype(np.float32))

    def norm() -> np.ndarray:
        return rng.uniform(0.5, 1.5, d_model).astype(np.float32)

    config = ModelConfig(
        architecture="random", d_model=d_model, d_k=d_k, d_v=d_v, d_ff=d_ff, d_vocab=d_vocab, n_layers=len(windows),
        n_heads=n_heads, n_kv_heads=n_kv_heads, context_length=4096, score_scale=2 / np.sqrt(d_k), tied=True,
        layers=tuple(LayerConfig(window, rope) for window in windows),
    )  # fmt: skip
    layers = tuple(
        LayerWeights(
            W_q=matrix(n_heads * d_k, d_model), W_k=matrix(n_kv_heads * d_k, d_model),
            W_v=matrix(n_kv_heads * d_v, d_model), W_o=matrix(d_model, n_heads * d_v),
            W_up=matrix(d_ff, d_model), W_gate=matrix(d_ff, d_model), W_down=matrix(d_model, d_ff),
            attention_norm=norm(), feed_forward_norm=norm(),
        )
        for _ in windows
    )  # fmt: skip
    embedding = matrix(d_vocab, d_model)
    return config, ModelWeights(embedding, embedding, norm(), layers)


def visible_positions(position: int, window: int | None, context: int, sinks: int) -> list[int]:
    """What the query at `position` sees, from the definition."""
    seen = list(range(position + 1))
    if window is not None and window <= context:
        return seen[-window:]
    if len(seen) <= context:
        return seen
    return seen[:sinks] + seen[len(seen) - (context - sinks) :]


def dense_logits(
    config: ModelConfig, weights: ModelWeights, token_ids: list[int], *, context: int, sinks: int = 0
) -> np.ndarray:
    """float64 (len(token_ids), d_vocab): every position's logits, each query over its visible positions."""
    x = weights.embedding.dequantize()[token_ids].astype(np.float64)
    n, group = len(token_ids), config.n_heads // config.n_kv_heads
    for layer, recipe in zip(weights.layers, config.layers, strict=True):
        h = _rms(x, layer.attention_norm)
        Q = _times(h, layer.W_q).reshape(n, config.n_heads, config.d_k)
        K = _times(h, layer.W_k).reshape(n, config.n_kv_heads, config.d_k)
        V = _times(h, layer.W_v).reshape(n, config.n_kv_heads, config.d_v)
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
        gate = _times(h, layer.W_gate)
        x = x + _times(gate / (1 + np.exp(-gate)) * _times(h, layer.W_up), layer.W_down)
    return _times(_rms(x, weights.final_norm), weights.W_t)


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
