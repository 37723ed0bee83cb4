"""The random models of `ringlet.testing`, which tests and plugin authors share, and how close logits have to be."""

from __future__ import annotations

import numpy as np

from ringlet.testing.random_models import (
    ADJACENT,
    HALVES,
    RECIPES,
    in_pieces,
    random_blocks,
    random_model,
    random_model_stored_as,
    rope_of,
    tokens,
    turns,
)

__all__ = [
    "ADJACENT",
    "HALVES",
    "RECIPES",
    "assert_close",
    "in_pieces",
    "random_blocks",
    "random_model",
    "random_model_stored_as",
    "rope_of",
    "tokens",
    "turns",
]


def assert_close(logits: np.ndarray, reference: np.ndarray, tolerance: float = 1e-5) -> None:
    """tolerance: of the largest logit."""
    assert logits.shape == reference.shape
    assert logits.dtype == np.float32
    assert np.abs(logits - reference).max() <= tolerance * np.abs(reference).max()
