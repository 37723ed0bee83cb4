"""How fast a backend computes prompts and generates tokens, in the manner of llama-bench, and how near to the
machine's limit that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median, stdev
from time import perf_counter

import numpy as np

from ringlet.core.backend_calls import copy_ring, machine_limits, ring_bytes
from ringlet.core.checks import check_count
from ringlet.core.errors import RingletError
from ringlet.core.generation.loop import CHUNKS_A_STEP
from ringlet.core.measurement.workload import StepCounter, Workload
from ringlet.core.pipeline import Pipeline
from ringlet.core.ring_cache import RingCache, RingLayout
from ringlet.core.step import run_step

LARGEST_BATCH = 1024

Progress = Callable[[str], None]


@dataclass(frozen=True)
class SpeedTest:
    """`batch` sequences that hold `depth` tokens each take `tokens` more: a prompt at once, or one after the other."""

    kind: str  # "pp": prompt processing; "tg": text generation
    tokens: int
    depth: int
    batch: int

    @property
    def name(self) -> str:
        return f"{self.kind}{self.tokens}"

    @property
    def text(self) -> str:
        """What progress calls it."""
        return f"{self.name}, depth {self.depth}, batch {self.batch}"


@dataclass(frozen=True)
class Settings:
    """Which tests to run, each `repeat` times. prompt, generate: tokens of a test; 0 leaves it out."""

    prompt: int = 512
    generate: int = 64
    depths: tuple[int, ...] = (0,)
    batches: tuple[int, ...] = (1,)
    repeat: int = 5

    def __post_init__(self) -> None:
        check_count("--prompt", self.prompt)
        check_count("--generate", self.generate)
        check_count("--repeat", self.repeat, minimum=1)
        if not self.prompt and not self.generate:
            raise RingletError("--prompt and --generate are both 0: nothing is left to measure")
        if not all(batch <= LARGEST_BATCH for batch in self.batches):
            raise RingletError(f"--batch is {max(self.batches)}: from 1 to {LARGEST_BATCH} sequences are possible")

    @property
    def longest(self) -> int:
        """Tokens of the longer test."""
        return max(self.prompt, self.generate)

    def tests(self, depth: int) -> list[SpeedTest]:
        """The tests at a depth."""
        lengths = (("pp", self.prompt), ("tg", self.generate))
        return [SpeedTest(kind, n, depth, batch) for batch in self.batches for kind, n in lengths if n]


@dataclass(frozen=True)
class Result:
    """What the repetitions of a test gave.

    speeds: tokens/s of all sequences together, one a repetition. shares: of the machine's limit, measured just before
    the repetition; empty where the backend cannot say. Integer products may pass the limit, which is that of float32.
    """

    test: SpeedTest
    speeds: tuple[float, ...]
    shares: tuple[float, ...]

    @property
    def tokens_per_second(self) -> float:
        return median(self.speeds)

    @property
    def spread(self) -> float:
        """Standard deviation of the speeds."""
        return stdev(self.speeds) if len(self.speeds) > 1 else 0.0

    @property
    def share_of_limit(self) -> float | None:
        return median(self.shares) if self.shares else None


def whole_numbers(option: str, text: str, minimum: int) -> tuple[int, ...]:
    """The numbers of a list such as "0,1024,4096", each once. Raises RingletError, naming the option."""
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise RingletError(f"{option} is {text!r}: whole numbers with commas between are needed") from None
    for number in numbers:
        check_count(option, number, minimum)
    return numbers


def run_benchmark(pipe: Pipeline, settings: Settings, progress: Progress = lambda text: None) -> Iterator[Result]:
    """A result for each test, depth by depth; the context is what a depth's longest test needs.

    progress: is told what is being done. Raises RingletError for a depth that the model cannot reach.
    """
    for depth in settings.depths:
        context = depth + settings.longest
        check_reach(pipe, context)
        layout = RingLayout.of(pipe.model.config, context, chunk=min(pipe.layout.chunk, context))
        progress(f"depth {depth}: filling the ring")
        ring, *others = rings_at(pipe, layout, depth, max(settings.batches))
        for test in settings.tests(depth):
            yield run_test(pipe, test, [ring, *others][: test.batch], settings.repeat, progress)


def check_reach(pipe: Pipeline, context: int) -> None:
    config = pipe.model.config
    if config.learned_positions and context > config.context_length:
        raise RingletError(
            f"a test needs {context} positions and {pipe.model.name} has learned {config.context_length}: "
            "choose a smaller --depth, --prompt or --generate"
        )


def run_test(pipe: Pipeline, test: SpeedTest, rings: Sequence[RingCache], repeat: int, progress: Progress) -> Result:
    """Measure a test after one run that does not count. The rings hold test.depth tokens before and after."""
    compute = prefill if test.kind == "pp" else decode
    ids = some_ids(pipe, test.tokens, seed=1)
    work = workload(pipe, test, rings[0].layout)
    speeds, shares = [], []
    for repetition in range(repeat + 1):
        progress(f"{test.text}: {repetition} of {repeat}")
        limits = machine_limits(pipe.backend) if repetition else None
        began = perf_counter()
        compute(pipe, rings, ids)
        seconds = perf_counter() - began
        for ring in rings:
            return_to(pipe, ring, test.depth)
        if repetition:
            speeds.append(test.batch * test.tokens / seconds)
        if limits is not None:
            shares.append(work.seconds_at(limits) / seconds)
    return Result(test, tuple(speeds), tuple(shares))


def workload(pipe: Pipeline, test: SpeedTest, layout: RingLayout) -> Workload:
    """What the test reads and multiplies in all."""
    counter = StepCounter(
        pipe.model.config, pipe.model.weights, layout, ring_bytes(pipe.backend, layout, pipe.kv_dtype)
    )
    end, total = test.depth + test.tokens, Workload()
    if test.kind == "tg":
        for position in range(test.depth, end):
            total += counter.step(test.batch, position, position + 1, test.batch)
        return total
    for first in range(0, test.batch, CHUNKS_A_STEP):
        sequences = min(CHUNKS_A_STEP, test.batch - first)
        for start in range(test.depth, end, layout.chunk):
            stop = min(start + layout.chunk, end)
            total += counter.step(sequences, start, stop, sequences if stop == end else 0)
    return total


def prefill(pipe: Pipeline, rings: Sequence[RingCache], ids: Sequence[int]) -> None:
    """Each ring takes the ids, in chunks, and the logits after the last one are computed."""
    chunk = rings[0].layout.chunk
    for first in range(0, len(rings), CHUNKS_A_STEP):
        for at in range(0, len(ids), chunk):
            wants = "last" if at + chunk >= len(ids) else "none"
            together = rings[first : first + CHUNKS_A_STEP]
            run_step(pipe.backend, [(ring, ids[at : at + chunk], wants) for ring in together])


def decode(pipe: Pipeline, rings: Sequence[RingCache], ids: Sequence[int]) -> None:
    """All rings take the ids one by one, and the logits after each are computed."""
    for token_id in ids:
        run_step(pipe.backend, [(ring, [token_id], "last") for ring in rings])


def rings_at(pipe: Pipeline, layout: RingLayout, depth: int, n: int) -> list[RingCache]:
    """n rings of their own memory that hold the same `depth` tokens."""
    ring = pipe.new_ring(layout)
    return_to(pipe, ring, depth)
    return [ring, *(copy_ring(pipe.backend, ring) for _ in range(n - 1))]


def return_to(pipe: Pipeline, ring: RingCache, depth: int) -> None:
    """Have the ring hold the first `depth` tokens; computed again where it cannot be rewound."""
    if ring.length:
        ring.rewind(depth)
    missing = some_ids(pipe, depth, seed=0)[ring.length :]
    if missing:
        prefill(pipe, [ring], missing)


def some_ids(pipe: Pipeline, n: int, seed: int) -> list[int]:
    """Random token ids, always the same: what they are does not matter to the speed."""
    return np.random.default_rng(seed).integers(0, pipe.model.config.d_vocab, n).tolist()
