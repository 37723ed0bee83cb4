"""Pipelines small enough to reason about: bytes as tokens, and a model that is random, or says what it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.batch import Batch
from ringlet.core.config import LayerConfig, ModelConfig, Rope
from ringlet.core.pipeline import Pipeline
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.ring_cache import RingLayout
from ringlet.core.weights import LayerWeights, Matrix, ModelWeights
from ringlet.plugins.backends.numpy import NumpyBackend
from ringlet.tokenization.codec import ByteCodec
from ringlet.tokenization.tokenizer import Tokenizer

EOS = 256
HOLE = 257  # an id below n_tokens without a token
LAST = 258  # the last token; 259 and more are beyond the tokenizer
D_VOCAB = 262


class Bytes(ByteCodec):
    """A token for each byte, EOS, and one named <last>."""

    n_tokens = LAST + 1
    holes = frozenset({HOLE})
    special_ids = frozenset({EOS})

    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        return list(text.encode())

    def token_id(self, text: str) -> int | None:
        return {"<eos>": EOS, "<last>": LAST}.get(text)

    def token_text(self, token_id: int) -> str | None:
        if 0 <= token_id < EOS:
            return f"<{token_id:02x}>"
        return {EOS: "<eos>", LAST: "<last>"}.get(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if 0 <= token_id < EOS else b"<last>" if token_id == LAST else b""


def random_model(seed: int = 0, scale: float = 1.0, window: int | None = None) -> tuple[ModelConfig, ModelWeights]:
    """Two layers, four heads, two K/V heads."""
    rng = np.random.default_rng(seed)

    def matrix(n_rows: int, n_columns: int) -> Matrix:
        return Matrix.from_float(rng.normal(0, scale * n_columns**-0.5, (n_rows, n_columns)).astype(np.float32))

    d_model, d_k, d_ff = 32, 8, 48
    rope = Rope(tuple(float(100.0 ** (-i / 4)) for i in range(4)), "halves")
    config = ModelConfig(
        architecture="random",
        d_model=d_model,
        d_k=d_k,
        d_v=d_k,
        d_ff=d_ff,
        d_vocab=D_VOCAB,
        n_layers=2,
        n_heads=4,
        n_kv_heads=2,
        context_length=512,
        layers=(LayerConfig(window, rope), LayerConfig(None, rope)),
        score_scale=d_k**-0.5,
    )
    ones = np.ones(d_model, np.float32)
    layers = tuple(
        LayerWeights(
            W_q=matrix(4 * d_k, d_model),
            W_k=matrix(2 * d_k, d_model),
            W_v=matrix(2 * d_k, d_model),
            W_o=matrix(d_model, 4 * d_k),
            W_up=matrix(d_ff, d_model),
            W_gate=matrix(d_ff, d_model),
            W_down=matrix(d_model, d_ff),
            attention_norm=ones,
            feed_forward_norm=ones,
        )
        for _ in range(2)
    )
    return config, ModelWeights(matrix(D_VOCAB, d_model), matrix(D_VOCAB, d_model), ones, layers)


class Recorded(NumpyBackend):
    """The numpy backend, that remembers the lengths of the sequences in each step."""

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        super().__init__(config, weights)
        self.steps: list[list[int]] = []

    def forward(self, batch: Batch) -> np.ndarray:
        self.steps.append(np.diff(batch.starts).tolist())
        return super().forward(batch)


class Told(Backend):
    """After the token at position p the token ids[p + 1] is by far the likeliest, the end token where ids end."""

    name = "told"
    kv_dtype = "f32"

    def __init__(self, config: ModelConfig, weights: ModelWeights, ids: Sequence[int]) -> None:
        super().__init__(config, weights)
        self.ids = list(ids)
        self.n_steps = 0

    def forward(self, batch: Batch) -> np.ndarray:
        self.n_steps += 1
        after = batch.positions[batch.wants_logits] + 1
        logits = np.zeros((len(after), self.config.d_vocab), np.float32)
        for row, position in zip(logits, after, strict=True):
            row[self.ids[position] if position < len(self.ids) else EOS] = 100
        return logits


def pipeline_of(
    backend: Backend,
    context: int = 256,
    sinks: int = 0,
    overflow: str = "stop",
    chunk: int = 16,
    eos_ids: Sequence[int] = (EOS,),
) -> Pipeline:
    tokenizer = Tokenizer(Bytes(), eos_ids=eos_ids)
    model = SimpleNamespace(config=backend.config, weights=backend.weights, tokenizer=tokenizer, name="tiny")
    layout = RingLayout.of(backend.config, context, sinks, overflow, chunk)
    return Pipeline(model, backend, layout, backend.kv_dtype, PluginManager())


def random_pipeline(scale: float = 1.0, window: int | None = None, **layout: object) -> Pipeline:
    return pipeline_of(Recorded(*random_model(scale=scale, window=window)), **layout)


def told_pipeline(prompt: str | bytes, completion: str | bytes | Sequence[int], **layout: object) -> Pipeline:
    """After this prompt the model says this completion, then its end token."""
    ids = [*as_ids(prompt), *as_ids(completion)]
    return pipeline_of(Told(*random_model(), ids), **layout)


def as_ids(text: str | bytes | Sequence[int]) -> list[int]:
    return list(text.encode() if isinstance(text, str) else text)
