"""Random models of any recipe, small enough to reason about, and ways to put tokens through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.config import LayerConfig, ModelConfig, Rope
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.ring_cache import RingCache
from ringlet.core.step import run_step
from ringlet.core.weights import LayerWeights, Matrix, ModelWeights

HALVES = Rope((1.0, 0.2, 0.01), "halves")
ADJACENT = Rope((1.0, 0.3), "adjacent", magnitude=1.1)

# One or two of the recipe's fields at a time, and sizes that are no multiple of anything.
RECIPES: dict[str, dict] = {
    "plain": {},
    "biases": {"biases": True},
    "layer norm": {"norm": "layer", "biases": True},
    "layer norm without biases": {"norm": "layer"},
    "no rope": {"layers": (LayerConfig(), LayerConfig())},
    "adjacent pairs, partial width": {"layers": (LayerConfig(None, ADJACENT), LayerConfig(None, HALVES))},
    "windows": {"layers": (LayerConfig(5, HALVES), LayerConfig(None, ADJACENT), LayerConfig(1, HALVES))},
    "q and k norms": {"qk_norm": True},
    "post norms": {"post_norms": True},
    "layer post norms": {"post_norms": True, "norm": "layer"},
    "parallel": {"residual": "parallel", "biases": True},
    "not gated": {"gated": False, "biases": True},
    "gelu": {"activation": "gelu"},
    "gelu by tanh": {"activation": "gelu_tanh", "gated": False},
    "relu": {"activation": "relu"},
    "soft caps": {"score_soft_cap": 1.5, "logit_soft_cap": 2.0},
    "learned positions": {"learned_positions": True, "context_length": 64, "layers": (LayerConfig(),)},
    "scaled and tied embedding": {"embedding_scale": 4.0, "tied": True},
    "one odd part a head": {"d_k": 1, "d_v": 3, "layers": (LayerConfig(),), "qk_norm": True},
    "nothing a multiple of a vector": {
        "d_model": 21, "d_k": 7, "d_v": 5, "d_ff": 33, "d_vocab": 3, "n_heads": 3, "n_kv_heads": 1, "biases": True
    },
    "wide values": {"d_k": 6, "d_v": 70, "n_heads": 6, "n_kv_heads": 3},
    "large": {"d_model": 200, "d_ff": 333, "d_vocab": 500, "d_k": 64, "d_v": 64, "score_scale": 0.125},
}  # fmt: skip

# Where a block's half floats stand, if there are more than one at its beginning
HALF_FLOATS = {
    "Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip


def random_model(
    seed: int = 5, *, scale: float = 1.5, biases: bool = False, **recipe: object
) -> tuple[ModelConfig, ModelWeights]:
    """A model of the recipe, with weights that make attention far from uniform and no part negligible.

    scale: of the weights. recipe: fields of ModelConfig that are not the usual ones.
    """
    chosen: dict = {
        "architecture": "random", "d_model": 16, "d_k": 8, "d_v": 8, "d_ff": 24, "d_vocab": 37, "n_heads": 4,
        "n_kv_heads": 2, "context_length": 4096, "score_scale": 0.5, "layers": (LayerConfig(None, HALVES),) * 2,
    }  # fmt: skip
    chosen |= recipe
    config = ModelConfig(n_layers=len(chosen["layers"]), **chosen)
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Matrix:
        return Matrix.from_float((rng.standard_normal((rows, columns)) * scale / np.sqrt(columns)).astype(np.float32))

    def vector(size: int, around: float = 0.0) -> np.ndarray:
        return (around + rng.uniform(-0.5, 0.5, size)).astype(np.float32)

    def bias(size: int) -> np.ndarray | None:
        return vector(size) if biases else None

    d, heads, kv_heads = config.d_model, config.n_heads, config.n_kv_heads
    layers = tuple(
        LayerWeights(
            W_q=matrix(heads * config.d_k, d), b_q=bias(heads * config.d_k),
            W_k=matrix(kv_heads * config.d_k, d), b_k=bias(kv_heads * config.d_k),
            W_v=matrix(kv_heads * config.d_v, d), b_v=bias(kv_heads * config.d_v),
            W_o=matrix(d, heads * config.d_v), b_o=bias(d),
            W_up=matrix(config.d_ff, d), b_up=bias(config.d_ff),
            W_down=matrix(d, config.d_ff), b_down=bias(d),
            W_gate=matrix(config.d_ff, d) if config.gated else None,
            b_gate=bias(config.d_ff) if config.gated else None,
            attention_norm=vector(d, 1), attention_norm_bias=bias(d),
            feed_forward_norm=vector(d, 1), feed_forward_norm_bias=bias(d),
            attention_post_norm=vector(d, 1) if config.post_norms else None,
            feed_forward_post_norm=vector(d, 1) if config.post_norms else None,
            q_norm=vector(config.d_k, 1) if config.qk_norm else None,
            k_norm=vector(config.d_k, 1) if config.qk_norm else None,
        )
        for _ in config.layers
    )  # fmt: skip
    embedding = matrix(config.d_vocab, d)
    return config, ModelWeights(
        embedding=embedding, W_t=embedding if config.tied else matrix(config.d_vocab, d), layers=layers,
        final_norm=vector(d, 1), final_norm_bias=bias(d), b_t=bias(config.d_vocab),
        positions=matrix(config.context_length, d) if config.learned_positions else None,
    )  # fmt: skip


def random_blocks(name: str, n_rows: int, n_columns: int, scale: float = 1.0) -> np.ndarray:
    """Rows of a block format, uint8 (n_rows, bytes): random bytes, with half floats up to `scale`."""
    block, rng = BLOCK_FORMATS[name], np.random.default_rng(3)
    blocks = rng.integers(0, 256, (n_rows, n_columns // block.n_weights, block.n_bytes), dtype=np.uint8)
    for at in HALF_FLOATS.get(name, (0,)):
        halves = rng.uniform(-scale, scale, blocks.shape[:2]).astype(np.float16)
        blocks[:, :, at : at + 2] = halves.view(np.uint8).reshape(*blocks.shape[:2], 2)
    return blocks.reshape(n_rows, -1)


def stored_as(name: str, matrix: Matrix) -> Matrix:
    """An F32 matrix in another format: rounded to the floats, and for a block format random blocks of its shape."""
    if BLOCK_FORMATS[name].n_weights > 1:
        return Matrix(random_blocks(name, matrix.shape[0], matrix.n_columns, scale=1e-3), name, matrix.n_columns)
    if name == "F32":
        return matrix
    values = matrix.data.view(np.float32)
    data = values.astype(np.float16) if name == "F16" else matrix.data.view(np.uint16)[:, 1::2]  # BF16: the upper half
    return Matrix(np.ascontiguousarray(data).view(np.uint8), name, matrix.n_columns)


def random_model_stored_as(name: str) -> tuple[ModelConfig, ModelWeights]:
    """A random model of one layer whose matrices are all in this format."""
    config, weights = random_model(d_model=256, d_ff=256, d_k=64, d_v=64, layers=(LayerConfig(None, HALVES),))
    layer = weights.layers[0]
    matrices: dict[str, Any] = {
        key: stored_as(name, value) for key, value in vars(layer).items() if isinstance(value, Matrix)
    }
    stored = replace(layer, **matrices)
    embedding, W_t = stored_as(name, weights.embedding), stored_as(name, weights.W_t)
    return config, replace(weights, layers=(stored,), embedding=embedding, W_t=W_t)


def rope_of(width: int, base: float = 100.0) -> Rope:
    """All pairs of a head rotated, at base^(-2i/width)."""
    return Rope(tuple(float(base ** (-2 * pair / width)) for pair in range(width // 2)), "halves")


def tokens(n: int, config: ModelConfig, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(0, config.d_vocab, n).tolist()


def in_pieces(backend: Backend, ring: RingCache, ids: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    """All logits, the ids given in pieces of these sizes, the last repeated."""
    logits, start, sizes = [], 0, list(sizes)
    while start < len(ids):
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        logits.append(run_step(backend, [(ring, ids[start : start + size], "all")]))
        start += size
    return np.concatenate(logits)


def turns(ring: RingCache) -> bool:
    """Whether some layer of the ring has been written over: only then has a test that is about turning shown it."""
    return any(ring.length > layer.slots for layer in ring.layout.layers)
