"""What `inspect` tells about a model, as plain data."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from ringlet.core.config import ModelConfig
from ringlet.core.host_memory import HOST_DTYPES, host_bytes
from ringlet.core.model import Model
from ringlet.core.ring_cache import RingLayout
from ringlet.core.weights import Matrix, ModelWeights
from ringlet.tokenization.tokenizer import Tokenizer

THEORY_WEIGHTS = ("W_q", "W_k", "W_v", "W_o", "W_up", "W_gate", "W_down")
SIZES = (
    "d_model", "d_k", "d_v", "d_ff", "d_vocab", "n_layers", "n_heads", "n_kv_heads", "context_length",
)  # fmt: skip


def inspect_model(model: Model, layout: RingLayout) -> dict[str, Any]:
    """Architecture, sizes, weights and memory, ready for JSON.

    layout: of the ring whose memory is told, for each dtype it may hold.
    """
    config, weights, tokenizer = model.config, model.weights, model.tokenizer
    n_weights = count_weights(weights)
    return {
        "name": model.name,
        "architecture": config.architecture,
        **{name: getattr(config, name) for name in SIZES},
        "windows": layer_windows(config),
        "tied": config.tied,
        "n_tokens": tokenizer.n_tokens,
        "bos": None if tokenizer.bos_id is None else describe_token(tokenizer, tokenizer.bos_id),
        "eos": [describe_token(tokenizer, token_id) for token_id in sorted(tokenizer.eos_ids)],
        "chat_templates": sorted(tokenizer.chat_templates),
        "weights": describe_weights(weights),
        "n_weights": n_weights,
        "weight_bytes": weights.nbytes,
        "bits_per_weight": 8 * weights.nbytes / n_weights,
        "ring": {
            "context": layout.context,
            "sinks": layout.sinks,
            "overflow": layout.overflow,
            "bytes": {dtype: host_bytes(config, layout, dtype) for dtype in HOST_DTYPES},
        },
    }


def describe_token(tokenizer: Tokenizer, token_id: int) -> dict[str, Any]:
    return {"id": token_id, "piece": tokenizer.piece(token_id)}


def describe_weights(weights: ModelWeights) -> dict[str, dict[str, Any]]:
    """The embedding, the theory's matrices and W_t: shape as (inputs, outputs), all heads together; formats and bytes.

    The matrices of a layer stand once for all layers, with how many of them have which format.
    """
    groups = {"embedding": [weights.embedding]}
    for name in THEORY_WEIGHTS:
        groups[name] = [matrix for layer in weights.layers if (matrix := getattr(layer, name)) is not None]
    groups["W_t"] = [weights.W_t]
    if weights.positions is not None:
        groups["positions"] = [weights.positions]
    return {name: describe_group(name, matrices) for name, matrices in groups.items() if matrices}


def describe_group(name: str, matrices: list[Matrix]) -> dict[str, Any]:
    rows, columns = matrices[0].shape
    is_table = name in ("embedding", "positions")  # looked up by row: its inputs are the rows
    return {
        "shape": [rows, columns] if is_table else [columns, rows],
        "count": len(matrices),
        "formats": dict(Counter(matrix.format for matrix in matrices)),
        "bytes": sum(matrix.nbytes for matrix in matrices),
    }


def count_weights(weights: ModelWeights) -> int:
    """Numbers in all matrices, a tied W_t once; vectors are few and left out."""
    return sum(prod(matrix.shape) for matrix in weights.matrices().values())


def layer_windows(config: ModelConfig) -> list[int | None]:
    """Each layer's own window; None where it sees all of the context."""
    return [layer.window for layer in config.layers]
