"""Synthetic models of the shapes that people run: random blocks in the formats that such models are published in.

One layer's matrices serve all layers of a model on the host, and are uploaded for each of them; so a model of 8B is
made in seconds and lies on the GPU as a real one would.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from ringlet.core.config import LayerConfig, ModelConfig, Rope
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.weights import LayerWeights, Matrix, ModelWeights
from ringlet.testing.random_models import random_blocks

RANDOM_ROWS = 2039  # a prime; further rows are the same again
ROPE_BASE = 1e6


@dataclass(frozen=True)
class Shape:
    """rest: the format of what `formats` does not name. tied: W_t is the embedding. biases: of W_q, W_k and W_v."""

    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    d_k: int
    d_vocab: int
    rest: str
    formats: dict[str, str]
    tied: bool = False
    biases: bool = False
    context: int = 1 << 17


SHAPES = {
    "0.5B": Shape(24, 896, 4864, 14, 2, 64, 151_936, "Q8_0", {}, tied=True, biases=True),
    "1.5B": Shape(28, 1536, 8960, 12, 2, 128, 151_936, "Q4_K", {"embedding": "Q6_K"}, tied=True, biases=True),
    "8B": Shape(32, 4096, 14_336, 32, 8, 128, 128_256, "Q4_K", {"W_v": "Q6_K", "W_down": "Q6_K", "W_t": "Q6_K"}),
}
TINY = {
    "tiny": Shape(1, 32, 64, 2, 1, 16, 48, "Q4_0", {"W_v": "Q8_0", "W_t": "Q5_1"}, biases=True, context=256),
}


def config_of(name: str, shape: Shape) -> ModelConfig:
    rope = Rope(tuple(ROPE_BASE ** (-2 * pair / shape.d_k) for pair in range(shape.d_k // 2)), "halves")
    return ModelConfig(
        architecture=name, d_model=shape.d_model, d_k=shape.d_k, d_v=shape.d_k, d_ff=shape.d_ff,
        d_vocab=shape.d_vocab, n_layers=shape.n_layers, n_heads=shape.n_heads, n_kv_heads=shape.n_kv_heads,
        context_length=shape.context, layers=(LayerConfig(None, rope),) * shape.n_layers,
        score_scale=1 / sqrt(shape.d_k), tied=shape.tied,
    )  # fmt: skip


def synthetic(name: str, shape: Shape, filled: bool = True) -> tuple[ModelConfig, ModelWeights]:
    """The model. filled: False leaves all weights 0, where nobody computes with them."""
    config, rng = config_of(name, shape), np.random.default_rng(7)
    d, q_width, kv_width = config.d_model, config.n_heads * config.d_k, config.n_kv_heads * config.d_k

    def matrix(field: str, n_rows: int, n_columns: int) -> Matrix:
        format = shape.formats.get(field, shape.rest)
        return random_matrix(format, n_rows, n_columns) if filled else zero_matrix(format, n_rows, n_columns)

    def bias(size: int) -> np.ndarray | None:
        return rng.uniform(-0.5, 0.5, size).astype(np.float32) if shape.biases else None

    ones = np.ones(d, np.float32)
    layer = LayerWeights(
        W_q=matrix("W_q", q_width, d), W_k=matrix("W_k", kv_width, d), W_v=matrix("W_v", kv_width, d),
        W_o=matrix("W_o", d, q_width), W_up=matrix("W_up", config.d_ff, d), W_gate=matrix("W_gate", config.d_ff, d),
        W_down=matrix("W_down", d, config.d_ff), attention_norm=ones, feed_forward_norm=ones,
        b_q=bias(q_width), b_k=bias(kv_width), b_v=bias(kv_width),
    )  # fmt: skip
    embedding = matrix("embedding", config.d_vocab, d)
    W_t = embedding if shape.tied else matrix("W_t", config.d_vocab, d)
    layers = tuple(replace(layer) for _ in range(config.n_layers))
    return config, ModelWeights(embedding=embedding, W_t=W_t, final_norm=ones, layers=layers)


def random_matrix(format: str, n_rows: int, n_columns: int) -> Matrix:
    """Random blocks whose values have about the size that keeps activations as they are, 1/√n_columns."""
    rows = min(n_rows, RANDOM_ROWS)
    sample = Matrix(random_blocks(format, 4, n_columns), format, n_columns).dequantize()
    scale = 1 / (sqrt(n_columns) * float(sample.std()))
    return Matrix(np.resize(random_blocks(format, rows, n_columns, scale), (n_rows, _row_bytes(format, n_columns))),
                  format, n_columns)  # fmt: skip


def zero_matrix(format: str, n_rows: int, n_columns: int) -> Matrix:
    return Matrix(np.zeros((n_rows, _row_bytes(format, n_columns)), np.uint8), format, n_columns)


def _row_bytes(format: str, n_columns: int) -> int:
    block = BLOCK_FORMATS[format]
    return n_columns // block.n_weights * block.n_bytes


def product_weights(config: ModelConfig) -> int:
    """Weights of one layer's matrices together."""
    d, heads = config.d_model, config.n_heads * config.d_v
    qkv = config.n_heads * config.d_k + config.n_kv_heads * (config.d_k + config.d_v)
    return d * qkv + heads * d + config.d_ff * d * (3 if config.gated else 2)


def bytes_read(config: ModelConfig, weights: ModelWeights) -> int:
    """Of the matrices, by a step of one token, at least: all but the embedding's other rows."""
    return sum(matrix.nbytes for name, matrix in weights.matrices().items() if name != "embedding" or config.tied)


def ring_bytes_read(config: ModelConfig, depth: int, n_bytes: float = 2) -> float:
    """Keys and values of one sequence that a query at this depth sees."""
    return config.n_layers * config.n_kv_heads * (config.d_k + config.d_v) * depth * n_bytes


def operations(config: ModelConfig, n_tokens: int, n_wanted: int) -> float:
    """Multiplications and additions of a prompt from its beginning: products, scores and sums of values."""
    products = 2.0 * (config.n_layers * product_weights(config) * n_tokens + config.d_model * config.d_vocab * n_wanted)
    seen = n_tokens * (n_tokens + 1) / 2
    return products + 2.0 * config.n_layers * config.n_heads * (config.d_k + config.d_v) * seen


def as_dict(shape: Shape) -> dict[str, Any]:
    return {**vars(shape), "formats": {"rest": shape.rest, **shape.formats}}
