"""Threads that run one compiled function together: the caller is thread 0, the others sleep between steps."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from ringlet.plugins.backends.cpu.records import ABANDONED, BARRIER_BYTES

Step = Callable[[int, int], object]


class Team:
    """Runs `step(thread, job)` on all its threads at once; several Python threads may ask, one after the other.

    `barrier` is the address of the memory in which the step's threads meet; it changes when threads are made anew:
    after a fork, and after a step that was interrupted.
    """

    def __init__(self, n_threads: int, step: Step) -> None:
        self.n_threads, self._step = n_threads, step
        self._crew: _Crew | None = None
        self._leaving: _Crew | None = None

    def ready(self) -> int:
        """Have the threads there, asleep; returns the address of their barrier. The caller holds the backend's lock."""
        if self._leaving is not None:
            self._leaving.join()  # they may still write to rings
            self._leaving = None
        if self._crew is None or self._crew.process != os.getpid():
            self._crew = _Crew(self.n_threads, self._step)
            weakref.finalize(self, self._crew.dismiss).atexit = False
        return self._crew.barrier_address

    def run(self, job: int) -> None:
        """Returns when the step is done. An interrupt gives it up on all threads and goes on to the caller."""
        crew = self._crew
        if crew is None:
            raise RuntimeError("the team is not ready")
        try:
            crew.start(job)
            self._step(0, job)
            if crew.failure is not None:
                raise RuntimeError("a worker thread failed") from crew.failure
        except BaseException:
            self._crew, self._leaving = None, crew
            crew.abandon()
            crew.dismiss()
            raise


class _Crew:
    """The worker threads of one process, with the memory of their barrier."""

    def __init__(self, n_threads: int, step: Step) -> None:
        self.process, self.step, self.job = os.getpid(), step, 0
        self.failure: BaseException | None = None
        self.dismissed = False
        self._memory = np.zeros(BARRIER_BYTES + 64, np.uint8)
        self.barrier_address = self._memory.ctypes.data + -self._memory.ctypes.data % 64
        self._wake = [threading.Lock() for _ in range(1, n_threads)]
        self._threads = []
        for number, wake in enumerate(self._wake, start=1):
            wake.acquire()
            thread = threading.Thread(target=self._work, args=(number, wake), name=f"ringlet-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def start(self, job: int) -> None:
        self.job = job
        for wake in self._wake:
            wake.release()

    def _work(self, number: int, wake: threading.Lock) -> None:
        while True:
            wake.acquire()
            if self.dismissed:
                return
            try:
                self.step(number, self.job)
            except BaseException as failure:
                self.failure = failure
                self.abandon()

    def abandon(self) -> None:
        """Let every thread run through the barriers that are left."""
        ctypes.c_int64.from_address(self.barrier_address + ABANDONED).value = 1

    def dismiss(self) -> None:
        """Send the threads home once they have done what they are at."""
        self.dismissed = True
        if self.process == os.getpid():
            for wake in self._wake:
                with suppress(RuntimeError):  # awake already
                    wake.release()

    def join(self) -> None:
        if self.process == os.getpid():
            for thread in self._threads:
                thread.join()


def usable_cores() -> int:
    """Physical cores that this process may run on; where that cannot be told, its CPUs."""
    if hasattr(os, "sched_getaffinity"):
        cpus = os.sched_getaffinity(0)
        siblings = {_read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in cpus}
        return len(cpus) if None in siblings else len(siblings)
    if sys.platform == "darwin":
        return _mac_cores() or os.cpu_count() or 1
    return os.cpu_count() or 1


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None


def _mac_cores() -> int:
    """Fast cores where there are two kinds, else all; 0 if the system does not say."""
    count, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    for name in (b"hw.perflevel0.physicalcpu", b"hw.physicalcpu"):
        if ctypes.CDLL(None).sysctlbyname(name, ctypes.byref(count), ctypes.byref(size), None, 0) == 0:
            return count.value
    return 0
