"""The backend `cuda`: the weights on a GPU as they are quantised, and a forward step as a row of launches."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from functools import partial
from typing import Any

import numpy as np

from ringlet.core.backend import Backend, Missing
from ringlet.core.batch import Batch
from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.likeliest import Likeliest
from ringlet.core.ring_cache import RingLayout, RingMemory
from ringlet.core.terminal.standard_error import passing_lines
from ringlet.core.weights import ModelWeights
from ringlet.plugins.backends.cpu.check import check_weights
from ringlet.plugins.backends.cuda.arrivals import Arrivals
from ringlet.plugins.backends.cuda.availability import missing, open_device
from ringlet.plugins.backends.cuda.device import Device, Memory
from ringlet.plugins.backends.cuda.lent_logits import Lender, LentLogits
from ringlet.plugins.backends.cuda.planes import padded
from ringlet.plugins.backends.cuda.planning import shape_of, tiles
from ringlet.plugins.backends.cuda.products import Products
from ringlet.plugins.backends.cuda.rings import DeviceRing, ring_bytes
from ringlet.plugins.backends.cuda.scratch import Scratch
from ringlet.plugins.backends.cuda.shapes import can_rank
from ringlet.plugins.backends.cuda.step import Shape, Step, products_by_source
from ringlet.plugins.backends.cuda.weights import Arena, DeviceWeights, Upload, lay_out, staging_bytes

MOST_TOKENS = 65535  # of a step: a grid has no more blocks in its second dimension
MOST_POSITION = 1 << 31
MOST_GRAPHS = 64  # that are kept, and shapes of steps that are remembered


class CudaBackend(Backend):
    """Kernels for NVIDIA GPUs, any recipe that the `numpy` backend takes; importing this module imports no Numba.

    device: the GPU's number, or a Device. Raises FormatError for weights that do not fit the configuration,
    RingletError where no GPU can be used or it has too little memory. threads: not used.
    """

    name = "cuda"
    kv_dtype = "f16"
    kv_dtypes = ("f32", "f16", "q8")
    rank = 30
    takes_device = True

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, threads: int | None = None, device: int | Device = 0
    ) -> None:
        check_weights(config, weights)
        super().__init__(config, weights, threads)
        self.device = device if isinstance(device, Device) else open_device(device)
        self.place = self.device.name
        self._lender, self._lists = Lender(self.device), Arrivals(self.device)
        self._lock, self._process = threading.Lock(), os.getpid()
        self._graphs: OrderedDict[Shape, Any] = OrderedDict()
        self._seen: OrderedDict[Shape, None] = OrderedDict()
        with self._lock:
            self.device.make_current()
            self._load()

    @classmethod
    def missing(cls) -> Missing | None:
        return missing()

    def forward(self, batch: Batch) -> np.ndarray:
        with self._lock:
            return self._logits(self._run(batch))

    def forward_likeliest(self, batch: Batch, count: int) -> Likeliest:
        """Only the list leaves the device, and a row of logits when it is asked for."""
        d_vocab = self.config.d_vocab
        if not can_rank(d_vocab, count) or not batch.wants_logits.any():
            return Likeliest.of_all(self.forward(batch))
        with self._lock:
            shape = self._run(batch, n_listed=count)
            lent = self._lender.lend(self._scratch["logits"], shape.n_wanted, d_vocab)
            listed = self._lists.fetch(self._scratch["listed"], 8 * shape.n_wanted * count)
        ids, values = listed.view(np.int32).reshape(2, shape.n_wanted, count)
        return Likeliest(ids, values.view(np.float32), d_vocab, partial(self._fetch, lent))

    def forward_with_hidden(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        with self._lock:
            logits = self._logits(self._run(batch, with_hidden=True))
            n, width = len(batch.token_ids), padded(self.config.d_model)
            rows = self.device.host_array(4 * n * width)
            self.device.download(self._scratch["last"], rows)
            self.device.synchronise()
        return logits, rows.view(np.float32).reshape(n, width)[:, : self.config.d_model].copy()

    def new_memory(self, layout: RingLayout, kv_dtype: str) -> RingMemory:
        self.device.make_current()
        return DeviceRing(self.device, self.config, layout, kv_dtype)

    def ring_bytes(self, layout: RingLayout, kv_dtype: str) -> int:
        return ring_bytes(self.config, layout, kv_dtype)

    def _load(self) -> None:
        """Bring the weights to the GPU."""
        counted = Arena()
        lay_out(self.config, self.weights, counted)
        staging = staging_bytes(self.weights)
        self._check_memory(counted.end + staging)
        self.device.prepare(["repack"])
        self._memory = Memory(self.device, counted.end)
        passage = Memory(self.device, staging)
        with passing_lines() as tell:

            def progress(n_bytes: int) -> None:
                share, total = n_bytes / counted.file_bytes, counted.file_bytes / 2**30
                tell(f"{share:.0%} of the weights' {total:.2f} GiB are on {self.device.name}")

            upload = Upload(self.device, self._memory.address, passage.address, progress)
            self._placed: DeviceWeights = lay_out(self.config, self.weights, upload)
            self.device.synchronise()
        del passage
        forms = {name: Products(self.device).forms_at_most(group) for name, group in products_by_source(self._placed)}
        placed = self._placed
        self._scratch = Scratch(self.device, self.config, forms, placed.n_pairs, len(placed.pairs_of_rope))
        self._step = Step(self.device, self.config, placed, self._scratch)
        self.device.prepare(sorted(self._step.kernels(1)))

    def _check_memory(self, needed: int) -> None:
        free = self.device.free_bytes()
        if needed > free:
            raise RingletError(
                f"the weights take {needed / 2**30:.2f} GiB, {self.device.name} has {free / 2**30:.2f} GiB free: "
                "choose a smaller quantisation of the model, another GPU with --device, or --backend cpu"
            )

    def _fetch(self, lent: LentLogits, row: int) -> np.ndarray:
        self._check_process()
        with self._lock:
            self.device.make_current()
            return self._lender.fetch(lent, row)

    def _logits(self, shape: Shape) -> np.ndarray:
        """Those of the step that has just been launched."""
        if shape.n_wanted:
            return self._lender.fetch_all(self._scratch["logits"], shape.n_wanted, self.config.d_vocab)
        self.device.synchronise()
        return np.empty((0, self.config.d_vocab), np.float32)

    def _run(self, batch: Batch, n_listed: int = 0, with_hidden: bool = False) -> Shape:
        """Launch a step, without waiting for it."""
        self._check(batch)
        self.device.make_current()
        shape = shape_of(batch, self.config, self.device.multiprocessors, n_listed, with_hidden)
        try:
            self._lender.make_way()
            if self._scratch.make_room(shape.sizes):
                self._graphs.clear()
        except MemoryError:
            raise RingletError(
                f"a step of {shape.n_tokens} tokens does not fit the memory of {self.device.name}: choose a smaller "
                "chunk or fewer sequences at once"
            ) from None
        self._tell(batch)
        self._launch(shape)
        return shape

    def _tell(self, batch: Batch) -> None:
        """Send what is new in this step."""
        told, n = self._scratch.told, len(batch.token_ids)
        rings: list[DeviceRing] = [ring.memory for ring in batch.rings]
        told["token_ids"][:n] = batch.token_ids
        told["positions"][:n] = batch.positions
        told["rings"][:n] = np.array([ring.address for ring in rings], np.int64)[batch.sequence]
        last = np.array([ring.capacity - 1 for ring in rings], np.int64)[batch.sequence]
        told["positions"][n : 2 * n] = np.minimum(batch.positions, last)
        wanted, tiled = np.flatnonzero(batch.wants_logits), tiles(batch, self.config.heads_per_kv_head).reshape(-1)
        told["wanted"][: len(wanted)] = wanted
        told["tiles"][: len(tiled)] = tiled
        self._scratch.tell()

    def _launch(self, shape: Shape) -> None:
        """Run the step, from its graph if it has been recorded; it is when its shape comes a second time."""
        graph = self._graphs.get(shape)
        if graph is None and shape in self._seen:
            graph = self._graphs[shape] = self.device.record(lambda: self._step.run(shape))
        if graph is None:
            self._seen[shape] = None
            self._step.run(shape)
        else:
            self._graphs.move_to_end(shape)
            self.device.replay(graph)
        for kept in (self._graphs, self._seen):
            if len(kept) > MOST_GRAPHS:
                kept.popitem(last=False)

    def _check(self, batch: Batch) -> None:
        """What would otherwise read or write memory that is not the step's. Raises RingletError or ValueError."""
        self._check_process()
        n = len(batch.token_ids)
        if not (len(batch.positions) == len(batch.sequence) == len(batch.wants_logits) == n):
            raise ValueError("the arrays of a batch differ in length")
        if n > MOST_TOKENS:
            raise RingletError(f"a step of {n} tokens: at most {MOST_TOKENS} are possible, choose a smaller chunk")
        highest = self.config.context_length if self.config.learned_positions else MOST_POSITION
        for values, limit, name in (
            (batch.token_ids, self.config.d_vocab, "token id"),
            (batch.positions, highest, "position"),
            (batch.sequence, len(batch.rings), "sequence"),
        ):
            if n and not (values.min() >= 0 and values.max() < limit):
                raise RingletError(f"a {name} of the batch is outside 0 … {limit - 1}")
        for ring in batch.rings:
            memory = ring.memory
            if not isinstance(memory, DeviceRing) or memory.device is not self.device or memory.config != self.config:
                raise ValueError("a ring of another backend or model")

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise RingletError("the cuda backend does not survive a fork: start processes with the method spawn")
