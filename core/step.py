"""One forward step over one or many sequences: reserve slots, compute, check what came back, tell the rings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.backend_calls import forward, forward_likeliest, forward_with_hidden
from ringlet.core.batch import Batch
from ringlet.core.drawing_plan import LISTED
from ringlet.core.likeliest import Logits
from ringlet.core.ring_cache import RingCache


def run_step(backend: Backend, parts: Sequence[tuple[RingCache, Sequence[int], str]]) -> np.ndarray:
    """The wanted logits of one step, float32 (wanted, d_vocab); see `Batch.of` for the parts. No parts, no logits.

    The rings hold the new tokens once the logits are there and right; a step that fails leaves their tokens as they
    were. Raises PluginError, naming the backend, for whatever a plugin's raises, and for logits of a wrong shape or
    dtype; a plugin's may not be NaN or +inf either.
    """
    d_vocab = backend.config.d_vocab
    if not parts:
        return np.empty((0, d_vocab), np.float32)
    batch = Batch.of(parts, d_vocab)
    logits = forward(backend, batch)
    batch.commit()
    return logits


def run_step_for_likeliest(
    backend: Backend, parts: Sequence[tuple[RingCache, Sequence[int], str]], count: int = LISTED
) -> list[Logits]:
    """The same logits, of which the `count` likeliest may be listed and the others brought when they are asked for."""
    if not parts:
        return []
    batch = Batch.of(parts, backend.config.d_vocab)
    found = forward_likeliest(backend, batch, min(count, backend.config.d_vocab))
    batch.commit()
    return found.rows()


def run_step_with_hidden(
    backend: Backend, parts: Sequence[tuple[RingCache, Sequence[int], str]]
) -> tuple[np.ndarray, np.ndarray]:
    """The same, and the hidden states of all tokens: float32 (n, d_model), after the final norm.

    Raises RingletError where the backend does not give them.
    """
    config = backend.config
    if not parts:
        return np.empty((0, config.d_vocab), np.float32), np.empty((0, config.d_model), np.float32)
    batch = Batch.of(parts, config.d_vocab)
    logits, hidden = forward_with_hidden(backend, batch)
    batch.commit()
    return logits, hidden
