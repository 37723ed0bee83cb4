"""The GPU of Numba's simulator: kernels run as Python, in host memory. Slow, and needs no GPU."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringlet.plugins.backends.cuda import host_pointers, simulator_blocks
from ringlet.plugins.backends.cuda.device import Device, Grid

Launch = tuple[str, Grid, tuple[int | float, ...]]


class SimulatedDevice(Device):
    """launches: names of all kernels launched so far, for tests."""

    name = "Numba's CUDA simulator"
    capability = (9, 0)
    multiprocessors = 2

    def __init__(self, memory: int = 1 << 34) -> None:
        from ringlet.plugins.backends.cuda.kernels.catalogue import kernel_named  # imports Numba

        self._kernel_named, self._left, self._sizes = kernel_named, memory, dict[int, int]()
        self._recording: list[Launch] | None = None
        self.launches: list[str] = []
        simulator_blocks.install()

    def make_current(self) -> None:
        pass

    def allocate(self, n_bytes: int) -> int:
        if n_bytes > self._left:
            raise MemoryError
        address = host_pointers.allocate(n_bytes)
        self._sizes[address] = n_bytes
        self._left -= n_bytes
        return address

    def free(self, address: int) -> None:
        self._left += self._sizes.pop(address)
        host_pointers.free(address)

    def free_bytes(self) -> int:
        return self._left

    def host_array(self, n_bytes: int) -> np.ndarray:
        return np.zeros(n_bytes, np.uint8)

    def upload(self, source: np.ndarray, address: int) -> None:
        self._no_recording("upload")
        values = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        host_pointers.memory_at(address)[: len(values)] = values

    def download(self, address: int, target: np.ndarray) -> None:
        self._no_recording("download")
        target[:] = host_pointers.memory_at(address)[: len(target)]

    def copy(self, source: int, target: int, n_bytes: int) -> None:
        self._no_recording("copy")
        host_pointers.memory_at(target)[:n_bytes] = host_pointers.memory_at(source)[:n_bytes]

    def prepare(self, names: Sequence[str]) -> None:
        for name in names:
            self._kernel_named(name)

    def launch(self, name: str, grid: Grid, arguments: Sequence[int | float]) -> None:
        if self._recording is not None:
            self._recording.append((name, grid, tuple(arguments)))
            return
        from numba import cuda

        kernel = self._kernel_named(name)
        if len(arguments) != len(kernel.kinds):
            raise TypeError(f"{name} takes {len(kernel.kinds)} arguments, not {len(arguments)}")
        self.launches.append(name)
        values = [argument_of(kind, value) for kind, value in zip(kernel.kinds, arguments, strict=True)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # overflow and NaN are as they are on a GPU
            cuda.jit(kernel.function)[grid, kernel.threads](*values)

    def record(self, work: Callable[[], None]) -> list[Launch]:
        recorded: list[Launch] = []
        self._recording = recorded
        try:
            work()
        finally:
            self._recording = None
        return recorded

    def replay(self, graph: list[Launch]) -> None:
        for name, grid, arguments in graph:
            self.launch(name, grid, arguments)

    def synchronise(self) -> None:
        self._no_recording("synchronise")

    def seconds(self, work: Callable[[], None]) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def _no_recording(self, what: str) -> None:
        if self._recording is not None:
            raise RuntimeError(f"{what} while a graph is recorded")


def argument_of(kind: str, value: int | float) -> Any:
    """What a kernel is given for an argument of a kind."""
    if kind in host_pointers.DTYPES:
        return host_pointers.pointer_at(int(value), kind)
    return np.float32(value) if kind == "Float" else int(value)
