"""What a token costs as a text grows: computed with the cache, with everything again, and with a ring that slides.

Measured in milliseconds, and counted in multiplications and in bytes of keys and values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from ringlet.core.backend_calls import ring_bytes
from ringlet.core.checks import check_count
from ringlet.core.errors import RingletError
from ringlet.core.measurement.benchmark import decode, prefill, some_ids
from ringlet.core.measurement.scaling_claims import AGAIN, CACHE, RING, Claim, ScalingPoint, claims_of
from ringlet.core.measurement.workload import StepCounter
from ringlet.core.pipeline import Pipeline
from ringlet.core.ring_cache import RingCache, RingLayout

FIRST, MOST_POINTS = 16, 7  # tokens of the shortest text at least; how many texts
ROUNDS, LONG = 3, 10.0  # no further round after so many seconds
ENOUGH, MOST = 0.1, 64  # seconds to measure one of them in a round, and times; what takes longer is not repeated
VERY_LONG = 1.0  # seconds: this is measured once, without one before that does not count
RING_SHARE, RING_SINKS = 8, 4  # the ring has an eighth of the longest text's slots

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Scaling:
    """ring_slots: how many keys a query sees at most in the ring; None where the model's positions cannot slide."""

    model: str
    backend: str
    threads: int | None
    kv_dtype: str
    ring_slots: int | None
    points: tuple[ScalingPoint, ...]
    claims: tuple[Claim, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain values, ready for JSON."""
        return asdict(self)


def measure_scaling(pipe: Pipeline, progress: Progress) -> Scaling:
    """Measure a pipeline up to its context. progress: is told what is being done.

    Raises RingletError where the context is too short to show anything.
    """
    lengths = text_lengths(pipe.layout.context)
    config = pipe.model.config
    slots = None if config.learned_positions else max(RING_SINKS + 1, lengths[-1] // RING_SHARE)
    runs: dict[str, Run] = {AGAIN: Again(pipe, lengths[-1]), CACHE: Cached(pipe, whole_layout(pipe, lengths[-1]))}
    if slots is not None:
        runs[RING] = Cached(pipe, ring_layout(pipe, slots))
    seconds = least_seconds(runs, lengths, progress)
    points = tuple(
        ScalingPoint(
            n,
            {way: 1000 * seconds[way, n] for way in runs},
            {way: run.multiplications(n) for way, run in runs.items()},
            {way: kept for way, run in runs.items() if (kept := run.kv_bytes(n)) is not None},
        )
        for n in lengths
    )
    backend, claims = pipe.backend, claims_of(points, slots)
    return Scaling(pipe.model.name, backend.name, backend.threads, pipe.kv_dtype, slots, points, claims)


def least_seconds(runs: dict[str, Run], lengths: Sequence[int], progress: Progress) -> dict[tuple[str, int], float]:
    """By way and length, the least of some rounds: what else the machine does comes and goes, and only adds."""
    least: dict[tuple[str, int], float] = {}
    began = perf_counter()
    for turn in range(ROUNDS):
        for n in lengths:
            progress(f"round {turn + 1} of {ROUNDS}: a text of {n} tokens")
            for way, run in runs.items():
                if turn == 0 or least[way, n] < ENOUGH:
                    least[way, n] = min(run.seconds(n), least.get((way, n), float("inf")))
        if perf_counter() - began > LONG:
            break
    return least


def text_lengths(context: int) -> list[int]:
    """Up to seven lengths, each half of the next, the longest the context."""
    check_count("context", context, minimum=1)
    lengths = [context >> halvings for halvings in range(MOST_POINTS) if context >> halvings >= FIRST]
    if len(lengths) < 3:
        raise RingletError(f"context is {context}: at least {4 * FIRST} is needed to show how costs grow")
    return lengths[::-1]


def whole_layout(pipe: Pipeline, longest: int) -> RingLayout:
    """Everything is kept."""
    return RingLayout.of(pipe.model.config, longest, chunk=min(pipe.layout.chunk, longest))


def ring_layout(pipe: Pipeline, slots: int) -> RingLayout:
    chunk = min(pipe.layout.chunk, slots)
    return RingLayout.of(pipe.model.config, slots, sinks=RING_SINKS, overflow="slide", chunk=chunk)


class Run(ABC):
    """One way of computing the last token of a text of n tokens. Ascending lengths need the least work."""

    def __init__(self, pipe: Pipeline, layout: RingLayout) -> None:
        self.pipe, self.layout = pipe, layout
        nbytes = ring_bytes(pipe.backend, layout, pipe.kv_dtype)
        self.counter = StepCounter(pipe.model.config, pipe.model.weights, layout, nbytes)

    def timed(self, compute: Callable[[], object], before: Callable[[], object]) -> float:
        """Seconds that the call takes: the least of some, after one that does not count."""
        times: list[float] = []
        while len(times) < 2 or (sum(times) < ENOUGH and len(times) <= MOST):
            before()
            began = perf_counter()
            compute()
            times.append(perf_counter() - began)
            if times[-1] > VERY_LONG:
                return times[-1]
        return min(times[1:])

    @abstractmethod
    def seconds(self, n: int) -> float:
        """Measured."""

    @abstractmethod
    def multiplications(self, n: int) -> int:
        """Counted."""

    @abstractmethod
    def kv_bytes(self, n: int) -> int | None:
        """Of the K and V that are kept; None where nothing is."""


class Cached(Run):
    """The ring holds the n − 1 tokens before; the last one is computed alone."""

    def __init__(self, pipe: Pipeline, layout: RingLayout) -> None:
        super().__init__(pipe, layout)
        self.ring: RingCache = pipe.new_ring(layout)
        self.last = some_ids(pipe, 1, seed=1)

    def seconds(self, n: int) -> float:
        return self.timed(lambda: decode(self.pipe, [self.ring], self.last), before=lambda: self.fill(n - 1))

    def fill(self, length: int) -> None:
        """Have the ring hold so many tokens; computed from the beginning only where it cannot be cut back."""
        if self.ring.length > length:
            self.ring.rewind(length)
        if self.ring.length < length:
            prefill(self.pipe, [self.ring], some_ids(self.pipe, length - self.ring.length, seed=0))

    def multiplications(self, n: int) -> int:
        return self.counter.step(1, n - 1, n, 1).multiply_adds

    def kv_bytes(self, n: int) -> int:
        """Of a ring that has a slot for each of the n tokens, or as many slots as a query sees if those are less."""
        context = min(n, self.layout.context)
        sinks = min(self.layout.sinks, context - 1)
        exact = RingLayout.of(self.pipe.model.config, context, sinks, self.layout.overflow, chunk=1)
        return ring_bytes(self.pipe.backend, exact, self.pipe.kv_dtype)


class Again(Run):
    """Nothing is kept: the last token needs all n computed."""

    def __init__(self, pipe: Pipeline, longest: int) -> None:
        super().__init__(pipe, whole_layout(pipe, longest))
        self.ring = pipe.new_ring(self.layout)

    def seconds(self, n: int) -> float:
        ids = some_ids(self.pipe, n, seed=0)
        return self.timed(lambda: prefill(self.pipe, [self.ring], ids), before=lambda: self.ring.rewind(0))

    def multiplications(self, n: int) -> int:
        return self.counter.step(1, 0, n, 1).multiply_adds

    def kv_bytes(self, n: int) -> None:
        return None
