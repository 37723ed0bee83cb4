"""What one step works on: its job, and the lists of numbers that the job names, all in one row of memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ringlet.plugins.backends.cpu.records import JOB, WORK_BYTES, WORKS_A_LAYER, WORKS_BESIDE, address

NUMBER = 8  # bytes: every field of a job is an int64
NO_JOB = dict.fromkeys(JOB.names or (), 0)


class StepTask:
    """A step's job, with memory of its own: a thread that lags behind in it reads nothing of a later step's.

    job: numbers for some fields of a records.JOB; the others are 0. lists: int64 for those that name a list. kept: what
    owns the memory that the job's addresses name.
    """

    def __init__(self, job: Mapping[str, int], lists: Mapping[str, list[int]], kept: object) -> None:
        self._kept = kept
        self._work = np.zeros(WORK_BYTES * (WORKS_A_LAYER * job["n_layers"] + WORKS_BESIDE) // NUMBER, np.int64)
        self._memory = np.empty(len(NO_JOB) + 1 + sum(map(len, lists.values())), np.int64)
        self.address = at = address(self._memory)
        fields, numbers = {**NO_JOB, **job, "work": address(self._work)}, [0]
        at += NUMBER * len(fields)
        fields["abandoned"] = at
        for name, values in lists.items():
            fields[name] = at + NUMBER * len(numbers)
            numbers += values
        self._memory[:] = [*fields.values(), *numbers]
        self.abandoned = self._memory[len(fields) : len(fields) + 1]
