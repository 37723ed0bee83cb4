"""Whether this machine has what the backend needs, asked in the order of what costs least; and the GPU of a number."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec

from ringlet.core.backend import Missing
from ringlet.core.errors import RingletError
from ringlet.plugins.backends.cuda.device import Device
from ringlet.plugins.backends.cuda.driver import NO_DEVICE, DriverError, find_library, open_driver
from ringlet.plugins.backends.cuda.shapes import SIMULATED

OLDEST_CAPABILITY = (7, 5)
COMPILER = "numba_cuda"
CUDA_13 = 13000  # as the driver counts versions


@cache
def missing() -> Missing | None:
    """What is missing for the backend: the driver, a GPU, or the extra that compiles kernels."""
    if SIMULATED:
        return None
    if find_library() is None:
        return Missing(
            "NVIDIA's driver is missing, or there is no NVIDIA GPU: install the driver, or take --backend cpu"
        )
    try:
        driver = open_driver()
        count, version = driver.number("cuDeviceGetCount"), driver.number("cuDriverGetVersion")
    except DriverError as error:
        if error.code == NO_DEVICE:
            return Missing("the driver finds no GPU: see what nvidia-smi says, and CUDA_VISIBLE_DEVICES")
        return Missing(f"the driver does not start ({error}): see what nvidia-smi says", is_near=True)
    if count == 0:
        return Missing("the driver finds no GPU: see what nvidia-smi says, and CUDA_VISIBLE_DEVICES")
    if find_spec(COMPILER) is None:
        extra = "cuda" if version >= CUDA_13 else "cuda12"
        return Missing(
            f"numba-cuda is missing, which compiles the kernels: pip install 'ringlet[{extra}]'", is_near=True
        )
    return None


def open_device(number: int) -> Device:
    """The GPU of that number; the simulator's where NUMBA_ENABLE_CUDASIM is set. Raises RingletError for one that is
    not there or too old."""
    if SIMULATED:
        from ringlet.plugins.backends.cuda.simulated import SimulatedDevice

        if number != 0:
            raise RingletError(f"device is {number}: the simulator has one GPU, 0")
        return SimulatedDevice()
    lack = missing()
    if lack is not None:
        raise RingletError(f"backend cuda: {lack.text}")
    from ringlet.plugins.backends.cuda.gpu import Gpu

    driver = open_driver()
    count = driver.number("cuDeviceGetCount")
    if not 0 <= number < count:
        names = ", ".join(f"{index} ({name_of(index)})" for index in range(count))
        raise RingletError(f"device is {number}: this machine has {names}")
    gpu = Gpu(driver, number)
    if gpu.capability < OLDEST_CAPABILITY:
        found, needed = (".".join(map(str, capability)) for capability in (gpu.capability, OLDEST_CAPABILITY))
        raise RingletError(
            f"{gpu.name} has compute capability {found}: {needed} or later is needed; take --backend cpu"
        )
    return gpu


def name_of(number: int) -> str:
    driver = open_driver()
    name = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", name, len(name), driver.number("cuDeviceGet", number))
    return name.value.decode(errors="replace")
