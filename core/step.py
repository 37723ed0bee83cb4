"""One forward step over one or many sequences: reserve slots, compute, check what came back, tell the rings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.batch import Batch
from ringlet.core.errors import PluginError, RingletError, fault_text
from ringlet.core.ring_cache import RingCache


def run_step(backend: Backend, parts: Sequence[tuple[RingCache, Sequence[int], str]]) -> np.ndarray:
    """The wanted logits of one step, float32 (wanted, d_vocab); see `Batch.of` for the parts. No parts, no logits.

    The rings hold the new tokens once the logits are there and right; a step that fails leaves their tokens as they
    were. Raises PluginError, naming the backend, for whatever a plugin's raises, and for logits of a wrong shape or
    dtype.
    """
    d_vocab = backend.config.d_vocab
    if not parts:
        return np.empty((0, d_vocab), np.float32)
    batch = Batch.of(parts, d_vocab)
    try:
        logits = backend.forward(batch)
    except RingletError:
        raise
    except Exception as error:
        if backend.origin is None:
            raise
        raise PluginError(f"backend {backend.label}: forward: {fault_text(error)}") from error
    expected = (int(batch.wants_logits.sum()), d_vocab)
    if not isinstance(logits, np.ndarray) or logits.shape != expected or logits.dtype != np.float32:
        found = f"{logits.dtype} {logits.shape}" if isinstance(logits, np.ndarray) else type(logits).__name__
        raise PluginError(f"backend {backend.label}: forward: returned {found}, not float32 {expected}")
    batch.commit()
    return logits
