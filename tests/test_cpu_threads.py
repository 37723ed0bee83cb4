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
from ringlet.plugins.backends.cpu.barrier import meet
from ringlet.plugins.backends.cpu.compiling import entry_point
from ringlet.plugins.backends.cpu.team import Team, usable_cores


def workers() -> int:
    return sum(thread.name.startswith("ringlet-") for thread in threading.enumerate())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@entry_point
def meet_many_times(barrier, n_threads, times):
    for _ in range(times):
        meet(barrier, n_threads)


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
    gc.collect()
    wait_until(lambda: workers() == 0)
    config, weights = random_model()
    backend = CpuBackend(config, weights, 4)
    in_pieces(backend, backend.new_ring(RingLayout.of(config, 8, chunk=2), "f32"), [1, 2], [2])
    assert workers() == 3
    del backend
    gc.collect()
    wait_until(lambda: workers() == 0)


def test_threads_meet_in_the_same_place_every_time() -> None:
    team = Team(3, lambda thread, job: meet_many_times(job, 3, 3000))
    team.run(team.ready())  # returns only if every meeting has let everyone go


def test_a_worker_that_fails_does_not_hang_the_others() -> None:
    def step(thread: int, job: int) -> None:
        if thread == 1 and job == 1:
            raise MemoryError("no more")
        meet_many_times(barrier, 3, 100)

    team = Team(3, step)
    barrier = team.ready()
    with pytest.raises(RuntimeError, match="a worker thread failed"):
        team.run(1)
    barrier = team.ready()
    team.run(0)


def test_an_interrupted_caller_does_not_leave_workers_waiting() -> None:
    def step(thread: int, job: int) -> None:
        if thread == 0 and job == 1:
            raise KeyboardInterrupt
        meet_many_times(barrier, 3, 100)

    before, team = workers(), Team(3, step)
    for job in (1, 0, 1, 1, 0):
        barrier = team.ready()
        if job:
            with pytest.raises(KeyboardInterrupt):
                team.run(job)
        else:
            team.run(job)
    wait_until(lambda: workers() <= before + 2)


@pytest.mark.skipif(sys.platform == "win32", reason="a signal to a process of one's own ends it on Windows")
def test_generation_goes_on_after_interrupts() -> None:
    config, weights = random_model()
    backend, layout, ids = CpuBackend(config, weights, 2), RingLayout.of(config, 300, chunk=250), tokens(250, config)
    expected = in_pieces(backend, backend.new_ring(layout, "f32"), ids, [250])

    def generate_until_interrupted(timer: threading.Timer) -> None:
        timer.start()
        while True:
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
