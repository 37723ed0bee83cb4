"""Mutated model files are run or refused in one line, and the watch over them sees what else may happen."""

from __future__ import annotations

import pickle
import queue
from pathlib import Path
from random import Random

import pytest
from fuzzing import attempt, watch
from fuzzing.attempt import Outcome, judged
from fuzzing.cases import FIRST_LARGE, make_case
from fuzzing.interesting import JSON_VALUES
from fuzzing.json_values import value_of_json
from fuzzing.memory_limit import IS_WATCHED, memory_for
from fuzzing.seeds import SeedModel, make_seeds
from fuzzing.watch import Report, Watch, run_cases

from ringlet.core.errors import FormatError


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[SeedModel]:
    return make_seeds(tmp_path_factory.mktemp("seeds"))


@pytest.fixture(scope="module")
def seeds(models: list[SeedModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pickle") / "seeds"
    path.write_bytes(pickle.dumps(models))
    return path


def run(seeds: Path, seed: int, first: int, count: int, with_cpu: bool) -> Report:
    *_, report = run_cases(seeds, seed, first, count, n_workers=1, with_cpu=with_cpu)
    assert report.counts.total() == count
    return report


def test_a_few_hundred_files(seeds: Path) -> None:
    report = run(seeds, seed=1, first=0, count=500, with_cpu=False)
    assert report.findings == []
    assert min(report.counts["ran"], report.counts["refused"]) > 50


@pytest.mark.slow
def test_thousands_of_files_on_both_backends(seeds: Path) -> None:
    assert run(seeds, seed=2, first=0, count=10_000, with_cpu=True).findings == []


@pytest.mark.slow
def test_files_of_tens_of_megabytes(seeds: Path) -> None:
    assert run(seeds, seed=3, first=FIRST_LARGE, count=60, with_cpu=False).findings == []


def test_a_case_is_the_same_whenever_it_is_made(models: list[SeedModel]) -> None:
    cases = [make_case(1, number, models) for number in range(100)]
    assert [make_case(1, number, models) for number in range(100)] == cases
    assert len({case.content for case in cases}) > 90
    assert make_case(2, 0, models).content != cases[0].content


def test_no_case_changes_the_values_of_the_next() -> None:
    before = repr(JSON_VALUES)
    for number in range(3000):  # one value laid into itself, once in tens of thousands of files, ended a whole run
        value_of_json(Random(number), b'{"a": {}, "b": [], "c": 1}')
    assert repr(JSON_VALUES) == before


def test_what_is_judged_a_fault() -> None:
    def raises(error: BaseException) -> Outcome:
        def call() -> None:
            raise error

        return judged(call)

    assert judged(lambda: None).kind == "ran"
    assert raises(FormatError("model.gguf: cut short")).kind == "refused"
    assert raises(FormatError("two\nlines")).kind == "message"
    assert raises(FormatError("\x1b[31mred")).kind == "message"
    assert raises(FormatError("long" * 1000)).kind == "message"
    assert raises(IndexError("list index out of range")).kind == "traceback"
    assert raises(SystemExit(1)).kind == "traceback"


@pytest.mark.skipif(not IS_WATCHED, reason="this system does not limit a process's memory")
def test_memory_beyond_a_file_s_size_is_seen_behind_a_line() -> None:
    beyond = 600 * 1000 * 1000  # and more than earlier tests may have left to be given back

    def hides_it() -> None:
        try:
            bytearray(beyond)
        except MemoryError:
            raise FormatError("there is too little memory") from None

    with memory_for(1000):
        assert judged(lambda: bytearray(200 * 1000 * 1000)).kind == "ran"
        assert judged(lambda: bytearray(beyond)).kind == attempt.MEMORY
        assert judged(hides_it).kind == attempt.MEMORY
    assert judged(hides_it).kind == "ran"


class PlannedWorker:
    """Instead of a process. plan: what it does at each case, "ran", "dies" or "hangs", a list shared by all."""

    def __init__(self, plan: dict[int, list[str]]) -> None:
        self.plan, self.answers = plan, iter(())
        self.process, self.pid = self, -1

    def tell(self, first: int, count: int) -> None:
        self.answers = (answer for number in range(first, first + count) for answer in self.answers_to(number))

    def answers_to(self, number: int) -> list:
        what = self.plan[number].pop(0) if self.plan.get(number) else "ran"
        return [["making", number], ["begun", number], ["ended", number, "ran", ""] if what == "ran" else what]

    def answer(self, seconds: float) -> list | None:
        answer = next(self.answers)
        if answer == "hangs":
            raise queue.Empty
        return None if answer == "dies" else answer

    def kill(self) -> None:
        self.answers = iter(())

    def end(self) -> int:
        return -11


def test_the_watch_goes_on_after_a_death_and_a_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {3: ["dies"], 5: ["hangs", "hangs"], 7: ["hangs", "ran"]}
    monkeypatch.setattr(watch, "Worker", lambda *_: PlannedWorker(plan))
    report = Report()
    Watch(Path("seeds"), 1, False, report).run([(0, 6), (6, 4)])
    assert [(number, outcome.kind) for number, outcome in report.findings] == [(3, "crash"), (5, "hang")]
    assert report.findings[0][1].text == "the process ended with -11"
    assert report.slow == [7]
    assert report.counts == {"ran": 8, "crash": 1, "hang": 1}
