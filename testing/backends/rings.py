"""Ways to cut the same tokens into steps, and rings that are rewound, forked and used again."""

from __future__ import annotations

import numpy as np

from ringlet.core.backend_calls import copy_ring, new_ring
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step
from ringlet.testing.backends.case import BackendCase, close, exact_dtype, same_bits, usual_layout, usual_ring
from ringlet.testing.checks import require
from ringlet.testing.random_models import in_pieces, tokens


def chunks_agree(case: BackendCase) -> None:
    backend = case.usual()
    ids = tokens(40, backend.config)
    whole = in_pieces(backend, usual_ring(backend), ids, [40])
    for sizes in ([1], [7], [30, 1, 2]):
        close(in_pieces(backend, usual_ring(backend), ids, sizes), whole, case.tolerance, f"pieces of {sizes}")


def batches_agree(case: BackendCase) -> None:
    """Three sequences in rings of several layouts, at several places, in steps of several sizes."""
    backend = case.usual()
    config = backend.config
    layouts = [
        RingLayout.of(config, 10, 2, "slide", chunk=20),
        RingLayout.of(config, 200, chunk=20),
        RingLayout.of(config, 4, 1, "slide", chunk=20),
    ]
    texts = [tokens(60, config, seed) for seed in range(3)]
    alone = [
        in_pieces(backend, new_ring(backend, layout, exact_dtype(backend)), ids, [20])
        for layout, ids in zip(layouts, texts, strict=True)
    ]
    rings = [new_ring(backend, layout, exact_dtype(backend)) for layout in layouts]
    for sizes in ((1, 20, 3), (17, 5, 20), (2, 1, 1), (20, 20, 20)):
        starts = [ring.length for ring in rings]
        parts = [
            (ring, ids[start : start + size], wants)
            for ring, ids, start, size, wants in zip(rings, texts, starts, sizes, ("all", "last", "none"), strict=True)
        ]
        logits = run_step(backend, parts)
        expected = [alone[0][starts[0] : starts[0] + sizes[0]], alone[1][starts[1] + sizes[1] - 1][None]]
        close(logits, np.concatenate(expected), case.tolerance, f"sizes {sizes}")


def wants_nothing(case: BackendCase) -> None:
    backend = case.usual()
    ring, ids = usual_ring(backend), tokens(12, backend.config)
    logits = run_step(backend, [(ring, ids[:9], "none")])
    require(logits.shape == (0, backend.config.d_vocab), f"the logits of a step that wants none are {logits.shape}")
    rest = run_step(backend, [(ring, ids[9:], "all")])
    close(rest, in_pieces(backend, usual_ring(backend), ids, [12])[9:], case.tolerance, "the step after it")


def sizes_change(case: BackendCase) -> None:
    backend = case.usual()
    layout, ids = RingLayout.of(backend.config, 300, chunk=256), tokens(290, backend.config)
    first = in_pieces(backend, new_ring(backend, layout, exact_dtype(backend)), ids[:3], [3])
    in_pieces(backend, new_ring(backend, layout, exact_dtype(backend)), ids, [256])
    again = in_pieces(backend, new_ring(backend, layout, exact_dtype(backend)), ids[:3], [3])
    same_bits(again, first, "three tokens before and after a step of 256")


def rewinds(case: BackendCase) -> None:
    """In a ring that has not turned, and in one that has."""
    backend = case.usual()
    ids, others = tokens(40, backend.config), tokens(9, backend.config, seed=2)
    for overflow, before, kept in (("stop", 30, 12), ("slide", 36, 34)):
        layout = usual_layout(backend.config, overflow)
        ring = new_ring(backend, layout, exact_dtype(backend))
        in_pieces(backend, ring, ids[:before], [9])
        kept = ring.rewind(kept)
        logits = in_pieces(backend, ring, others, [4])
        text = [*ids[:kept], *others]
        fresh = in_pieces(backend, new_ring(backend, layout, exact_dtype(backend)), text, [4])[kept:]
        close(logits, fresh, case.tolerance, f'overflow "{overflow}", after a rewind from {before} to {kept}')


def forks(case: BackendCase) -> None:
    """Original and copy go on with different tokens, step by step in turns, before and after the ring has turned."""
    backend = case.usual()
    ids = tokens(40, backend.config)
    ends = [tokens(8, backend.config, seed) for seed in (2, 3)]
    for length in (0, 5, 30):
        ring = usual_ring(backend)
        if length:
            in_pieces(backend, ring, ids[:length], [7])
        rings = [ring, copy_ring(backend, ring)]
        logits: list[list[np.ndarray]] = [[], []]
        for start in range(0, 8, 2):
            for found, one, end in zip(logits, rings, ends, strict=True):
                found.append(run_step(backend, [(one, end[start : start + 2], "all")]))
        for found, end, which in zip(logits, ends, ("the original", "the copy"), strict=True):
            fresh = in_pieces(backend, usual_ring(backend), [*ids[:length], *end], [7])[length:]
            close(np.concatenate(found), fresh, case.tolerance, f"{which} of a ring forked at {length}")


def begins_again(case: BackendCase) -> None:
    backend = case.usual()
    ids, ring = tokens(30, backend.config), usual_ring(backend)
    first = in_pieces(backend, ring, ids[:9], [9])
    in_pieces(backend, ring, ids[9:], [7])
    ring.rewind(0)
    same_bits(in_pieces(backend, ring, ids[:9], [9]), first, "the same tokens in a new ring and in a used one")
