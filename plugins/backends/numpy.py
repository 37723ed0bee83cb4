"""The readable reference: a forward step in float32 NumPy, in the order and symbols of the theory.

Read `forward_with_hidden`, `block`, `attention` and `attend`: sentence → tokens → embedding → Q, K, V → S = QKᵀ/√d_k
→ α = softmax(S) → O_head = αV → O_heads·W_o → feed-forward → W_t → logits (Vaswani et al. 2017, Attention Is All You
Need, eq. 1).

Whoever watches (`ringlet explain`, `pipe.trace`, an observer of a plugin's) is told each quantity by its name.
"""

from __future__ import annotations

import math

import numpy as np

from ringlet.core.backend import Backend, MachineLimits
from ringlet.core.batch import Batch
from ringlet.core.config import ModelConfig, Rope
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.observers import Observable
from ringlet.core.ring_cache import LayerLayout, RingCache
from ringlet.core.weights import LayerWeights, Matrix, ModelWeights


class NumpyBackend(Observable, Backend):
    """Any recipe, plainly. Weights are unpacked to float32 once, so it takes 4 bytes a weight."""

    name = "numpy"
    kv_dtype = "f32"
    rank = 10

    def __init__(self, config: ModelConfig, weights: ModelWeights, threads: int | None = None) -> None:
        super().__init__(config, weights, threads)
        self._unpacked: dict[Matrix, np.ndarray] = {}

    def unpacked(self, matrix: Matrix) -> np.ndarray:
        """The matrix as the theory writes it: float32 (inputs, outputs), for x·W."""
        if matrix not in self._unpacked:
            self._unpacked[matrix] = matrix.dequantize().T
        return self._unpacked[matrix]

    def machine_limits(self) -> MachineLimits:
        from ringlet.plugins.backends.cpu.limits import machine_limits  # it runs on the same machine

        return machine_limits(self.threads)

    def project(self, x: np.ndarray, W: Matrix, bias: np.ndarray | None) -> np.ndarray:
        """x·W + b, (n, inputs) to (n, outputs)."""
        y = x @ self.unpacked(W)
        return y if bias is None else y + bias

    def forward(self, batch: Batch) -> np.ndarray:
        return self.forward_with_hidden(batch)[0]

    def forward_with_hidden(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        config, weights = self.config, self.weights
        x = weights.embedding.dequantize(batch.token_ids) * np.float32(config.embedding_scale)  # (n, d_model)
        if weights.positions is not None:
            x = x + weights.positions.dequantize(batch.positions)
        self.observe(None, token_ids=batch.token_ids, positions=batch.positions, sequence=batch.sequence)
        for index, layer in enumerate(weights.layers):
            x = self.block(index, layer, x, batch)
        final_normed = self.final_norm(x)
        logits = self.to_vocab(final_normed[batch.wants_logits])
        self.observe(None, final_normed=final_normed, logits=logits)
        return logits, final_normed

    def block(self, index: int, layer: LayerWeights, x: np.ndarray, batch: Batch) -> np.ndarray:
        """The residual stream x (n, d_model) after one layer: attention adds to it, then feed-forward does.

        In a parallel block the feed-forward part reads what attention reads, not what it returns.
        """
        x_normed = self.norm(x, layer.attention_norm, layer.attention_norm_bias)
        self.observe(index, x=x, x_normed=x_normed)
        attended = self.post_norm(self.attention(index, layer, x_normed, batch), layer.attention_post_norm)
        x_attended = x + attended
        seen = x if self.config.residual == "parallel" else x_attended
        fed_from = self.norm(seen, layer.feed_forward_norm, layer.feed_forward_norm_bias)
        self.observe(index, attended=attended, x_attended=x_attended, fed_from=fed_from)
        fed = self.post_norm(self.feed_forward(index, layer, fed_from), layer.feed_forward_post_norm)
        x_out = x_attended + fed
        self.observe(index, fed=fed, x_out=x_out)
        return x_out

    def attention(self, index: int, layer: LayerWeights, x: np.ndarray, batch: Batch) -> np.ndarray:
        """O_attention of each token, (n, d_model), from its normed residual x (n, d_model)."""
        config, n = self.config, len(x)
        Q = self.project(x, layer.W_q, layer.b_q).reshape(n, config.n_heads, config.d_k)
        K = self.project(x, layer.W_k, layer.b_k).reshape(n, config.n_kv_heads, config.d_k)
        V = self.project(x, layer.W_v, layer.b_v).reshape(n, config.n_kv_heads, config.d_v)
        self.observe(index, Q=Q, K=K, V=V)
        if layer.q_norm is not None and layer.k_norm is not None:
            Q, K = rms_norm(Q, layer.q_norm, config.norm_epsilon), rms_norm(K, layer.k_norm, config.norm_epsilon)
            self.observe(index, Q_normed=Q, K_normed=K)
        rope = config.layers[index].rope
        K = rotate(K, batch.positions, rope)
        self.observe(index, K_rotated=K)
        O_heads: np.ndarray = np.empty((n, config.n_heads, config.d_v), np.float32)
        for ring, start, stop in zip(batch.rings, batch.starts, batch.starts[1:], strict=False):
            layout, at = ring.layout.layers[index], batch.positions[start:stop]
            slots = layout.slot(at)
            ring.memory.write(index, slots, K[start:stop].swapaxes(0, 1), V[start:stop].swapaxes(0, 1))
            O_heads[start:stop] = self.attend(index, layout, ring, Q[start:stop], at)
        O_heads = O_heads.reshape(n, -1)
        O_attention = self.project(O_heads, layer.W_o, layer.b_o)
        self.observe(index, O_heads=O_heads, O_attention=O_attention)
        return O_attention

    def attend(self, index: int, layout: LayerLayout, ring: RingCache, Q: np.ndarray, at: np.ndarray) -> np.ndarray:
        """O_head = softmax(QKᵀ/√d_k)·V over the ring, for unrotated queries Q (n, n_heads, d_k) at positions `at`.

        Ring keys meet the query rotated at its position p; sink keys meet it rotated at min(p, capacity - 1), which
        is StreamingLLM (Xiao et al. 2023, section 3.2): positions inside the cache.
        """
        config, group, n = self.config, self.config.heads_per_kv_head, len(at)
        rope = config.layers[index].rope
        held = np.arange(layout.first_visible(int(at[0])), int(at[-1]) + 1)
        sinks = np.arange(min(layout.sinks, int(at[-1]) + 1))
        seen = np.concatenate([sinks, held])
        K, V = ring.memory.read(index, layout.slot(seen))  # (n_kv_heads, keys, d_k) and (n_kv_heads, keys, d_v)
        Q_rotated = rotate(Q, at, rope)
        Q_sinks = rotate(Q, np.minimum(at, layout.capacity - 1), rope)
        Q_ring, Q_first, K = by_group(Q_rotated, group), by_group(Q_sinks, group), K[:, None]  # (n_kv_heads, group, …)
        S_raw = np.concatenate(
            [Q_first @ K[..., : len(sinks), :].swapaxes(-1, -2), Q_ring @ K[..., len(sinks) :, :].swapaxes(-1, -2)],
            axis=-1,
        ).reshape(config.n_heads, n, -1)  # (n_heads, n, keys)
        S_scaled = S_raw * np.float32(config.score_scale)
        first = np.array([layout.first_visible(int(p)) for p in at])[:, None]
        visible = np.concatenate([sinks <= at[:, None], (first <= held) & (held <= at[:, None])], axis=-1)
        S = np.where(visible, soft_cap(S_scaled, config.score_soft_cap), np.float32(-np.inf))
        alpha = softmax(S)
        O_head = alpha.reshape(config.n_kv_heads, group, n, -1) @ V[:, None]  # (n_kv_heads, group, n, d_v)
        O_head = O_head.reshape(config.n_heads, n, config.d_v).swapaxes(0, 1)
        self.observe(index, query_positions=at, key_positions=seen, Q_rotated=Q_rotated, Q_sinks=Q_sinks)
        self.observe(index, S_raw=S_raw, S_scaled=S_scaled, S=S, alpha=alpha, O_head=O_head)
        return O_head

    def feed_forward(self, index: int, layer: LayerWeights, x: np.ndarray) -> np.ndarray:
        """(activation(x·W_gate) * (x·W_up))·W_down or activation(x·W_up)·W_down (Shazeer 2020, GLU Variants, eq. 5)."""
        up = self.project(x, layer.W_up, layer.b_up)
        if layer.W_gate is None:
            hidden = activation(up, self.config.activation)
        else:
            hidden = activation(self.project(x, layer.W_gate, layer.b_gate), self.config.activation) * up
        O_feed_forward = self.project(hidden, layer.W_down, layer.b_down)
        self.observe(index, hidden=hidden, O_feed_forward=O_feed_forward)
        return O_feed_forward

    def final_norm(self, x: np.ndarray) -> np.ndarray:
        return self.norm(x, self.weights.final_norm, self.weights.final_norm_bias)

    def to_vocab(self, x: np.ndarray) -> np.ndarray:
        """O_vocab = x·W_t, (wanted, d_vocab), of the normed stream x (wanted, d_model)."""
        logits = self.project(x, self.weights.W_t, self.weights.b_t)
        return soft_cap(logits, self.config.logit_soft_cap).astype(np.float32, copy=False)

    def logit_lens(self, x: np.ndarray) -> np.ndarray:
        return self.to_vocab(self.final_norm(x))

    def norm(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        if self.config.norm == "rms":
            return rms_norm(x, weight, self.config.norm_epsilon)
        return layer_norm(x, weight, bias, self.config.norm_epsilon)

    def post_norm(self, x: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        return x if weight is None else self.norm(x, weight, None)


erf = np.vectorize(math.erf, otypes=[np.float32])


def softmax(S: np.ndarray) -> np.ndarray:
    """α of scores S over the last axis: αᵢ = e^{sᵢ}/Σⱼe^{sⱼ}; −∞ gets weight 0."""
    e = np.exp(S - S.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def soft_cap(x: np.ndarray, cap: float | None) -> np.ndarray:
    """cap·tanh(x/cap) (Gemma 2 report, section 2)."""
    return x if cap is None else np.float32(cap) * np.tanh(x / np.float32(cap))


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """x/√(mean(x²) + ε)·weight over the last axis (Zhang and Sennrich 2019, eq. 4)."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, epsilon: float) -> np.ndarray:
    """(x - mean)/√(variance + ε)·weight + bias over the last axis (Ba et al. 2016, eq. 4)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    y = centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + np.float32(epsilon)) * weight
    return y if bias is None else y + bias


def activation(x: np.ndarray, kind: str) -> np.ndarray:
    """silu: x·σ(x); gelu: x·Φ(x) (Hendrycks and Gimpel 2016), also by its tanh formula; relu: max(x, 0)."""
    if kind == "silu":
        return x / (1 + np.exp(-np.clip(x, -80, None)))
    if kind == "gelu_tanh":
        return np.float32(0.5) * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)))
    if kind == "gelu":
        return x * np.float32(0.5) * (1 + erf(x * np.float32(np.sqrt(0.5))))
    return np.maximum(x, 0)


def rotate(x: np.ndarray, positions: np.ndarray, rope: Rope | None) -> np.ndarray:
    """x (n, heads, d_k) with its pairs rotated by position·frequency (RoFormer, eq. 34); angles in float64."""
    if rope is None:
        return x
    angles = positions[:, None].astype(np.float64) * np.array(rope.frequencies)  # (n, width/2)
    cos = (np.cos(angles) * rope.magnitude).astype(np.float32)[:, None, :]
    sin = (np.sin(angles) * rope.magnitude).astype(np.float32)[:, None, :]
    half = rope.width // 2
    if rope.pairing == "halves":
        first, second = slice(0, half), slice(half, rope.width)
    else:
        first, second = slice(0, rope.width, 2), slice(1, rope.width, 2)
    a, b = x[..., first], x[..., second]
    y = x.copy()
    y[..., first] = a * cos - b * sin
    y[..., second] = a * sin + b * cos
    return y


def by_group(Q: np.ndarray, group: int) -> np.ndarray:
    """(n, n_heads, d_k) to (n_kv_heads, group, n, d_k): the heads that share a K/V head stand together."""
    n, n_heads, d_k = Q.shape
    return Q.reshape(n, n_heads // group, group, d_k).transpose(1, 2, 0, 3)


@hookimpl
def register_backends(register: Register) -> None:
    register(NumpyBackend)
