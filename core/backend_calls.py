"""Calls of a backend's own code: what a plugin raises or returns amiss becomes a PluginError that names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ringlet.core.backend import Backend, MachineLimits
from ringlet.core.batch import Batch
from ringlet.core.checks import is_whole
from ringlet.core.errors import PluginError, RingletError, fault_text
from ringlet.core.likeliest import Likeliest
from ringlet.core.ring_cache import RingCache, RingLayout, RingMemory

Result = TypeVar("Result")


def guarded(label: str, is_built_in: bool, hook: str, call: Callable[[], Result]) -> Result:
    """What the call returns. RingletError and interrupts pass, and so does a built-in's bug; anything else is a fault.

    Even SystemExit and others that are no Exception: a plugin does not end the process.
    """
    try:
        return call()
    except (RingletError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if is_built_in:
            raise
        raise fault(label, hook, fault_text(error)) from error


def fault(label: str, hook: str, text: str) -> PluginError:
    return PluginError(f"backend {label}: {hook}: {text}")


def _call(backend: Backend, hook: str, call: Callable[[], Result]) -> Result:
    return guarded(backend.label, backend.origin is None, hook, call)


def forward(backend: Backend, batch: Batch) -> np.ndarray:
    """Logits of the expected shape and dtype. A plugin's are numbers, too; a built-in's are checked by who draws."""
    with np.errstate(all="ignore"):  # what NumPy would warn of is seen in the logits
        logits = _call(backend, "forward", lambda: backend.forward(batch))
    return _checked_logits(backend, "forward", batch, logits)


def forward_likeliest(backend: Backend, batch: Batch, count: int) -> Likeliest:
    """The same logits, with what a backend lists of them checked; those of a plugin are checked when they are fetched,
    too.
    """
    hook = "forward_likeliest"
    if not _lists(backend):
        return Likeliest.of_all(forward(backend, batch))
    with np.errstate(all="ignore"):
        found = _call(backend, hook, lambda: backend.forward_likeliest(batch, count))
    if not isinstance(found, Likeliest):
        raise fault(backend.label, hook, f"returned {type(found).__name__}, not a Likeliest")
    if backend.origin is not None:
        _check_listed(backend, hook, found, int(np.count_nonzero(batch.wants_logits)), count)
        _check_rings(backend, hook, batch)
        return replace(found, fetch=lambda row: _fetched(backend, hook, found, row))
    return found


def _lists(backend: Backend) -> bool:
    """Whether it has a `forward_likeliest` of its own that belongs to its `forward`: a class that changes the one of
    another's, or an object that does, is asked for that.
    """
    for names in (vars(backend), *(vars(cls) for cls in type(backend).__mro__ if cls is not Backend)):
        if "forward_likeliest" in names:
            return True
        if "forward" in names:
            return False
    return False


def _check_listed(backend: Backend, hook: str, found: Likeliest, rows: int, count: int) -> None:
    d_vocab = backend.config.d_vocab
    n = found.ids.shape[-1] if isinstance(found.ids, np.ndarray) and found.ids.ndim else 0
    if n not in (0, count) or found.d_vocab != d_vocab:
        raise fault(backend.label, hook, f"lists {n} of {found.d_vocab} tokens, not {count} of {d_vocab}, or none")
    _checked_array(backend, hook, found.ids, (rows, n), np.int32)
    _checked_array(backend, hook, found.values, (rows, n))
    _check_numbers(backend, hook, found.values)
    in_order = (np.diff(found.values) < 0) | ((np.diff(found.values) == 0) & (np.diff(found.ids) > 0))
    if not in_order.all() or not ((found.ids >= 0) & (found.ids < d_vocab)).all():
        raise fault(backend.label, hook, "lists ids out of order, or outside the vocabulary")


def _fetched(backend: Backend, hook: str, found: Likeliest, row: int) -> np.ndarray:
    logits = _call(backend, hook, lambda: found.fetch(row))
    logits = _checked_array(backend, hook, logits, (backend.config.d_vocab,))
    _check_numbers(backend, hook, logits)
    if not np.array_equal(logits[found.ids[row]], found.values[row]):
        raise fault(backend.label, hook, "lists other logits than those that it gives when all are fetched")
    return logits


def forward_with_hidden(backend: Backend, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """The same, with the hidden states: float32 (n, d_model)."""
    hook = "forward_with_hidden"
    with np.errstate(all="ignore"):
        returned = _call(backend, hook, lambda: backend.forward_with_hidden(batch))
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise fault(backend.label, hook, f"returned {type(returned).__name__}, not (logits, hidden states)")
    logits = _checked_logits(backend, hook, batch, returned[0])
    hidden = _checked_array(backend, hook, returned[1], (len(batch.token_ids), backend.config.d_model))
    if backend.origin is not None and not np.isfinite(hidden).all():
        raise fault(backend.label, hook, "returned hidden states that are no numbers")
    return logits, hidden


def _checked_logits(backend: Backend, hook: str, batch: Batch, logits: object) -> np.ndarray:
    found = _checked_array(backend, hook, logits, (int(np.count_nonzero(batch.wants_logits)), backend.config.d_vocab))
    if backend.origin is not None:
        _check_numbers(backend, hook, found)
        _check_rings(backend, hook, batch)
    return found


def _checked_array(
    backend: Backend, hook: str, array: object, shape: tuple[int, ...], dtype: type[np.generic] = np.float32
) -> np.ndarray:
    if isinstance(array, np.ndarray) and array.shape == shape and array.dtype == dtype:
        return np.asarray(array)  # of no class of its own
    found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
    raise fault(backend.label, hook, f"returned {found}, not {np.dtype(dtype)} {shape}")


def _check_numbers(backend: Backend, hook: str, logits: np.ndarray) -> None:
    largest = logits.max(initial=-np.inf)  # NaN where any is
    if np.isnan(largest) or largest == np.inf:
        value = "NaN" if np.isnan(largest) else "+inf"
        raise fault(backend.label, hook, f"returned {value}; if --backend numpy does too, the model is broken")


def _check_rings(backend: Backend, hook: str, batch: Batch) -> None:
    """The engine tells the rings of a step's tokens, after the step."""
    if any(ring.length != batch.positions[start] for ring, start in zip(batch.rings, batch.starts, strict=False)):
        raise fault(backend.label, hook, "changed which tokens a ring holds: leave append and rewind to the engine")


def new_ring(backend: Backend, layout: RingLayout, kv_dtype: str) -> RingCache:
    """An empty ring of the backend's."""
    ring = _call(backend, "new_ring", lambda: backend.new_ring(layout, kv_dtype))
    if not isinstance(ring, RingCache):
        raise fault(backend.label, "new_ring", f"returned {type(ring).__name__}, not a RingCache")
    if not isinstance(ring.memory, RingMemory):
        raise fault(backend.label, "new_memory", f"returned {type(ring.memory).__name__}, not a RingMemory")
    return ring


def copy_ring(backend: Backend, source: RingCache, target: RingCache | None = None, shared: int = 0) -> RingCache:
    """The target, or a new ring, which now holds what the source does; shared: see `RingCache.copy_from`."""
    if target is None:
        return _call(backend, "new_memory", source.fork)
    _call(backend, "copy_since" if shared else "copy_from", lambda: target.copy_from(source, shared))
    return target


def ring_contents(backend: Backend, ring: RingCache, length: int | None = None) -> dict[str, np.ndarray]:
    """What a ring holds after `length` tokens, None for all its own; see `RingMemory.contents`."""
    wanted = ring.length if length is None else length
    found = _call(backend, "contents", lambda: ring.memory.contents(wanted))
    if not isinstance(found, dict) or not all(isinstance(array, np.ndarray) for array in found.values()):
        raise fault(backend.label, "contents", "returned no dict of arrays")
    return found


def restore_ring(
    backend: Backend,
    ring: RingCache,
    token_ids: Sequence[int],
    first_held: Sequence[int],
    contents: Mapping[str, np.ndarray],
) -> None:
    """See `RingCache.restore`."""
    _call(backend, "restore", lambda: ring.restore(token_ids, first_held, contents))


def ring_bytes(backend: Backend, layout: RingLayout, kv_dtype: str) -> int:
    """Memory that the ring of one sequence takes."""
    found = _call(backend, "ring_bytes", lambda: backend.ring_bytes(layout, kv_dtype))
    if not is_whole(found):
        raise fault(backend.label, "ring_bytes", f"returned {type(found).__name__}, not a whole number")
    return found


def machine_limits(backend: Backend) -> MachineLimits | None:
    return _call(backend, "machine_limits", backend.machine_limits)
