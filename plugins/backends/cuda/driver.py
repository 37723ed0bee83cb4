"""NVIDIA's driver library, called through ctypes: the few functions that the backend needs, each checked.

It comes with the GPU's driver, so a start that finds its kernels in the cache needs no other package. Names and
arguments are those of the CUDA driver API; a suffix is the version in which a function took its present form.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

LIBRARIES = {"win32": ("nvcuda.dll",), "linux": ("libcuda.so.1", "libcuda.so")}
POINTER_64 = c_uint64
HANDLE = c_void_p

FUNCTIONS: dict[str, tuple[type, ...] | tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(HANDLE), c_int),
    "cuCtxSetCurrent": (HANDLE,),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(POINTER_64), c_size_t),
    "cuMemFree_v2": (POINTER_64,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (POINTER_64, c_void_p, c_size_t, HANDLE),
    "cuMemcpyDtoHAsync_v2": (c_void_p, POINTER_64, c_size_t, HANDLE),
    "cuMemcpyDtoDAsync_v2": (POINTER_64, POINTER_64, c_size_t, HANDLE),
    "cuMemsetD8Async": (POINTER_64, ctypes.c_ubyte, c_size_t, HANDLE),
    "cuStreamCreate": (POINTER(HANDLE), c_uint),
    "cuStreamSynchronize": (HANDLE,),
    "cuStreamBeginCapture_v2": (HANDLE, c_int),
    "cuStreamEndCapture": (HANDLE, POINTER(HANDLE)),
    "cuGraphInstantiateWithFlags": (POINTER(HANDLE), HANDLE, c_uint64),
    "cuGraphLaunch": (HANDLE, HANDLE),
    "cuGraphDestroy": (HANDLE,),
    "cuGraphExecDestroy": (HANDLE,),
    "cuModuleLoadData": (POINTER(HANDLE), c_void_p),
    "cuModuleGetFunction": (POINTER(HANDLE), HANDLE, c_char_p),
    "cuLaunchKernel": (HANDLE, *(c_uint,) * 7, HANDLE, POINTER(c_void_p), POINTER(c_void_p)),
    "cuEventCreate": (POINTER(HANDLE), c_uint),
    "cuEventRecord": (HANDLE, HANDLE),
    "cuEventSynchronize": (HANDLE,),
    "cuEventDestroy_v2": (HANDLE,),
    "cuEventElapsedTime": (POINTER(ctypes.c_float), HANDLE, HANDLE),
}

# Values of CUresult and CUdevice_attribute
OUT_OF_MEMORY, NO_DEVICE, INVALID_DEVICE = 2, 100, 101
FOREIGN_CODE = (200, 209, 218, 222)  # an image, architecture, PTX or version of PTX that the driver does not know
MULTIPROCESSORS, CAPABILITY_MAJOR, CAPABILITY_MINOR = 16, 75, 76
MEMORY_CLOCK_KHZ, MEMORY_BUS_BITS = 36, 37
NON_BLOCKING_STREAM = 1
THREAD_LOCAL_CAPTURE = 1  # other threads may go on calling what a capture forbids


class DriverError(RuntimeError):
    """A call that failed. code: the CUresult."""

    def __init__(self, function: str, code: int, name: str) -> None:
        super().__init__(f"{function}: {name} ({code})")
        self.code = code


class Driver:
    """call("cuInit", 0): the function of that name; raises DriverError where it does not return success."""

    def __init__(self, library: Any) -> None:
        self._library = library
        for name, arguments in FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int
        library.cuGetErrorName.argtypes, library.cuGetErrorName.restype = (c_int, POINTER(c_char_p)), c_int

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            if code == OUT_OF_MEMORY:
                raise MemoryError(name)
            raise DriverError(name, code, self._name_of(code))

    def number(self, name: str, *arguments: Any) -> int:
        """What a function writes into its first argument, an int."""
        value = c_int()
        self.call(name, byref(value), *arguments)
        return value.value

    def handle(self, name: str, *arguments: Any) -> HANDLE:
        """What a function writes into its first argument, a handle."""
        value = HANDLE()
        self.call(name, byref(value), *arguments)
        return value

    def _name_of(self, code: int) -> str:
        text = c_char_p()
        self._library.cuGetErrorName(code, byref(text))
        return (text.value or b"an unknown error").decode()


@cache
def find_library() -> Any:
    """The driver's library, or None where there is none; takes no time worth mentioning."""
    for name in LIBRARIES.get(sys.platform, ()):
        try:
            return ctypes.CDLL(name) if sys.platform != "win32" else ctypes.WinDLL(name)  # type: ignore[attr-defined]
        except OSError:
            continue
    return None


@cache
def open_driver() -> Driver:
    """The driver, initialised. Raises OSError where there is no library, DriverError where it finds no GPU."""
    library = find_library()
    if library is None:
        raise OSError("no driver library")
    driver = Driver(library)
    driver.call("cuInit", 0)
    return driver
