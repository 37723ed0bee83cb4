"""Where attention looks: the slots of a ring, the positions a query sees, the pieces that a context is cut into.

place: a ring's record of the layer, see `shapes`. A context is cut at the multiples of a piece's length; before the
first piece stand the sinks, if any ring of the step has some.
"""

from __future__ import annotations

from ringlet.plugins.backends.cuda.kernels.declare import device
from ringlet.plugins.backends.cuda.shapes import RING_CAPACITY, RING_SINKS, RING_SLOTS


@device
def slot_of(place, position):
    """The slot of a position: see `ringlet.core.ring_cache.LayerLayout.slot`."""
    sinks, slots = place[RING_SINKS], place[RING_SLOTS]
    return position if position < sinks else sinks + (position - sinks) % (slots - sinks)


@device
def slot_after(place, slot, offset):
    """The slot of a position `offset` after that of a slot; between the two the ring turns once at most."""
    after = slot + offset
    return after if after < place[RING_SLOTS] else after - place[RING_SLOTS] + place[RING_SINKS]


@device
def first_visible(place, position):
    """The first position, sinks apart, that the query sees."""
    return max(place[RING_SINKS], position - (place[RING_CAPACITY] - place[RING_SINKS]) + 1)


@device
def piece_start(place, first_position, piece, sink_pieces, length):
    """The first position of a piece that queries from first_position on see."""
    if piece < sink_pieces:
        return 0
    first = first_visible(place, first_position)
    return max(first, (first // length + piece - sink_pieces) * length)


@device
def piece_stop(place, first_position, last_position, piece, sink_pieces, length):
    """The position after the last of a piece that queries up to last_position see."""
    if piece < sink_pieces:
        return min(place[RING_SINKS], last_position + 1)
    first = first_visible(place, first_position)
    return min(last_position + 1, (first // length + piece - sink_pieces + 1) * length)
