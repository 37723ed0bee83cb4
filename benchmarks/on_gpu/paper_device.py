"""A GPU that has only addresses: it notes what a step would launch, for counting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ringlet.plugins.backends.cuda.device import Device, Grid


class Launch(NamedTuple):
    name: str
    grid: Grid
    arguments: tuple[int | float, ...]


class PaperDevice(Device):
    """launches: all so far; what they would compute stays 0. downloaded: bytes so far."""

    name = "no GPU"
    capability = (9, 0)
    multiprocessors = 132  # of an H100 or H200

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.downloaded = 0
        self._end = 1 << 40

    def allocate(self, n_bytes: int) -> int:
        address, self._end = self._end, self._end + -(-max(1, n_bytes) // 256) * 256
        return address

    def free(self, address: int) -> None:
        pass

    def free_bytes(self) -> int:
        return 1 << 50

    def host_array(self, n_bytes: int) -> np.ndarray:
        return np.zeros(n_bytes, np.uint8)

    def upload(self, source: np.ndarray, address: int) -> None:
        pass

    def download(self, address: int, target: np.ndarray) -> None:
        self.downloaded += target.nbytes

    def copy(self, source: int, target: int, n_bytes: int) -> None:
        pass

    def prepare(self, names: Sequence[str]) -> None:
        pass

    def launch(self, name: str, grid: Grid, arguments: Sequence[int | float]) -> None:
        self.launches.append(Launch(name, grid, tuple(arguments)))

    def record(self, work: Callable[[], None]) -> Any:
        before = len(self.launches)
        work()
        recorded, self.launches[before:] = self.launches[before:], []
        return recorded

    def replay(self, graph: list[Launch]) -> None:
        self.launches += graph

    def synchronise(self) -> None:
        pass

    def seconds(self, work: Callable[[], None]) -> float:
        work()
        return 0.0

    def make_current(self) -> None:
        pass
