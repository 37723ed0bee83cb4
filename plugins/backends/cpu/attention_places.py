"""Where things are: the slots of a ring, the pieces that attention is cut into, the states that pieces leave."""

from __future__ import annotations

from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.records import PADDING, SEGMENT


@kernel
def padded_bytes(n):
    """Bytes of n float32 values with their padding."""
    return -(-n // PADDING) * PADDING * 4


@kernel
def slot_of(place, position):
    """The slot of a position: see `ringlet.core.ring_cache.LayerLayout.slot`."""
    if position < place.sinks:
        return position
    return place.sinks + (position - place.sinks) % (place.slots - place.sinks)


@kernel
def first_visible(place, position):
    """The first position, sinks apart, that the query sees."""
    return max(place.sinks, position - (place.capacity - place.sinks) + 1)


@kernel
def count_pieces(place, position):
    first = first_visible(place, position)
    return 1 if first > position else 2 + position // SEGMENT - first // SEGMENT


@kernel
def piece_range(place, position, piece):
    """Positions of a piece: from, to; empty for piece 0 where there are no sinks."""
    if piece == 0:
        return 0, min(place.sinks, position + 1)
    first = first_visible(place, position)
    segment = first // SEGMENT + piece - 1
    return max(first, segment * SEGMENT), min(position + 1, (segment + 1) * SEGMENT)


@kernel
def head_bytes(model):
    """Of one head's state: the sums, padded, then m and l."""
    return padded_bytes(model.d_v) + 4 * PADDING


@kernel
def run_of_slots(place, position, stop, most):
    """The slot of a position, and how many positions from there on stand in slots that follow each other, at most."""
    slot = slot_of(place, position)
    end = place.sinks if position < place.sinks else place.slots
    return slot, min(most, stop - position, end - slot)
