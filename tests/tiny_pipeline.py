"""Pipelines small enough to reason about: bytes as tokens, and a model that is random, or says what it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from random_models import random_model, rope_of

from ringlet.core.backend import Backend
from ringlet.core.batch import Batch
from ringlet.core.config import LayerConfig, ModelConfig
from ringlet.core.pipeline import Pipeline
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.ring_cache import RingLayout
from ringlet.core.weights import ModelWeights
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
    special_ids = frozenset({EOS})

    def ids_without_token(self, limit: int) -> list[int]:
        return [HOLE, *super().ids_without_token(limit)]

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


def byte_model(seed: int = 0, scale: float = 1.0, window: int | None = None) -> tuple[ModelConfig, ModelWeights]:
    """A random model with an id for each token of `Bytes`, and some beyond; its first layer may have a window."""
    layers = tuple(LayerConfig(reach, rope_of(8)) for reach in (window, None))
    return random_model(seed, scale=scale, d_model=32, d_ff=48, d_vocab=D_VOCAB, context_length=512, layers=layers)


class Recorded(NumpyBackend):
    """The numpy backend, that remembers the lengths of the sequences in each step."""

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        super().__init__(config, weights)
        self.steps: list[list[int]] = []

    def forward_with_hidden(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        self.steps.append(np.diff(batch.starts).tolist())
        return super().forward_with_hidden(batch)


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
    layout = RingLayout.of(backend.config, context, sinks, overflow, chunk=chunk)
    return Pipeline(model, backend, layout, backend.kv_dtype, PluginManager())


def random_pipeline(scale: float = 1.0, window: int | None = None, **layout: object) -> Pipeline:
    return pipeline_of(Recorded(*byte_model(scale=scale, window=window)), **layout)


def told_pipeline(prompt: str | bytes, completion: str | bytes | Sequence[int], **layout: object) -> Pipeline:
    """After this prompt the model says this completion, then its end token."""
    ids = [*as_ids(prompt), *as_ids(completion)]
    return pipeline_of(Told(*byte_model(), ids), **layout)


def as_ids(text: str | bytes | Sequence[int]) -> list[int]:
    return list(text.encode() if isinstance(text, str) else text)
