"""For each check of backends, a backend that fails it: the reference with a slip."""

from __future__ import annotations

from threading import current_thread, main_thread

import numpy as np

from ringlet.core.host_memory import HostMemory
from ringlet.plugins.backends.numpy import NumpyBackend


class ABitOff(NumpyBackend):
    """Every agreement with the reference fails."""

    name = "a_bit_off"

    def forward(self, batch):
        return super().forward(batch) * np.float32(1.2)

    def forward_with_hidden(self, batch):
        logits, hidden = super().forward_with_hidden(batch)
        return logits * np.float32(1.2), hidden


class Chunks(NumpyBackend):
    """What it computes depends on how many tokens a step has."""

    name = "chunks"

    def forward(self, batch):
        return super().forward(batch) + np.float32(0.01 * len(batch.token_ids))


class Neighbours(NumpyBackend):
    """Sequences see each other."""

    name = "neighbours"

    def forward(self, batch):
        return super().forward(batch) + np.float32(len(batch.rings) - 1)


class AlwaysOne(NumpyBackend):
    """Returns a row even where none is wanted."""

    name = "always_one"

    def forward(self, batch):
        logits = super().forward(batch)
        return logits if len(logits) else np.zeros((1, self.config.d_vocab), np.float32)


class Remembers(NumpyBackend):
    """Keeps something of the largest step."""

    name = "remembers"
    largest = 0

    def forward(self, batch):
        self.largest = max(self.largest, len(batch.token_ids))
        return super().forward(batch) + np.float32(self.largest)


class NoRewind(NumpyBackend):
    """Takes no notice of a ring that was cut back."""

    name = "no_rewind"

    def forward(self, batch):
        logits = super().forward(batch)
        for ring, start, stop in zip(batch.rings, batch.starts, batch.starts[1:], strict=False):
            ring.seen = max(getattr(ring, "seen", 0), int(batch.positions[stop - 1]) + 1)
            if ring.seen > int(batch.positions[start]) + (stop - start):
                logits += 1
        return logits


class SharedMemory(HostMemory):
    def copy_from(self, other, length):
        self.keys, self.values = other.keys, other.values


class NoFork(NumpyBackend):
    """A copied ring shares its memory with the original."""

    name = "no_fork"

    def new_memory(self, layout, kv_dtype):
        return SharedMemory(self.config, layout, kv_dtype)


class WritesBatch(NumpyBackend):
    """Writes to the batch, against all odds."""

    name = "writes_batch"

    def forward(self, batch):
        logits = super().forward(batch)
        batch.token_ids.flags.writeable = True
        batch.token_ids[:] = 0
        return logits


class OneBuffer(NumpyBackend):
    """Returns the same array each time."""

    name = "one_buffer"

    def forward(self, batch):
        logits = super().forward(batch)
        if not hasattr(self, "buffer"):
            self.buffer = np.empty((1000, self.config.d_vocab), np.float32)
        self.buffer[: len(logits)] = logits
        return self.buffer[: len(logits)]


class Noisy(NumpyBackend):
    """Random in the last bits."""

    name = "noisy"

    def forward(self, batch):
        logits = super().forward(batch)
        return logits + np.random.default_rng().normal(0, 1e-5, logits.shape).astype(np.float32)


class Threads(NumpyBackend):
    """The number of threads changes the last bits."""

    name = "threads"

    def forward(self, batch):
        return super().forward(batch) * np.float32(1 + 1e-6 * (self.threads or 1))


class MainThread(NumpyBackend):
    """Works in the main thread alone."""

    name = "main_thread"

    def forward(self, batch):
        return super().forward(batch) + np.float32(current_thread() is not main_thread())


class HidesNaN(NumpyBackend):
    """Makes numbers of NaN."""

    name = "hides_nan"

    def forward(self, batch):
        return np.nan_to_num(super().forward(batch))


class NoBytes(NumpyBackend):
    """Says that a ring takes no memory to speak of."""

    name = "no_bytes"

    def ring_bytes(self, layout, kv_dtype):
        return 1


class WrongHidden(NumpyBackend):
    """Hidden states before the final norm, or so."""

    name = "wrong_hidden"

    def forward_with_hidden(self, batch):
        logits, hidden = super().forward_with_hidden(batch)
        return logits, hidden * np.float32(2)


FAULTY: dict[type, str | tuple[str, ...]] = {
    ABitOff: "the plain recipe agrees with the reference",
    Chunks: "a text in chunks gives the same logits",
    Neighbours: "sequences of a batch do not touch each other",
    AlwaysOne: "a step that wants no logits",
    Remembers: "a small step after a large one, and the other way round",
    NoRewind: ("a rewound ring goes on from there", "a used ring begins again"),
    NoFork: "a forked ring is independent",
    WritesBatch: "the batch and the rings' tokens are left alone",
    OneBuffer: "logits returned earlier do not change",
    Noisy: "the same steps give the same bits",
    Threads: "any number of threads gives the same bits",
    MainThread: "two Python threads at once",
    HidesNaN: "NaN in a weight shows in the logits",
    NoBytes: "the memory of a ring is told",
    WrongHidden: "hidden states, if it gives them",
}
