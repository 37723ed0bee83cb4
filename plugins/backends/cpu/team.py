"""Threads that run one compiled function together: the caller is thread 0, the others sleep between steps."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np

Step = Callable[[int, int], object]


class Task(Protocol):
    """What a step works on: `address` is that of its job, `abandoned` an int64 array of one, set when nobody is to wait
    any more. The task holds on to all memory that the job names; a thread that lags behind holds on to the task."""

    address: int
    abandoned: np.ndarray


class Team:
    """Runs `step(thread, address of the job)` on its threads at once; one caller at a time.

    The caller's own run of the step returns when all its work is done, whoever did it. A thread that the system has put
    aside may then still be inside, where it finds nothing left to do; it comes to the next task when it is out.
    """

    def __init__(self, n_threads: int, step: Step) -> None:
        self.n_threads, self._step = n_threads, step
        self._crew: _Crew | None = None
        self._leaving: _Crew | None = None

    def run(self, task: Task) -> None:
        """Returns when the task is done. An interrupt gives it up on all threads and goes on to the caller."""
        if self._leaving is not None:
            self._leaving.join()  # they may still write to rings
            self._leaving = None
        if self._crew is None or self._crew.process != os.getpid():
            self._crew = _Crew(self.n_threads, self._step)
            weakref.finalize(self, self._crew.dismiss).atexit = False
        crew = self._crew
        try:
            crew.start(task)
            self._step(0, task.address)
            if crew.failure is not None:
                raise RuntimeError("a worker thread failed") from crew.failure
        except BaseException:
            self._crew, self._leaving = None, crew
            task.abandoned[0] = 1
            crew.dismiss()
            raise


class _Crew:
    """The worker threads of one process."""

    def __init__(self, n_threads: int, step: Step) -> None:
        self.process, self.failure = os.getpid(), None
        self._workers = [_Worker(self, number, step) for number in range(1, n_threads)]

    failure: BaseException | None

    def start(self, task: Task) -> None:
        """Set all to work."""
        for worker in self._workers:
            worker.start(task)

    def dismiss(self) -> None:
        """Send the threads home once they have done what they are at."""
        if self.process == os.getpid():
            for worker in self._workers:
                worker.dismiss()

    def join(self) -> None:
        if self.process == os.getpid():
            for worker in self._workers:
                worker.thread.join()


class _Worker:
    """One thread; it sleeps while it has no task. It may still be on its way out of a task when the next is there, as
    it needs the interpreter's lock for that, which the caller holds; it then goes on without a sleep."""

    def __init__(self, crew: _Crew, number: int, step: Step) -> None:
        self._number, self._step, self._crew = number, step, weakref.ref(crew)
        self._wake, self._next, self._dismissed = threading.Lock(), deque[Task](maxlen=1), False
        self._wake.acquire()
        self.thread = threading.Thread(target=self._work, name=f"ringlet-{number}", daemon=True)
        self.thread.start()

    def start(self, task: Task) -> None:
        self._next.append(task)  # in place of an older one, which is done without it
        self._rouse()

    def dismiss(self) -> None:
        self._dismissed = True
        self._rouse()

    def _rouse(self) -> None:
        with suppress(RuntimeError):  # awake already
            self._wake.release()

    def _work(self) -> None:
        while True:
            self._wake.acquire()
            while self._next:
                self._run(self._next.pop())
            if self._dismissed:
                return

    def _run(self, task: Task) -> None:
        try:
            self._step(self._number, task.address)
        except BaseException as failure:
            crew = self._crew()
            if crew is not None:
                crew.failure = failure
            task.abandoned[0] = 1


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
