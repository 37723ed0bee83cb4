"""A real GPU behind the driver's library."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int32, c_size_t, c_uint64, c_void_p, create_string_buffer
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringlet.core.errors import RingletError
from ringlet.plugins.backends.cuda import driver as cuda
from ringlet.plugins.backends.cuda.device import Device, Grid
from ringlet.plugins.backends.cuda.driver import HANDLE, Driver, DriverError
from ringlet.plugins.backends.cuda.kernel_cache import KernelFile
from ringlet.plugins.backends.cuda.kernel_files import kernel_files


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel's function on the GPU. kinds: of its arguments."""

    function: HANDLE
    kinds: tuple[str, ...]
    threads: int


class Gpu(Device):
    """The GPU of a number. Raises DriverError where there is none. All work goes through one stream."""

    def __init__(self, driver: Driver, number: int) -> None:
        self._driver, self._kernels = driver, dict[str, LoadedKernel]()
        handle = driver.number("cuDeviceGet", number)
        name = create_string_buffer(256)
        driver.call("cuDeviceGetName", name, len(name), handle)
        self.name = f"{name.value.decode(errors='replace')} (GPU {number})"

        def attribute(which: int) -> int:
            return driver.number("cuDeviceGetAttribute", which, handle)

        self.capability = (attribute(cuda.CAPABILITY_MAJOR), attribute(cuda.CAPABILITY_MINOR))
        self.multiprocessors = attribute(cuda.MULTIPROCESSORS)
        self._context = driver.handle("cuDevicePrimaryCtxRetain", handle)
        self.make_current()
        self._stream = driver.handle("cuStreamCreate", cuda.NON_BLOCKING_STREAM)

    def make_current(self) -> None:
        self._driver.call("cuCtxSetCurrent", self._context)

    def allocate(self, n_bytes: int) -> int:
        address = c_uint64()
        self._driver.call("cuMemAlloc_v2", byref(address), n_bytes)
        self._driver.call("cuMemsetD8Async", address, 0, n_bytes, self._stream)
        return address.value

    def free(self, address: int) -> None:
        self.make_current()  # a finalizer may run in any thread
        self._driver.call("cuMemFree_v2", address)

    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self._driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def host_array(self, n_bytes: int) -> np.ndarray:
        place = c_void_p()
        self._driver.call("cuMemHostAlloc", byref(place), max(1, n_bytes), 0)
        memory = (ctypes.c_uint8 * n_bytes).from_address(place.value or 0)
        weakref.finalize(memory, self._free_host, place).atexit = False
        return np.ctypeslib.as_array(memory)

    def _free_host(self, place: c_void_p) -> None:
        self.make_current()
        self._driver.call("cuMemFreeHost", place)

    def upload(self, source: np.ndarray, address: int) -> None:
        values = np.ascontiguousarray(source)
        self._driver.call("cuMemcpyHtoDAsync_v2", address, values.ctypes.data, values.nbytes, self._stream)

    def download(self, address: int, target: np.ndarray) -> None:
        self._driver.call("cuMemcpyDtoHAsync_v2", target.ctypes.data, address, target.nbytes, self._stream)

    def copy(self, source: int, target: int, n_bytes: int) -> None:
        self._driver.call("cuMemcpyDtoDAsync_v2", target, source, n_bytes, self._stream)

    def prepare(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self._kernels]
        if missing:
            for name, file in kernel_files(missing, self.capability).items():
                self._kernels[name] = self._load(file)

    def _load(self, file: KernelFile) -> LoadedKernel:
        """A module is never unloaded: kernels are few, and serve every model."""
        try:
            module = self._driver.handle("cuModuleLoadData", file.code)
        except DriverError as error:
            if error.code not in cuda.FOREIGN_CODE:
                raise
            raise RingletError(
                f"the driver of {self.name} cannot load kernels of the installed compiler ({error}): update the "
                "driver, or install the extra of its version, cuda12 or cuda13"
            ) from None
        function = self._driver.handle("cuModuleGetFunction", module, file.symbol.encode())
        return LoadedKernel(function, file.kinds, file.threads)

    def launch(self, name: str, grid: Grid, arguments: Sequence[int | float]) -> None:
        if name not in self._kernels:
            self.prepare([name])
        kernel = self._kernels[name]
        values = [argument_of(kind, value) for kind, value in zip(kernel.kinds, arguments, strict=True)]
        places = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self._driver.call("cuLaunchKernel", kernel.function, *grid, kernel.threads, 1, 1, 0, self._stream, places, None)

    def record(self, work: Callable[[], None]) -> Any:
        self._driver.call("cuStreamBeginCapture_v2", self._stream, cuda.THREAD_LOCAL_CAPTURE)
        try:
            work()
        except BaseException:
            self._end_capture()
            raise
        graph = self._end_capture()
        instance = Graph(self, self._driver.handle("cuGraphInstantiateWithFlags", graph, 0))
        self._driver.call("cuGraphDestroy", graph)
        return instance

    def _end_capture(self) -> HANDLE:
        graph = HANDLE()
        self._driver.call("cuStreamEndCapture", self._stream, byref(graph))
        return graph

    def replay(self, graph: Graph) -> None:
        self._driver.call("cuGraphLaunch", graph.handle, self._stream)

    def synchronise(self) -> None:
        self._driver.call("cuStreamSynchronize", self._stream)

    def seconds(self, work: Callable[[], None]) -> float:
        begin, end = (self._driver.handle("cuEventCreate", 0) for _ in range(2))
        self._driver.call("cuEventRecord", begin, self._stream)
        work()
        self._driver.call("cuEventRecord", end, self._stream)
        self._driver.call("cuEventSynchronize", end)
        milliseconds = c_float()
        self._driver.call("cuEventElapsedTime", byref(milliseconds), begin, end)
        for event in (begin, end):
            self._driver.call("cuEventDestroy_v2", event)
        return milliseconds.value / 1000

    def destroy_graph(self, handle: HANDLE) -> None:
        self.make_current()
        self._driver.call("cuGraphExecDestroy", handle)


class Graph:
    """Launches that run again as one; destroyed when nothing refers to it any more."""

    def __init__(self, gpu: Gpu, handle: HANDLE) -> None:
        self.handle = handle
        weakref.finalize(self, gpu.destroy_graph, handle).atexit = False


def argument_of(kind: str, value: int | float) -> Any:
    """A kernel's argument as ctypes keeps it: an address, an int32 or a float32."""
    if kind == "Int":
        return c_int32(int(value))
    return c_float(value) if kind == "Float" else c_uint64(int(value))
