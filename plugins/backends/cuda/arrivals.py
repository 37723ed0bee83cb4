"""Host memory that results arrive in, lent to whoever asked for them, so that no step copies its logits again."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np

from ringlet.plugins.backends.cuda.device import Device

LENT_AT_ONCE = 2  # a step's logits are still held when the next are computed


class Arrivals:
    """A place is used again when nobody refers to any of its rows any more; while all places are lent, rows are
    copied out of one more."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._free: list[np.ndarray | None] = [None] * LENT_AT_ONCE  # None: not allocated yet
        self._kept: np.ndarray | None = None

    def fetch(self, address: int, n_bytes: int) -> np.ndarray:
        """What lies on the device, uint8 (n_bytes,), after all that was asked of it before."""
        if self._free:
            rows = self._lend(self._large_enough(self._free.pop(), n_bytes), n_bytes)
            self._device.download(address, rows)
            self._device.synchronise()
            return rows
        self._kept = self._large_enough(self._kept, n_bytes)
        self._device.download(address, self._kept[:n_bytes])
        self._device.synchronise()
        return self._kept[:n_bytes].copy()

    def _large_enough(self, place: np.ndarray | None, n_bytes: int) -> np.ndarray:
        return place if place is not None and len(place) >= n_bytes else self._device.host_array(n_bytes)

    def _lend(self, place: np.ndarray, n_bytes: int) -> np.ndarray:
        """An array over the place, which is free again when the array and all views of it are gone."""
        lease = (ctypes.c_uint8 * n_bytes).from_address(place.ctypes.data)
        weakref.finalize(lease, self._free.append, place).atexit = False
        return np.ctypeslib.as_array(lease)
