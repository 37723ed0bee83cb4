"""Logits that stay on the GPU after a step, and leave it a row at a time, as somebody asks for them."""

from __future__ import annotations

import weakref

import numpy as np

from ringlet.plugins.backends.cuda.arrivals import Arrivals
from ringlet.plugins.backends.cuda.device import Device, Memory

FLOAT = 4


class LentLogits:
    """Logits of one step, float32 (n_rows, d_vocab) at an address on the device."""

    def __init__(self, address: int, n_rows: int, d_vocab: int) -> None:
        self.address, self.nbytes, self.row_bytes = address, FLOAT * n_rows * d_vocab, FLOAT * d_vocab


class Lender:
    """Every step writes its logits in the same place, so those of the step before are moved aside if they are still
    lent: a copy within the device's memory, into a place that is used again when they are gone.
    """

    def __init__(self, device: Device) -> None:
        self._device, self._arrivals = device, Arrivals(device)
        self._newest: weakref.ref[LentLogits] | None = None
        self._free: list[Memory] = []

    def lend(self, address: int, n_rows: int, d_vocab: int) -> LentLogits:
        """Of the step that has just been launched."""
        lent = LentLogits(address, n_rows, d_vocab)
        self._newest = weakref.ref(lent)
        return lent

    def fetch(self, lent: LentLogits, row: int) -> np.ndarray:
        """float32 (d_vocab,)."""
        return self._arrivals.fetch(lent.address + row * lent.row_bytes, lent.row_bytes).view(np.float32)

    def fetch_all(self, address: int, n_rows: int, d_vocab: int) -> np.ndarray:
        """float32 (n_rows, d_vocab), of the step that has just been launched."""
        return self._arrivals.fetch(address, FLOAT * n_rows * d_vocab).view(np.float32).reshape(n_rows, d_vocab)

    def make_way(self) -> None:
        """Called before a step. Raises MemoryError."""
        lent = None if self._newest is None else self._newest()
        if lent is not None:
            place = self._place(lent.nbytes)
            weakref.finalize(lent, self._free.append, place).atexit = False
            self._device.copy(lent.address, place.address, lent.nbytes)
            lent.address = place.address
        self._newest = None

    def _place(self, n_bytes: int) -> Memory:
        place = self._free.pop() if self._free else None
        return place if place is not None and place.nbytes >= n_bytes else Memory(self._device, n_bytes)
