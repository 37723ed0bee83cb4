"""Runs a block of Numba's CUDA simulator: its threads one after the other, each until it has to wait for others.

Numba's own way starts Python threads anew for each block, and polls them; here they are kept and hand each other the
turn, which is many times faster. Lanes of a warp can wait for each other, too (`exchange`), which Numba's cannot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

WARP = 32


class Meeting:
    """Where some threads wait until the last has come."""

    def __init__(self) -> None:
        self.arrived = self.generation = 0


class Abandoned(Exception):  # noqa: N818 - no fault of its own
    """Another thread of the block has failed."""


class Lane(threading.Thread):
    """One thread of a block. What kernels ask the simulator for, it finds here: threadIdx, blockIdx, syncthreads."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.turn = threading.Lock()
        self.turn.acquire()
        self.block: Any = None
        self.start()

    def prepare(self, block: Block, block_index: Any, thread_index: Any, thread_id: int) -> None:
        self.block, self.blockIdx, self.threadIdx, self.thread_id = block, block_index, thread_index, thread_id
        self.finished, self.calls = False, 0

    def run(self) -> None:
        while True:
            self.turn.acquire()
            try:
                self.block.function(*self.block.arguments)
            except Abandoned:
                pass
            except BaseException as error:
                self.block.fail(error)
            self.finished = True
            self.block.leave(self)

    def syncthreads(self) -> None:
        self.block.meet(self, self.block.everyone, self.block.alive)

    def exchange(self, value: Any, combine: Callable[[list[Any]], Any]) -> Any:
        """combine of what each lane of the warp calls this with, by lane. Every lane of the warp has to call it."""
        warp, lane, call = self.thread_id // WARP, self.thread_id % WARP, self.calls & 1
        values = self.block.values[warp]
        values[lane] = value
        self.calls += 1
        meeting = self.block.warps[warp]
        if meeting.arrived + 1 == len(values):  # once for all; the others may still need the result before
            self.block.results[warp][call] = combine(values)
        self.block.meet(self, meeting, len(values))
        return self.block.results[warp][call]


class Block:
    """Takes the place of the simulator's BlockManager."""

    def __init__(self, function: Callable[..., None], grid: Any, shape: tuple[int, ...], debug: bool) -> None:
        self.function, self.shape = function, shape
        self.error: BaseException | None = None
        self._done, self._idle = threading.Lock(), 0

    def run(self, block_index: tuple[int, ...], *arguments: Any) -> None:
        from numba.cuda.simulator.kernelapi import Dim3

        indices = list(np.ndindex(*reversed(self.shape)))
        self.lanes, self.alive, self.arguments = _lanes(len(indices)), len(indices), arguments
        for number, (lane, index) in enumerate(zip(self.lanes, indices, strict=True)):
            lane.prepare(self, Dim3(*block_index), Dim3(*reversed(index)), number)
        self.everyone = Meeting()
        sizes = [min(WARP, self.alive - start) for start in range(0, self.alive, WARP)]
        self.warps = [Meeting() for _ in sizes]
        self.values = [[None] * size for size in sizes]
        self.results = [[None, None] for _ in sizes]
        self._done.acquire()
        self.lanes[0].turn.release()
        self._done.acquire()
        if self.error is not None:
            raise self.error

    def fail(self, error: BaseException) -> None:
        self.error = self.error or error

    def leave(self, lane: Lane) -> None:
        self.alive -= 1
        if self.everyone.arrived == self.alive:
            self._release(self.everyone)
        if self.alive == 0:
            self._done.release()
        else:
            self._idle = 0
            self._hand_on(lane)

    def meet(self, lane: Lane, meeting: Meeting, expected: int) -> None:
        generation = meeting.generation
        meeting.arrived += 1
        self._idle = 0
        if meeting.arrived == expected:
            self._release(meeting)
            return
        while meeting.generation == generation:
            if self.error is None and self._idle > len(self.lanes):
                self.fail(RuntimeError("threads of a block wait for others that do not come"))
            if self.error is not None:
                raise Abandoned
            self._idle += 1
            self._hand_on(lane)
            lane.turn.acquire()
        self._idle = 0

    @staticmethod
    def _release(meeting: Meeting) -> None:
        meeting.arrived = 0
        meeting.generation += 1

    def _hand_on(self, lane: Lane) -> None:
        """Give the turn to the next thread that has not finished; it may be the same."""
        number = lane.thread_id
        while True:
            number = (number + 1) % len(self.lanes)
            if not self.lanes[number].finished:
                self.lanes[number].turn.release()
                return


_kept: list[Lane] = []


def _lanes(n: int) -> list[Lane]:
    while len(_kept) < n:
        _kept.append(Lane())
    return _kept[:n]


def install() -> None:
    """Have the simulator run its blocks so."""
    from numba.cuda.simulator import kernel

    kernel.BlockManager = Block
