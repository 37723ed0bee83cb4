"""Weights proved against the recipe before a kernel, which checks no bounds, may trust them."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.errors import FormatError
from ringlet.core.loading.weight_loading import layer_shapes, model_shapes
from ringlet.core.weights import LayerWeights, Matrix, ModelWeights


def check_weights(config: ModelConfig, weights: ModelWeights) -> None:
    """Raises FormatError where a weight is missing, not in the recipe, or of another kind or shape."""
    if len(weights.layers) != config.n_layers:
        raise FormatError(f"{len(weights.layers)} layers have weights, the configuration has {config.n_layers}")
    shapes = {"W_t": (config.d_vocab, config.d_model), **model_shapes(config, _biases(ModelWeights))}
    _check_part("", weights, shapes)
    for index, layer in enumerate(weights.layers):
        _check_part(f"layers.{index}.", layer, layer_shapes(config, _biases(LayerWeights)))


def _biases(kind: type) -> list[str]:
    return [field.name for field in fields(kind) if _is_bias(field.name)]


def _is_bias(name: str) -> bool:
    return name.startswith("b_") or name.endswith("_bias")


def _check_part(prefix: str, part: ModelWeights | LayerWeights, shapes: dict[str, tuple[int, ...]]) -> None:
    for name in (field.name for field in fields(part) if field.name != "layers"):
        weight, shape = getattr(part, name), shapes.get(name)
        if weight is None and shape is not None and not _is_bias(name):
            raise FormatError(f"the weight {prefix}{name} is missing")
        if weight is None:
            continue
        if shape is None:
            raise FormatError(f"the weight {prefix}{name} has no place in the configuration's recipe")
        kind = Matrix if len(shape) == 2 else np.ndarray
        if not isinstance(weight, kind) or tuple(weight.shape) != shape:
            raise FormatError(
                f"the weight {prefix}{name} is not of the shape {list(shape)} that the configuration needs"
            )
