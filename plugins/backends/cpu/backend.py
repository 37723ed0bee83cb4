"""The backend `cpu`: a forward step as one compiled call over the ragged batch, on weights as they lie on disk, those
in blocks interleaved."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from functools import partial

import numpy as np

from ringlet.core.backend import Backend, MachineLimits
from ringlet.core.batch import Batch
from ringlet.core.checks import check_count
from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.likeliest import Likeliest
from ringlet.core.ring_cache import RingCache
from ringlet.core.weights import ModelWeights
from ringlet.plugins.backends.cpu import records
from ringlet.plugins.backends.cpu.check import check_weights
from ringlet.plugins.backends.cpu.drawing import Drawer
from ringlet.plugins.backends.cpu.kept_code import kernels_folder
from ringlet.plugins.backends.cpu.machine_code import machine_code
from ringlet.plugins.backends.cpu.records import address
from ringlet.plugins.backends.cpu.scratch import Scratch
from ringlet.plugins.backends.cpu.step_task import StepTask
from ringlet.plugins.backends.cpu.tables import ModelTable, RingTable, all_units, needed_units, rotations
from ringlet.plugins.backends.cpu.team import Step, Team, usable_cores

SPLIT_PAIRS = 16  # of token and K/V head: with so few or fewer, long contexts are split over threads


def step_at(code: int) -> Step:
    """The machine code of `step` as a Python function; it runs without the GIL. See `units` for its first arguments."""
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)(code)
    unused = ctypes.c_void_p()
    return partial(function, ctypes.byref(unused), ctypes.byref(unused))


def final_norm(config: ModelConfig, weights: ModelWeights, x: np.ndarray) -> np.ndarray:
    """The last norm of x (n, d_model)."""
    from ringlet.plugins.backends.numpy import layer_norm, rms_norm

    if config.norm == "rms":
        return rms_norm(x, weights.final_norm, config.norm_epsilon)
    return layer_norm(x, weights.final_norm, weights.final_norm_bias, config.norm_epsilon)


class CpuBackend(Backend):
    """Numba kernels, any recipe that the `numpy` backend takes; importing this module does not import Numba.

    threads: None means the physical cores this process may use. Raises FormatError for weights that do not fit the
    configuration, RingletError for a number of threads that cannot be.
    """

    name = "cpu"
    kv_dtype = "f16"
    rank = 20

    def __init__(self, config: ModelConfig, weights: ModelWeights, threads: int | None = None) -> None:
        n_threads = min(usable_cores(), self.most_threads) if threads is None else threads
        check_count("threads", n_threads, 1, self.most_threads)
        check_weights(config, weights)
        super().__init__(config, weights, n_threads)
        codes = machine_code(needed_units(weights))
        self._model = ModelTable(config, weights, codes, n_threads)
        self._rings: weakref.WeakKeyDictionary[RingCache, RingTable] = weakref.WeakKeyDictionary()
        self._scratch = Scratch(self._model, n_threads)
        self._team = Team(n_threads, step_at(codes["step"]))
        self._drawer = Drawer(codes["draw"])
        self._lock, self._process = threading.Lock(), os.getpid()
        self._job = {"n_threads": n_threads, "n_layers": config.n_layers, "model": address(self._model.record)}

    def forward(self, batch: Batch) -> np.ndarray:
        with self._step_lock():
            return self._run(batch)[0]

    def forward_likeliest(self, batch: Batch, count: int) -> Likeliest:
        with self._step_lock():
            logits, ids, values = self._run(batch, count)
        return Likeliest(ids, values, self.config.d_vocab, logits.__getitem__, self._drawer.draw)

    def forward_with_hidden(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        with self._step_lock():
            logits, x = self._run(batch)[0], self._residual(len(batch.token_ids))
        return logits, final_norm(self.config, self.weights, x)

    def _residual(self, n_tokens: int) -> np.ndarray:
        """What the last layer of the last step left of its first tokens: float32 (n_tokens, d_model)."""
        memory, width = self._scratch.memory, records.padded(self.config.d_model)
        at = self._scratch.places["x"] - address(memory)
        rows = memory[at : at + 4 * n_tokens * width].view(np.float32).reshape(n_tokens, width)
        return rows[:, : self.config.d_model].copy()

    def warm_up(self, everything: bool = False) -> str:
        machine_code(all_units() if everything else needed_units(self.weights))
        folder, why = kernels_folder()
        return "has its kernels compiled, " + (f"kept in {folder}" if folder else f"but not kept: {why}")

    def machine_limits(self) -> MachineLimits:
        from ringlet.plugins.backends.cpu.limits import machine_limits  # imports Numba

        return machine_limits(self.threads)

    def _step_lock(self) -> threading.Lock:
        """One step at a time; a forked child does not inherit what another thread of its parent held."""
        if self._process != os.getpid():
            self._lock, self._process = threading.Lock(), os.getpid()
        return self._lock

    def _run(self, batch: Batch, n_listed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The logits, and of each row the ids and the logits of the likeliest."""
        lists = self._checked_lists(batch)
        tables = [self._ring_table(ring) for ring in batch.rings]
        lists["rings"], lists["angle_rows"] = rotations(self._model, lists["positions"], tables)
        n_tokens, n_wanted, n_angle_rows = len(lists["positions"]), len(lists["wanted"]), len(lists["angle_rows"]) // 2
        pieces = self._pieces(lists["positions"], tables)
        if self._scratch.make_room(n_tokens, n_angle_rows, n_tokens * self.config.n_kv_heads * pieces):
            self._job |= self._scratch.places
        logits = np.empty((n_wanted, self.config.d_vocab), np.float32)
        listed = np.empty((2, n_wanted, n_listed), np.int32)  # ids, and the bits of their logits
        maxima_bytes = 4 * records.padded(-(-self.config.d_vocab // records.LOGITS_A_BLOCK))
        search = np.empty(n_wanted * (8 * n_listed + maxima_bytes), np.uint8) if n_listed else logits
        job = self._job | {
            "n_tokens": n_tokens,
            "n_wanted": n_wanted,
            "n_angle_rows": n_angle_rows,
            "pieces": pieces,
            "n_listed": n_listed,
            "logits": address(logits),
            "listed_ids": address(listed),
            "listed_values": address(listed) + listed.nbytes // 2,
            "listed_heaps": address(search),
            "block_maxima": address(search) + 8 * n_wanted * n_listed,
        }
        self._team.run(StepTask(job, lists, (batch, tables, self._scratch.memory, logits, listed, search)))
        return logits, listed[0], listed[1].view(np.float32)

    def _checked_lists(self, batch: Batch) -> dict[str, list[int]]:
        """What the batch holds, once it is sure that every index in it is within its bounds."""
        token_ids, positions, sequence = batch.token_ids.tolist(), batch.positions.tolist(), batch.sequence.tolist()
        wants = batch.wants_logits.tolist()
        if not len(token_ids) == len(positions) == len(sequence) == len(wants):
            raise ValueError("the arrays of a batch differ in length")
        highest = self.config.context_length if self.config.learned_positions else 1 << 62
        for values, limit, name in (
            (token_ids, self.config.d_vocab, "token id"),
            (positions, highest, "position"),
            (sequence, len(batch.rings), "sequence"),
        ):
            if values and not (min(values) >= 0 and max(values) < limit):
                raise RingletError(f"a {name} of the batch is outside 0 … {limit - 1}")
        wanted = [place for place, wants_logits in enumerate(wants) if wants_logits]
        return {"token_ids": token_ids, "positions": positions, "sequence": sequence, "wanted": wanted}

    def _ring_table(self, ring: RingCache) -> RingTable:
        table = self._rings.get(ring)
        if table is None:
            table = self._rings[ring] = RingTable(ring, self._model)
        return table

    def _pieces(self, positions: list[int], tables: list[RingTable]) -> int:
        """Pieces that a query's positions have at most, or 0 where splitting does not pay.

        It does not depend on the number of threads, and changes no result.
        """
        if not positions or len(positions) * self.config.n_kv_heads > SPLIT_PAIRS:
            return 0
        capacity = max(table.capacity for table in tables)
        pieces = 1 + min(max(positions) // records.SEGMENT + 1, capacity // records.SEGMENT + 2)
        return pieces if pieces > 2 else 0
