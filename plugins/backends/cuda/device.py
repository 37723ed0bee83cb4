"""What the engine asks of a GPU, real or simulated: memory, launches, and steps recorded as graphs."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Grid = tuple[int, int, int]


class Memory:
    """One allocation, freed when nothing refers to it any more. address: on the GPU."""

    def __init__(self, device: Device, n_bytes: int) -> None:
        self.nbytes = n_bytes
        self.address = device.allocate(n_bytes)
        weakref.finalize(self, device.free, self.address).atexit = False  # the process's end frees all


class Device(ABC):
    """One GPU. Copies and launches run in the order in which they are asked for; `synchronise` waits for all of them.

    name: for people. capability: of its instructions, such as (9, 0). multiprocessors: how many there are.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int

    @abstractmethod
    def allocate(self, n_bytes: int) -> int:
        """Address of zeroed memory, a multiple of 256. Raises MemoryError where there is none."""

    @abstractmethod
    def free(self, address: int) -> None: ...

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory that may still be allocated."""

    @abstractmethod
    def host_array(self, n_bytes: int) -> np.ndarray:
        """Host memory, uint8, from and to which copies need not wait."""

    @abstractmethod
    def upload(self, source: np.ndarray, address: int) -> None:
        """From the host. Memory that is not of `host_array` may be changed at once, the other after synchronising."""

    @abstractmethod
    def download(self, address: int, target: np.ndarray) -> None:
        """To memory of `host_array`, which holds it after synchronising."""

    @abstractmethod
    def copy(self, source: int, target: int, n_bytes: int) -> None:
        """Within the GPU's memory."""

    @abstractmethod
    def prepare(self, names: Sequence[str]) -> None:
        """Have the named kernels ready: loaded, and compiled where they are not kept yet."""

    @abstractmethod
    def launch(self, name: str, grid: Grid, arguments: Sequence[int | float]) -> None:
        """Start a kernel. Pointers are addresses; see `kernels` for the arguments' order."""

    @abstractmethod
    def record(self, work: Callable[[], None]) -> Any:
        """A graph of the launches that `work` makes; they do not run."""

    @abstractmethod
    def replay(self, graph: Any) -> None: ...

    @abstractmethod
    def synchronise(self) -> None:
        """Wait; what went wrong since the last time is raised."""

    @abstractmethod
    def seconds(self, work: Callable[[], None]) -> float:
        """How long the GPU takes for what `work` asks of it; waits for it."""

    @abstractmethod
    def make_current(self) -> None:
        """Called by a thread before it works with the device."""
