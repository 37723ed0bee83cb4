"""Ringlet as an engine of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from comparison.engine import Engine

from ringlet.core.measurement import benchmark
from ringlet.core.pipeline import Pipeline
from ringlet.core.ring_cache import RingCache


class RingletEngine(Engine):
    """Rings are kept for each length of history, and rewound."""

    name = "Ringlet"

    def __init__(self, backend: str = "cpu") -> None:
        self._backend = backend

    def load(self, model: Path, threads: int, context: int) -> None:
        self.pipe = Pipeline.from_pretrained(model, backend=self._backend, threads=threads, context=context)
        self._kept: dict[int, list[RingCache]] = {}
        self._rings: list[RingCache] = []

    def hold(self, history: Sequence[int], batch: int) -> None:
        kept = self._kept.setdefault(len(history), [])
        for ring in kept[:batch]:
            if ring.rewind(len(history)) != len(history):
                benchmark.prefill(self.pipe, [ring], history)
        while len(kept) < batch:
            kept.append(kept[0].fork() if kept else self._filled(history))
        self._rings = kept[:batch]

    def _filled(self, history: Sequence[int]) -> RingCache:
        ring = self.pipe.new_ring()
        if history:
            benchmark.prefill(self.pipe, [ring], history)
        return ring

    def prefill(self, ids: Sequence[int]) -> None:
        benchmark.prefill(self.pipe, self._rings, ids)

    def decode(self, ids: Sequence[int]) -> None:
        benchmark.decode(self.pipe, self._rings, ids)
