"""The memory that a step works in: one allocation, kept, and made larger when a batch needs more."""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cpu.records import PADDING, SEGMENT, byte_row_bytes, padded
from ringlet.plugins.backends.cpu.tables import ModelTable, byte_widths

ALIGNMENT = 64  # bytes: the widest vector


class Scratch:
    """Float32 memory for batches up to the sizes seen so far; zeroed once, and the padding stays zero.

    places: the job's fields of addresses and sizes, by name.
    """

    def __init__(self, model: ModelTable, n_threads: int) -> None:
        self.model, self.n_threads = model, n_threads
        self.n_tokens = self.n_angle_rows = self.n_partials = 0
        self.places: dict[str, int] = {}

    def make_room(self, n_tokens: int, n_angle_rows: int, n_partials: int) -> bool:
        """Have room for so many tokens, angle rows and states of a group; true if the places are new."""
        wanted = (n_tokens, n_angle_rows, n_partials)
        held = (self.n_tokens, self.n_angle_rows, self.n_partials)
        if self.places and all(a <= b for a, b in zip(wanted, held, strict=True)):
            return False
        self.n_tokens, self.n_angle_rows, self.n_partials = map(max, wanted, held)
        self._allocate()
        return True

    def _allocate(self) -> None:
        sizes, thread = self._sizes(), self._thread_offsets()
        thread_bytes = thread.pop("thread_bytes")
        sizes["thread_memory"] = self.n_threads * thread_bytes // 4
        self.memory = np.zeros(4 * sum(map(padded, sizes.values())) + ALIGNMENT, np.uint8)
        at = self.memory.ctypes.data + -self.memory.ctypes.data % ALIGNMENT
        self.places = {"thread_bytes": thread_bytes, "angle_width": self.model.angle_width, **thread}
        for name, size in sizes.items():
            self.places[name] = at
            at += 4 * padded(size)

    def _sizes(self) -> dict[str, int]:
        """Float32 values of each part that all threads share."""
        config = self.model.config
        widths = {
            "x": config.d_model,
            "normed": config.d_model,
            "q": config.n_heads * config.d_k,
            "k": config.n_kv_heads * config.d_k,
            "v": config.n_kv_heads * config.d_v,
            "heads": config.n_heads * config.d_v,
            "projected": config.d_model,
            "hidden": config.d_ff,
            "up": config.d_ff,
        }
        sizes = {name: self.n_tokens * padded(width) for name, width in widths.items()}
        for name, columns in byte_widths(self.model.weights).items():
            sizes[f"{name}_bytes"] = self.n_tokens * byte_row_bytes(columns) // 4
        sizes["q_ring"] = sizes["q_sinks"] = self.n_tokens * config.n_heads * padded(config.d_k)
        sizes["angles"] = self.n_angle_rows * 2 * self.model.angle_width
        sizes["partials"] = self.n_partials * self._state_values
        return sizes

    @property
    def _state_values(self) -> int:
        """Float32 values of the attention state of the heads that share a K/V head."""
        config = self.model.config
        return config.heads_per_kv_head * (padded(config.d_v) + PADDING)

    def _thread_offsets(self) -> dict[str, int]:
        """Bytes into one thread's memory, and bytes in all."""
        config, offsets, at = self.model.config, {}, 0
        for name, values in {
            "thread_rows": self.model.row_values,
            "thread_scores": config.heads_per_kv_head * SEGMENT,
            "thread_head": padded(config.d_k),
            "thread_state": self._state_values,
            "thread_piece": self._state_values,
            "thread_bytes": 0,
        }.items():
            offsets[name] = at
            at += 4 * padded(values)
        return offsets
