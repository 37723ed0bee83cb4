"""The benchmark: which tests it runs, what they compute, how it counts work, what it prints and refuses."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tiny_models import open_tiny
from tiny_pipeline import Recorded, byte_model, pipeline_of

from ringlet.cli import main
from ringlet.core.backend import MachineLimits
from ringlet.core.errors import RingletError
from ringlet.core.host_memory import host_bytes
from ringlet.core.measurement.benchmark import Settings, run_benchmark, whole_numbers
from ringlet.core.measurement.workload import StepCounter
from ringlet.core.pipeline import Pipeline
from ringlet.core.ring_cache import RingLayout
from ringlet.core.terminal.standard_error import passing_lines

KEYS = {
    "test", "depth", "batch", "tokens_per_second", "stdev", "share_of_limit", "model", "backend", "threads", "repeat",
}  # fmt: skip
SMALL = ["--prompt", "8", "--generate", "2", "--repeat", "2"]


class Fixed(Recorded):
    """The numpy backend on a machine whose limits are known, that remembers what its rings held before each step."""

    limits: MachineLimits | None = MachineLimits(1e9, 1e9)

    def __init__(self, *model: object) -> None:
        super().__init__(*model)
        self.held: list[list[int]] = []

    def forward(self, batch):
        self.held.append([ring.length for ring in batch.rings])
        return super().forward(batch)

    def machine_limits(self) -> MachineLimits | None:
        return self.limits


def fixed_pipeline(window: int | None = None, chunk: int = 16) -> Pipeline:
    return pipeline_of(Fixed(*byte_model(window=window)), chunk=chunk)


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments])


def names_of(results: Sequence) -> list[tuple[str, int, int]]:
    return [(result.test.name, result.test.depth, result.test.batch) for result in results]


# --- what is computed ------------------------------------------------------------------------------------------------


def test_a_result_for_each_test_in_order() -> None:
    results = list(run_benchmark(fixed_pipeline(), Settings(4, 2, (0, 5), (1, 3), repeat=2)))
    assert names_of(results) == [
        (name, depth, batch) for depth in (0, 5) for batch in (1, 3) for name in ("pp4", "tg2")
    ]
    for result in results:
        assert len(result.speeds) == len(result.shares) == 2
        assert result.tokens_per_second == pytest.approx(np.median(result.speeds))
        assert result.spread == pytest.approx(np.std(result.speeds, ddof=1))


def test_the_steps_are_those_of_the_engine() -> None:
    pipe = fixed_pipeline(chunk=4)
    list(run_benchmark(pipe, Settings(prompt=6, generate=0, depths=(9,), batches=(6,), repeat=1)))
    filling, four, two = [[4], [4], [1]], [[4] * 4, [2] * 4], [[4] * 2, [2] * 2]
    assert pipe.backend.steps == filling + 2 * (four + two)
    assert pipe.backend.held == [[0], [4], [8]] + 2 * [[9] * 4, [13] * 4, [9] * 2, [13] * 2]


def test_decoding_is_a_token_a_sequence_and_starts_at_the_depth_each_time() -> None:
    pipe = fixed_pipeline()
    list(run_benchmark(pipe, Settings(prompt=0, generate=3, depths=(5,), batches=(2,), repeat=3)))
    assert pipe.backend.steps == [[5], *[[1, 1]] * 3 * 4]
    assert pipe.backend.held == [[0], *[[5, 5], [6, 6], [7, 7]] * 4]


def test_a_ring_that_cannot_be_rewound_is_filled_again() -> None:
    pipe = fixed_pipeline(window=6, chunk=2)
    list(run_benchmark(pipe, Settings(prompt=0, generate=4, depths=(8,), repeat=2)))
    tests = [held for held, lengths in zip(pipe.backend.held, pipe.backend.steps, strict=True) if lengths == [1]]
    assert tests == [[8], [9], [10], [11]] * 3
    assert [0] in pipe.backend.held[1:]


def test_the_context_sizes_itself() -> None:
    pipe = fixed_pipeline()
    assert pipe.layout.context == 256
    (result,) = run_benchmark(pipe, Settings(prompt=0, generate=1, depths=(400,), repeat=1))
    assert result.tokens_per_second > 0


def test_without_limits_there_is_no_share() -> None:
    pipe = fixed_pipeline()
    pipe.backend.limits = None
    (result,) = run_benchmark(pipe, Settings(prompt=2, generate=0, repeat=1))
    assert (result.shares, result.share_of_limit, result.spread) == ((), None, 0.0)


def test_the_share_is_what_the_limit_allows_over_what_was_measured() -> None:
    pipe = fixed_pipeline()
    (result,) = run_benchmark(pipe, Settings(prompt=0, generate=1, repeat=3))
    config, weights = pipe.model.config, pipe.model.weights
    matrices = [matrix for name, matrix in weights.matrices().items() if name != "embedding"]
    n_bytes = sum(matrix.nbytes for matrix in matrices) + 2 * config.n_kv_heads * (config.d_k + config.d_v) * 4
    for speed, share in zip(result.speeds, result.shares, strict=True):
        assert share == pytest.approx(n_bytes / 1e9 * speed, rel=0.02)  # rings are padded to cache lines


# --- how work is counted ---------------------------------------------------------------------------------------------


def naive_multiply_adds(model, layout: RingLayout, positions: range, wanted: int) -> int:
    """Matrix by matrix, query by query, key by key."""
    total = 0
    for layer, ring in zip(model.weights.layers, layout.layers, strict=True):
        for name in ("q", "k", "v", "o", "gate", "up", "down"):
            matrix = getattr(layer, f"W_{name}")
            total += 0 if matrix is None else len(positions) * matrix.shape[0] * matrix.shape[1]
        for position in positions:
            keys = [key for key in range(position + 1) if key > position - ring.capacity]
            total += len(keys) * model.config.n_heads * (model.config.d_k + model.config.d_v)
    return total + wanted * model.config.d_vocab * model.config.d_model


@pytest.mark.parametrize("name", ["gemma3", "gpt2", "llama"])
@pytest.mark.parametrize(("start", "stop", "wanted"), [(0, 1, 1), (0, 40, 0), (37, 41, 2), (60, 61, 1)])
def test_counting(name: str, start: int, stop: int, wanted: int) -> None:
    model = open_tiny(name)
    layout = RingLayout.of(model.config, 64, chunk=40)
    counter = StepCounter(model.config, model.weights, layout, host_bytes(model.config, layout, "f16"))
    work = counter.step(1, start, stop, wanted)
    assert work.multiply_adds == naive_multiply_adds(model, layout, range(start, stop), wanted)
    weights = sum(matrix.nbytes for key, matrix in model.weights.matrices().items() if key.startswith("layers"))
    keys = sum(min(stop, layer.capacity + stop - start - 1) for layer in layout.layers)
    ring = keys * model.config.n_kv_heads * (model.config.d_k + model.config.d_v) * 2
    read = weights + (model.weights.W_t.nbytes if wanted else 0) + ring
    assert work.bytes_read == pytest.approx(read, abs=0.05 * ring)
    assert counter.step(3, start, stop, wanted).bytes_read == pytest.approx(read + 2 * ring, abs=0.15 * ring)


def test_the_longer_of_reading_and_multiplying_counts() -> None:
    model = open_tiny("llama")
    layout = RingLayout.of(model.config, 64, chunk=1)
    counter = StepCounter(model.config, model.weights, layout, host_bytes(model.config, layout, "f32"))
    work = counter.step(1, 0, 1, 1) + counter.step(1, 1, 2, 1)
    assert work.seconds_at(MachineLimits(work.bytes_read / 2, 1e30)) == pytest.approx(2)
    assert work.seconds_at(MachineLimits(1e30, work.multiply_adds / 3)) == pytest.approx(3)


# --- the machine's limits --------------------------------------------------------------------------------------------


def test_limits_of_this_machine() -> None:
    from ringlet.plugins.backends.cpu.limits import machine_limits

    found = machine_limits(2)
    assert 1e8 < found.bytes_per_second < 1e13
    assert 1e8 < found.multiply_adds_per_second < 1e13


def test_the_kernels_do_all_of_the_work_they_are_timed_for() -> None:
    from ringlet.plugins.backends.cpu import limits

    values = np.arange(4096, dtype=np.float32)
    assert limits.read(values.ctypes.data, values.nbytes) == values.sum(dtype=np.float64)
    starts = [np.float32(1 + 0.5 * k) for k in range(-5, 5)]
    expected = limits.LANES * sum(s * 0.5**3 + 1 + 0.5 + 0.25 for s in starts)
    assert limits.multiply_add(3, np.float32(0.5), np.float32(1)) == pytest.approx(expected)
    assert len(starts) == limits.SUMS


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_json(backend: str) -> None:
    done = bench(*SMALL, "--depth", "0,16", "--batch", "1,2", "--threads", "2", "--backend", backend, "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert done.stderr == ""
    assert [(row["test"], row["depth"], row["batch"]) for row in rows] == [
        (name, depth, batch) for depth in (0, 16) for batch in (1, 2) for name in ("pp8", "tg2")
    ]
    for row in rows:
        assert set(row) == KEYS
        assert (row["model"], row["backend"], row["threads"], row["repeat"]) == ("poet (embedded)", backend, 2, 2)
        assert row["tokens_per_second"] > 0
        assert row["stdev"] >= 0
        assert row["share_of_limit"] > 0
        assert math.isfinite(row["share_of_limit"])


def test_a_table() -> None:
    done = bench(*SMALL, "--backend", "numpy", "--threads", "1")
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["TEST", "DEPTH", "BATCH", "TOKENS/S", "±", "OF", "LIMIT"]
    assert [line.split()[:3] for line in lines] == [["pp8", "0", "1"], ["tg2", "0", "1"]]
    assert {len(line) for line in lines} == {len(head)}
    assert all(re.fullmatch(r"\w+ +0 +1 +\d+\.\d +\d+\.\d +\d+%", line) for line in lines)
    assert done.stderr == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for stream, shown in ((Terminal(), f"\r\033[Khalf\r\033[K{'long ' * 7}long\r\033[K"), (io.StringIO(), "")):
        monkeypatch.setattr(sys, "stderr", stream)
        with passing_lines() as tell:
            tell("half")
            tell("long " * 20)
        assert stream.getvalue() == shown
    monkeypatch.setattr(sys, "stderr", None)
    with passing_lines() as tell:
        tell("half")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--depth", "0,x"], "--depth is '0,x': whole numbers with commas between"),
        (["--depth", ""], "--depth is ''"),
        (["--depth", "-1"], "--depth is -1: a whole number from 0"),
        (["--batch", "1,0"], "--batch is 0: a whole number from 1"),
        (["--batch", "1025"], "--batch is 1025: from 1 to 1024"),
        (["--prompt", "-1"], "--prompt is -1"),
        (["--generate", "one"], "--generate: 'one'"),
        (["--prompt", "0", "--generate", "0"], "--prompt and --generate are both 0"),
        (["--repeat", "0"], "--repeat is 0"),
        (["--threads", "0"], "threads is 0"),
        (["--model", "./gone.gguf"], "./gone.gguf: no such file"),
    ],
)
def test_what_bench_refuses(arguments: list[str], message: str) -> None:
    done = bench("--backend", "numpy", *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_positions_that_were_never_learned() -> None:
    model = open_tiny("gpt2")
    pipe = pipeline_of(Fixed(model.config, model.weights), context=model.config.context_length)
    reach = model.config.context_length
    with pytest.raises(RingletError, match=f"a test needs {reach + 1} positions .* learned {reach}"):
        list(run_benchmark(pipe, Settings(prompt=1, depths=(reach,), generate=1)))
    assert list(run_benchmark(pipe, Settings(prompt=1, depths=(reach - 1,), generate=0, repeat=1)))


def test_lists_of_numbers() -> None:
    assert whole_numbers("--depth", "0, 1024,0", 0) == (0, 1024)
