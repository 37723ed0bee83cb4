"""Runs cases in worker processes and watches over them: whoever dies has crashed, whoever is silent hangs."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from . import worker
from .attempt import Outcome

LONGEST_CASE = 5.0  # seconds of the processor: other work on the machine is no fault of a file
LONGEST_WAIT = 60.0  # seconds by the clock
LONGEST_MAKING = 120.0  # seconds: files of tens of megabytes
LONGEST_START = 600.0  # seconds: the first worker on a machine compiles the cpu backend's kernels
PIECE = 200  # cases that a worker is told at once
CRASH, HANG = "crash", "hang"
BESIDE = {"RUST_BACKTRACE": "0", "MALLOC_ARENA_MAX": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}


@dataclass
class Report:
    """What came of all cases. slow: cases over the limit once, but not when tried again."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, Outcome]] = field(default_factory=list)
    slow: list[int] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)
    seconds: float = 0.0

    def add(self, number: int, outcome: Outcome, seconds: float) -> None:
        self.counts[outcome.kind] += 1
        self.slowest = max(self.slowest, (seconds, number))
        if not outcome.is_good:
            self.findings.append((number, outcome))


def processor_seconds(pid: int) -> float:
    """What a process has used; infinity where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return float("inf")


class Worker:
    """A process of `worker`, and a thread that reads its answers."""

    def __init__(self, seeds: Path, seed: int, with_cpu: bool) -> None:
        package = worker.__package__ or ""
        root = Path(__file__).resolve().parents[len(package.split("."))]
        command = [sys.executable, "-m", f"{package}.worker", str(seeds), str(seed), str(with_cpu)]
        pipe = subprocess.PIPE
        environment = os.environ | BESIDE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=root, env=environment, text=True)
        self._answers: queue.Queue[list | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        if self.answer(LONGEST_START) is None:
            raise RuntimeError("a worker did not start: see above")

    def _read(self) -> None:
        for line in self.process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def tell(self, first: int, count: int) -> None:
        self.process.stdin.write(f"{first} {count}\n")
        self.process.stdin.flush()

    def answer(self, seconds: float) -> list | None:
        """The next answer, None from a process that has died. Raises queue.Empty after so many seconds."""
        return self._answers.get(timeout=seconds)

    def end(self) -> int:
        """Its exit code; negative: the signal that ended it."""
        self.process.stdin.close()
        try:
            return self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Watch:
    """Tries the cases of a seed on one worker at a time; several may be run in threads, with one report."""

    def __init__(self, seeds: Path, seed: int, with_cpu: bool, report: Report) -> None:
        self.seeds, self.seed, self.with_cpu, self.report = seeds, seed, with_cpu, report
        self._worker: Worker | None = None

    def run(self, pieces: Iterable[tuple[int, int]]) -> None:
        for first, count in pieces:
            self.run_piece(first, first + count)
        self._end()

    def run_piece(self, first: int, stop: int) -> None:
        """All cases from the first on; after a death or a silence the rest on a new worker."""
        while first < stop:
            fault = self._answers(first, stop)
            if fault is None:
                return
            number, outcome = fault
            if outcome.kind == HANG and self._answers(number, number + 1) is None:
                self.report.slow.append(number)  # the machine was slow, not the file
            else:
                self.report.add(number, outcome, LONGEST_CASE if outcome.kind == HANG else 0.0)
            first = number + 1

    def _answers(self, first: int, stop: int) -> tuple[int, Outcome] | None:
        """Try these cases; the number and the outcome of one that is never answered, None where all are."""
        tried = self._worker = self._worker or Worker(self.seeds, self.seed, self.with_cpu)
        tried.tell(first, stop - first)
        spent_before = 0.0
        number, began, patience = first, time.perf_counter(), LONGEST_MAKING
        while True:
            try:
                answer = tried.answer(patience)
            except queue.Empty:
                spent = processor_seconds(tried.process.pid) - spent_before
                if spent < LONGEST_CASE and time.perf_counter() - began < LONGEST_WAIT:
                    continue
                tried.process.kill()
                self._end()
                return number, Outcome(HANG, f"no answer after {LONGEST_CASE:g} s")
            if answer is None:
                return number, Outcome(CRASH, f"the process ended with {self._end()}")
            patience = LONGEST_CASE if answer[0] == worker.BEGUN else LONGEST_MAKING
            if answer[0] != worker.ENDED:
                number, began = answer[1], time.perf_counter()
                spent_before = processor_seconds(tried.process.pid)
            else:
                self.report.add(number, Outcome(*answer[2:]), time.perf_counter() - began)
                if number == stop - 1:
                    return None

    def _end(self) -> int:
        ended, self._worker = self._worker, None
        return 0 if ended is None else ended.end()


def run_cases(seeds: Path, seed: int, first: int, count: int, n_workers: int, with_cpu: bool) -> Iterator[Report]:
    """Yields the one report every few seconds, and at the end."""
    report, began = Report(), time.perf_counter()
    pieces = iter([(at, min(PIECE, first + count - at)) for at in range(first, first + count, PIECE)])
    lock = threading.Lock()

    def shared() -> Iterator[tuple[int, int]]:
        while True:
            with lock:
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    watches = [Watch(seeds, seed, with_cpu, report) for _ in range(n_workers)]
    with ThreadPoolExecutor(n_workers) as pool:
        running = [pool.submit(watch.run, shared()) for watch in watches]
        while running:
            done, running = wait(running, timeout=5)
            report.seconds = time.perf_counter() - began
            yield report
            for ended in done:
                ended.result()  # raises what a thread has raised
