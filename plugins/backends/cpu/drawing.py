"""Drawing from the listed tokens by the unit `draw`: the call, and the memory that it works in."""

from __future__ import annotations

import ctypes
import struct

import numpy as np

from ringlet.core.drawing_plan import KINDS, PENALTIES, DrawingPlan
from ringlet.core.likeliest import Likeliest
from ringlet.plugins.backends.cpu.records import CHOICE, ENTRY_BYTES, address

FIELDS = CHOICE.names or ()
LAST_PENALTY = KINDS.index(PENALTIES[-1])


class Drawer:
    """code: address of the unit's machine code. See `core.drawing_plan.Chooser`, and `core.likeliest.Likeliest`."""

    def __init__(self, code: int) -> None:
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, ctypes.c_int64)(code)
        self._unused = ctypes.byref(ctypes.c_void_p())

    def draw(
        self,
        row: int,
        listed: Likeliest,
        removed: np.ndarray,
        plan: DrawingPlan,
        token_ids: np.ndarray,
        prompt_length: int,
        uniform: float,
    ) -> int:
        logits, k = listed.fetch(row), plan.k
        penalised = len(token_ids) if plan.operations[0, 0] <= LAST_PENALTY else 0
        n_entries = 1 << (2 * (penalised + len(removed)) + 1).bit_length()
        table_bytes, n_fields = n_entries * ENTRY_BYTES, len(FIELDS)
        memory = np.empty(n_fields + 2 + 3 * k + table_bytes // 8, np.int64)
        start = address(memory)
        found = start + 8 * n_fields
        heap = found + 16
        memory[:n_fields] = (
            address(listed.ids) + row * listed.ids.strides[0],
            address(listed.values) + row * listed.values.strides[0],
            listed.ids.shape[1],
            address(logits),
            listed.d_vocab,
            address(removed),
            len(removed),
            address(token_ids),
            len(token_ids),
            prompt_length,
            address(plan.operations),
            len(plan.operations),
            k,
            plan.draws,
            struct.unpack("q", struct.pack("d", uniform))[0],
            heap + 24 * k,
            n_entries,
            heap,
            heap + 8 * k,
            heap + 16 * k,
            found + 8,
            found + 12,
            found,
        )
        self._function(self._unused, self._unused, start)
        return int(memory[n_fields])
