"""What a layer's ring holds, told from its layout alone: positions have fixed slots."""

from __future__ import annotations

import numpy as np

from ringlet.core.explanation.trace import LayerRing
from ringlet.core.ring_cache import LayerLayout


def layer_ring(layout: LayerLayout, before: int, after: int, slides: bool, nbytes: int) -> LayerRing:
    """The ring of a sequence that had `before` tokens, and has `after` of them since the step.

    layout: one whose slots are its capacity. slides: whether a full ring overwrites; one with the model's own window
    does so anyway. nbytes: memory of all slots.
    """
    held = held_positions(layout, after)
    added = np.arange(before, after)
    had = held_positions(layout, before)
    seen = np.arange(layout.first_visible(before), after)
    sinks = np.arange(min(layout.sinks, after))
    may_read = np.union1d(sinks, seen)
    next_slot = int(layout.slot(np.array(after)))
    in_next_slot = held[layout.slot(held) == next_slot]
    is_full = len(in_next_slot) > 0
    return LayerRing(
        capacity=layout.capacity,
        sinks=layout.sinks,
        positions=held,
        slots=layout.slot(held),
        added=added,
        reused=np.intersect1d(had, may_read),
        overwritten=np.setdiff1d(had, held),
        next_slot=None if is_full and not slides else next_slot,
        overwrites_next=int(in_next_slot[0]) if is_full and slides else None,
        nbytes=nbytes,
    )


def held_positions(layout: LayerLayout, length: int) -> np.ndarray:
    """Positions that a ring of `length` tokens holds, int64, ascending: the sinks and the latest."""
    turning = layout.slots - layout.sinks
    sinks = np.arange(min(layout.sinks, length))
    return np.concatenate([sinks, np.arange(max(layout.sinks, length - turning), max(length, layout.sinks))])
