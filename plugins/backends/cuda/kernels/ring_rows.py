"""Eight numbers at once of the keys or values in a ring, as halves; for `attention`."""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cuda.kernels.declare import device
from ringlet.plugins.backends.cuda.kernels.floats import byte_as_float
from ringlet.plugins.backends.cuda.kernels.functions import floats_at, load_words2, load_words4, pack_halves

NO_WORD, ONE = np.uint32(0), np.float32(1)


@device
def halves(pointer, index, inside, scale):
    """Of a ring of halves, from the index on, or zeros."""
    if inside:
        return load_words4(pointer, 2 * index)
    return (NO_WORD, NO_WORD, NO_WORD, NO_WORD)


@device
def no_scale(address, row):
    return ONE


@device
def bytes_as_halves(pointer, index, inside, scale):
    """Of a ring of bytes: d·q, rounded to halves."""
    if inside:
        low, high = load_words2(pointer, index)
        return (
            two_halves(low, 0, scale),
            two_halves(low, 2, scale),
            two_halves(high, 0, scale),
            two_halves(high, 2, scale),
        )
    return (NO_WORD, NO_WORD, NO_WORD, NO_WORD)


@device
def two_halves(word, first, scale):
    return pack_halves(scale * byte_as_float(word, first), scale * byte_as_float(word, first + 1))


@device
def scale_of(address, row):
    """The scale of a key or a value of a ring of bytes."""
    return floats_at(address)[row]


# How a kernel reads rings of a kind: eight numbers, and their scale
READERS = {"f16": (halves, no_scale), "q8": (bytes_as_halves, scale_of)}
