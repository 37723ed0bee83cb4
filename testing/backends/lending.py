"""What a backend is lent and what it returns; the same bits again; threads."""

from __future__ import annotations

from threading import Thread
from typing import Any

import numpy as np

from ringlet.core.backend_calls import new_ring, ring_bytes
from ringlet.core.batch import Batch
from ringlet.core.checks import is_whole
from ringlet.core.step import run_step
from ringlet.testing.backends.case import (
    BackendCase,
    close,
    same_bits,
    usual_layout,
    usual_model,
    usual_ring,
)
from ringlet.testing.checks import require
from ringlet.testing.random_models import in_pieces, tokens


def leaves_the_batch_alone(case: BackendCase) -> None:
    backend = case.usual()
    ring = usual_ring(backend)
    batch = Batch.of([(ring, tokens(6, backend.config), "last")], backend.config.d_vocab)
    names = ("token_ids", "positions", "sequence", "wants_logits")
    before = {name: getattr(batch, name).copy() for name in names}
    backend.forward(batch)
    for name in names:
        require(np.array_equal(getattr(batch, name), before[name]), f"forward changed batch.{name}")
    require(ring.length == 0, f"forward told the ring of {ring.length} tokens: the engine does that after the step")


def keeps_no_logits(case: BackendCase) -> None:
    backend = case.usual()
    ring, ids = usual_ring(backend), tokens(6, backend.config)
    first = run_step(backend, [(ring, ids[:3], "all")])
    copy = first.copy()
    run_step(backend, [(ring, ids[3:], "all")])
    same_bits(first, copy, "what forward returned, before and after the next step (return a new array each time)")


def repeats(case: BackendCase) -> None:
    backend = case.usual()
    ids = tokens(40, backend.config)
    first, again = (in_pieces(backend, usual_ring(backend), ids, [30, 1]) for _ in range(2))
    same_bits(again, first, "two runs")


def threads_agree(case: BackendCase) -> None:
    model = usual_model()
    ids, results = tokens(40, model[0]), []
    for threads in (1, min(2, case.registered.cls.most_threads)):
        backend = case.made(model, threads)
        results.append(in_pieces(backend, usual_ring(backend), ids, [30, 1]))
    same_bits(results[0], results[1], "1 and 2 threads")


def serves_two_threads(case: BackendCase) -> None:
    backend = case.usual()
    texts = [tokens(40, backend.config, seed) for seed in (4, 5)]
    alone = [in_pieces(backend, usual_ring(backend), ids, [3]) for ids in texts]
    together: dict[int, Any] = {}

    def work(at: int) -> None:
        try:
            together[at] = in_pieces(backend, usual_ring(backend), texts[at], [3])
        except BaseException as error:  # shown below, in the thread that waits
            together[at] = error

    threads = [Thread(target=work, args=(at,)) for at in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at, expected in enumerate(alone):
        if isinstance(together[at], BaseException):
            raise together[at]
        close(together[at], expected, case.tolerance, "beside another thread")


def tells_memory(case: BackendCase) -> None:
    backend = case.usual()
    for kv_dtype in backend.kv_dtypes:
        layout = usual_layout(backend.config)
        told, taken = ring_bytes(backend, layout, kv_dtype), new_ring(backend, layout, kv_dtype).memory.nbytes
        require(is_whole(taken), f"memory.nbytes is of type {type(taken).__name__}, not a whole number")
        require(told > 0, f"ring_bytes is {told} for a ring of {kv_dtype}")
        wrong = f"ring_bytes says {told} for a ring of {kv_dtype}, its memory {taken}"
        require(abs(told - taken) <= max(4096, told // 10), wrong)
