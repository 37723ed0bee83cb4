"""The likeliest tokens of rows of logits against NumPy's sort."""

from __future__ import annotations

import numpy as np
from on_gpu.arrays import Array, launch

from ringlet.core.drawing_plan import LISTED
from ringlet.plugins.backends.cuda.device import Device
from ringlet.plugins.backends.cuda.shapes import ranked_parts

SIZES = {False: (1, 31, 5000, 8193, 151_936, 262_144), True: (1, 31, 1100)}  # of vocabularies


def check_likeliest(device: Device, name: str, tiny: bool) -> float:
    """0 where `rank` and `likeliest` list the ids and the bits that NumPy does, else infinite."""
    return 0.0 if all(is_right(device, rows_of(d_vocab)) for d_vocab in SIZES[tiny]) else np.inf


def rows_of(d_vocab: int) -> np.ndarray:
    """Logits of the kinds that are hard: ties, removed tokens, zeros of both signs, NaN, rising and falling."""
    rng = np.random.default_rng(d_vocab)
    normal, chance = rng.normal(0, 3, d_vocab).astype(np.float32), rng.random(d_vocab)
    removed, no_number, signed = (np.float32(x) for x in (-np.inf, np.nan, -0.0))
    rows = [normal, np.round(normal), np.full(d_vocab, removed), np.sort(normal), np.sort(normal)[::-1]]
    rows += [np.where(chance < 0.99, removed, normal), np.where(chance < 0.01, no_number, normal)]
    return np.stack([*rows, np.where(chance < 0.5, signed, np.float32(0))])


def is_right(device: Device, logits: np.ndarray) -> bool:
    (n_rows, d_vocab), on_device = logits.shape, Array(device, logits)
    count, parts = min(LISTED, d_vocab), ranked_parts(d_vocab)
    keys = Array.unwritten(device, n_rows, parts, count, dtype=np.int64)
    ids, values = (Array.unwritten(device, n_rows, count, dtype=dtype) for dtype in (np.int32, np.float32))
    launch(device, "rank", (parts, n_rows, 1), on_device, keys, d_vocab, count)
    sizes = (d_vocab, parts * count, count)
    launch(device, "likeliest", (n_rows, 1, 1), on_device, keys, ids, values, *sizes)
    expected = np.array([np.lexsort((-row, ~np.isnan(row)))[:count] for row in logits])
    chosen = np.take_along_axis(logits, expected, axis=1)
    same_bits = np.array_equal(values.values.view(np.uint32), chosen.view(np.uint32))
    return same_bits and np.array_equal(ids.values, expected)
