"""The comparison itself: engines take turns at each test, so that what slows the machine for a while slows them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, stdev
from time import perf_counter

import numpy as np
from comparison.engine import Engine
from comparison.ringlet_engine import RingletEngine

from ringlet.core.measurement.benchmark import Settings, SpeedTest, workload

LLAMA = "llama.cpp"


@dataclass
class Comparison:
    """What all repetitions of one test gave: tokens/s of each engine, in turn, and Ringlet's shares of the limit."""

    test: SpeedTest
    speeds: dict[str, list[float]] = field(default_factory=dict)
    shares: list[float] = field(default_factory=list)

    def speed(self, engine: str) -> float:
        return median(self.speeds[engine])

    def spread(self, engine: str) -> float:
        """Standard deviation."""
        return stdev(self.speeds[engine]) if len(self.speeds[engine]) > 1 else 0.0

    def best(self, beginning: str) -> str | None:
        """The fastest engine whose name begins so."""
        return max((name for name in self.speeds if name.startswith(beginning)), key=self.speed, default=None)

    def ratio(self, beginning: str) -> float | None:
        """How many times as fast Ringlet is as the best of those engines: the median over the repetitions."""
        other = self.best(beginning)
        if other is None:
            return None
        pairs = zip(self.speeds[RingletEngine.name], self.speeds[other], strict=True)
        return median(ours / theirs for ours, theirs in pairs)


def compare(
    engines: Sequence[Engine], settings: Settings, d_vocab: int, tell: Callable[[str], None] = lambda text: None
) -> list[Comparison]:
    """All tests with all engines, which are loaded. The first run of each test with each engine does not count."""
    comparisons = [Comparison(test) for depth in settings.depths for test in settings.tests(depth)]
    history, ids = random_ids(d_vocab, max(settings.depths), 0), random_ids(d_vocab, settings.longest, 1)
    for repetition in range(settings.repeat + 1):
        for found in comparisons:
            test = found.test
            for engine in engines:
                tell(f"{repetition} of {settings.repeat}: {test.text}: {engine.name}")
                engine.hold(history[: test.depth], test.batch)
                seconds_at_limit = least_seconds(engine, test) if repetition else None
                began = perf_counter()
                (engine.prefill if test.kind == "pp" else engine.decode)(ids[: test.tokens])
                seconds = perf_counter() - began
                if repetition:
                    found.speeds.setdefault(engine.name, []).append(test.batch * test.tokens / seconds)
                if seconds_at_limit is not None:
                    found.shares.append(seconds_at_limit / seconds)
    return comparisons


def least_seconds(engine: Engine, test: SpeedTest) -> float | None:
    """What the test takes at the machine's limit, as it is now; None for other engines than Ringlet."""
    limits = engine.pipe.backend.machine_limits() if isinstance(engine, RingletEngine) else None
    return None if limits is None else workload(engine.pipe, test, engine.pipe.layout).seconds_at(limits)


def random_ids(d_vocab: int, n: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, d_vocab, n).tolist()
