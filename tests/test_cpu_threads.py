"""The cpu backend's threads: together, interrupted, forked, and asked by several at once."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from random_models import in_pieces, random_model, tokens

from ringlet.core.ring_cache import RingLayout
from ringlet.plugins.backends.cpu import CpuBackend
from ringlet.plugins.backends.cpu import team as team_module
from ringlet.plugins.backends.cpu.compiling import entry_point
from ringlet.plugins.backends.cpu.memory import load_i64, record_reader
from ringlet.plugins.backends.cpu.records import WORK_BYTES
from ringlet.plugins.backends.cpu.team import Team, usable_cores
from ringlet.plugins.backends.cpu.work import atomic_add, finish, share_count, share_size, take, wait


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("ringlet-")}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


N_PIECES, N_SHARES = 500, 7


class Sums:
    """A task of pieces of work whose shares each add one to a total, and a count of threads that went on too early."""

    def __init__(self) -> None:
        self.abandoned = np.zeros(1, np.int64)
        self.totals, self.wrong = np.zeros(N_PIECES, np.int64), np.zeros(1, np.int64)
        self.work = np.zeros(N_PIECES * WORK_BYTES // 8, np.int64)
        self.address = id(self)
        TASKS[self.address] = self


TASKS: dict[int, Sums] = {}
JOB = np.dtype([("abandoned", "i8")])


@entry_point
def add_up(abandoned, work, totals, wrong):
    job = abandoned_at(abandoned, 0)
    for piece in range(N_PIECES):
        here, total = work + piece * WORK_BYTES, totals + 8 * piece
        while take(here) < N_SHARES:
            atomic_add(total, 1)
            finish(here)
        wait(job, here, N_SHARES)
        if load_i64(total) != N_SHARES:
            atomic_add(wrong, 1)


abandoned_at = record_reader(JOB)


def add_up_task(thread: int, task_address: int) -> None:
    task = TASKS[task_address]
    holder = np.array([task.abandoned.ctypes.data])
    add_up(*(array.ctypes.data for array in (holder, task.work, task.totals, task.wrong)))


def test_the_same_bits_on_any_number_of_threads() -> None:
    config, weights = random_model(d_model=70, d_ff=130)
    ids, layout = tokens(30, config), RingLayout.of(config, 40, chunk=17)
    results = []
    for threads in (1, 2, 3, 8):
        backend = CpuBackend(config, weights, threads)
        results.append(in_pieces(backend, backend.new_ring(layout, "f16"), ids, [17, 1]))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_several_python_threads_may_ask_at_once() -> None:
    config, weights = random_model()
    backend, layout = CpuBackend(config, weights, 2), RingLayout.of(config, 300, chunk=250)
    sequences = [tokens(200, config, seed) for seed in range(4)]
    expected = [in_pieces(backend, backend.new_ring(layout, "f32"), ids, [50]) for ids in sequences]
    found: list = [None] * 4

    def ask(index: int) -> None:
        found[index] = in_pieces(backend, backend.new_ring(layout, "f32"), sequences[index], [1])

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_threads_go_when_the_backend_does() -> None:
    others = workers()
    config, weights = random_model()
    backend = CpuBackend(config, weights, 4)
    in_pieces(backend, backend.new_ring(RingLayout.of(config, 8, chunk=2), "f32"), [1, 2], [2])
    mine = workers() - others
    assert len(mine) == 3
    del backend
    gc.collect()
    wait_until(lambda: not any(thread.is_alive() for thread in mine))


def test_every_share_is_done_once_and_before_anyone_goes_on() -> None:
    team = Team(3, add_up_task)
    for _ in range(20):
        task = Sums()
        team.run(task)
        assert (task.totals == N_SHARES).all()
        assert task.wrong[0] == 0


def test_a_thread_that_lags_behind_is_not_waited_for() -> None:
    held, entered = threading.Event(), threading.Event()

    def step(thread: int, address: int) -> None:
        if thread == 1 and address == first.address:
            entered.set()
            held.wait(30)
        add_up_task(thread, address)

    team, first, second = Team(2, step), Sums(), Sums()
    team.run(first)
    assert entered.wait(10)
    team.run(second)  # while the worker is still in the first
    assert (second.totals == N_SHARES).all()
    held.set()
    third = Sums()
    team.run(third)
    assert (first.totals == N_SHARES).all()
    assert (third.totals == N_SHARES).all()


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("unit", [1, 32])
@pytest.mark.parametrize("n", [1, 15, 32, 33, 500])
def test_shares_are_whole_units(n: int, unit: int, n_threads: int) -> None:
    size = share_size.py_func(n, unit, n_threads)
    count = share_count.py_func(n, size)
    assert (count - 1) * size < n <= count * size
    assert count == 1 if n_threads == 1 else size % unit == 0
    assert n_threads == 1 or count <= 4 * n_threads


def test_a_worker_that_fails_does_not_hang_the_others() -> None:
    def step(thread: int, address: int) -> None:
        if thread == 1 and address == broken.address:
            take_one(TASKS[address].work.ctypes.data)
            raise MemoryError("no more")
        if address == broken.address:
            wait_until(lambda: TASKS[address].work[0] > 0)
        add_up_task(thread, address)

    team, broken = Team(3, step), Sums()
    with pytest.raises(RuntimeError, match="a worker thread failed"):
        team.run(broken)
    whole = Sums()
    team.run(whole)
    assert (whole.totals == N_SHARES).all()


@entry_point
def take_one(work):
    return take(work)


def test_an_interrupted_caller_does_not_leave_workers_waiting() -> None:
    interrupted: set[int] = set()

    def step(thread: int, address: int) -> None:
        if thread == 0 and address in interrupted:
            raise KeyboardInterrupt
        add_up_task(thread, address)

    before, team = workers(), Team(3, step)
    for fails in (True, False, True, True, False):
        task = Sums()
        if fails:
            interrupted.add(task.address)
            with pytest.raises(KeyboardInterrupt):
                team.run(task)
        else:
            team.run(task)
            assert (task.totals == N_SHARES).all()
    wait_until(lambda: len(workers() - before) <= 2)


@pytest.mark.skipif(sys.platform == "win32", reason="a signal to a process of one's own ends it on Windows")
def test_generation_goes_on_after_interrupts() -> None:
    config, weights = random_model()
    backend, layout, ids = CpuBackend(config, weights, 2), RingLayout.of(config, 300, chunk=250), tokens(250, config)
    expected = in_pieces(backend, backend.new_ring(layout, "f32"), ids, [250])

    def generate_until_interrupted(timer: threading.Timer) -> None:
        timer.start()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            in_pieces(backend, backend.new_ring(layout, "f32"), ids, [50])

    for delay in np.linspace(0, 0.01, 12):
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            generate_until_interrupted(timer)
        timer.join()
        np.testing.assert_array_equal(in_pieces(backend, backend.new_ring(layout, "f32"), ids, [250]), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is what is tested
def test_a_forked_child_makes_threads_of_its_own() -> None:
    config, weights = random_model()
    backend, layout, ids = CpuBackend(config, weights, 3), RingLayout.of(config, 40, chunk=20), tokens(20, config)
    expected = in_pieces(backend, backend.new_ring(layout, "f32"), ids, [20])
    with backend._lock:  # as if another thread were in a step
        child = os.fork()
        if child == 0:
            found = in_pieces(backend, backend.new_ring(layout, "f32"), ids, [1])
            os._exit(0 if np.array_equal(found, expected) else 1)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    assert ended[1] == 0
    np.testing.assert_array_equal(in_pieces(backend, backend.new_ring(layout, "f32"), ids, [20]), expected)


def test_usable_cores_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    siblings = {0: "0,2", 2: "0,2", 1: "1,3", 3: "1,3"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    monkeypatch.setattr(team_module, "_read", lambda path: siblings[int(path.split("/cpu")[-1].split("/")[0])])
    assert usable_cores() == 2
    monkeypatch.setattr(team_module, "_read", lambda path: None)
    assert usable_cores() == 3


def test_the_plugin_is_listed_without_importing_numba() -> None:
    code = "import sys, ringlet.plugins.backends.cpu; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=False).returncode == 0
