"""What the cuda backend asks of NVIDIA's driver, by one that only takes notes, and what it says where it is missing."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from random_models import random_model, tokens

from ringlet.core.errors import RingletError
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step, run_step_for_likeliest
from ringlet.plugins.backends.cuda import availability, gpu
from ringlet.plugins.backends.cuda import driver as cuda
from ringlet.plugins.backends.cuda.backend import CudaBackend
from ringlet.plugins.backends.cuda.driver import FUNCTIONS, Driver, DriverError
from ringlet.plugins.backends.cuda.kernel_cache import KernelFile

ATTRIBUTES = {cuda.CAPABILITY_MAJOR: 9, cuda.CAPABILITY_MINOR: 0, cuda.MULTIPROCESSORS: 132}
NUMBERS = {"cuDeviceGetCount": 2, "cuDriverGetVersion": 13_000, "cuDeviceGet": 0}


class PaperDriver(Driver):
    """calls: their names, each with arguments that ctypes takes. Addresses are made up, the host's memory is real."""

    def __init__(self, attributes: dict[int, int] = ATTRIBUTES, numbers: dict[str, int] = NUMBERS) -> None:
        self.calls: list[str] = []
        self._attributes, self._numbers, self._end, self._kept = attributes, numbers, 1 << 40, list[Any]()

    def call(self, name: str, *arguments: Any) -> None:
        for kind, argument in zip(FUNCTIONS[name], arguments, strict=True):
            kind.from_param(argument)
        self.calls.append(name)
        target = getattr(arguments[0], "_obj", None) if arguments else None
        if name == "cuMemAlloc_v2":
            target.value, self._end = self._end, self._end + -(-arguments[1] // 256) * 256
        elif name == "cuMemHostAlloc":
            self._kept.append(ctypes.create_string_buffer(arguments[1]))
            target.value = ctypes.addressof(self._kept[-1])
        elif name == "cuMemGetInfo_v2":
            target.value = 1 << 40
        elif name == "cuDeviceGetAttribute":
            target.value = self._attributes[arguments[1]]
        elif name in self._numbers:
            target.value = self._numbers[name]
        elif name == "cuDeviceGetName":
            arguments[0].value = b"A GPU of paper"


def named_files(names: list[str], capability: tuple[int, int]) -> dict[str, KernelFile]:
    """Kernels as they are launched, without code."""
    from ringlet.plugins.backends.cuda.kernels.catalogue import kernel_named

    kernels = map(kernel_named, names)
    return {kernel.name: KernelFile(kernel.name, kernel.kinds, kernel.threads, b"") for kernel in kernels}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> PaperDriver:
    pytest.importorskip("numba_cuda")
    monkeypatch.setattr(gpu, "kernel_files", named_files)
    return PaperDriver()


LAUNCH = "cuLaunchKernel"
TELL, WAIT = ["cuCtxSetCurrent", "cuMemcpyHtoDAsync_v2"], ["cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"]
CAPTURE = "cuStreamBeginCapture_v2"
KEEP = ["cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphDestroy"]


@pytest.mark.parametrize("listed", [0, 5])
def test_a_step_waits_once_and_allocates_nothing(driver: PaperDriver, listed: int) -> None:
    """The first of a shape is launched, the second recorded, and from then on a step is five calls."""
    config, weights = random_model()
    backend = CudaBackend(config, weights, device=gpu.Gpu(driver, 0))
    ring, ids = backend.new_ring(RingLayout.of(config, 30, chunk=8), "f16"), tokens(12, config)
    run_step(backend, [(ring, ids[:8], "last")])
    seen = []
    for token_id in ids[8:]:
        del driver.calls[:]
        if listed:
            run_step_for_likeliest(backend, [(ring, [token_id], "last")], listed)
        else:
            run_step(backend, [(ring, [token_id], "last")])
        seen.append(list(squeezed(driver.calls)))
    assert seen[0][-2:] == WAIT
    assert seen[0].count(WAIT[1]) == 1
    assert seen[1] == [*TELL, CAPTURE, LAUNCH, *KEEP, "cuGraphLaunch", *WAIT]
    assert seen[2:] == [[*TELL, "cuGraphLaunch", *WAIT]] * 2


def squeezed(names: list[str]) -> Iterator[str]:
    """Launches that follow each other count as one."""
    for before, name in zip([None, *names], names, strict=False):
        if name != before or name != LAUNCH:
            yield name


def test_a_failed_launch_ends_the_recording(driver: PaperDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    device = gpu.Gpu(driver, 0)

    def fails() -> None:
        raise RuntimeError("no luck")

    del driver.calls[:]
    with pytest.raises(RuntimeError, match="no luck"):
        device.record(fails)
    assert driver.calls == [CAPTURE, "cuStreamEndCapture"]


def test_code_of_a_newer_compiler_is_told(driver: PaperDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    device, call = gpu.Gpu(driver, 0), driver.call

    def refuses(name: str, *arguments: Any) -> None:
        if name == "cuModuleLoadData":
            raise DriverError(name, cuda.FOREIGN_CODE[0], "CUDA_ERROR_INVALID_IMAGE")
        call(name, *arguments)

    monkeypatch.setattr(driver, "call", refuses)
    with pytest.raises(RingletError, match=r"^the driver of A GPU of paper \(GPU 0\) cannot load kernels .* cuda12 or"):
        device.prepare(["place"])


def lacking(monkeypatch: pytest.MonkeyPatch, driver: Driver | DriverError | None, has_compiler: bool = True) -> Any:
    """What is missing with that driver; None: there is no library."""

    def opened() -> Driver:
        if isinstance(driver, Driver):
            return driver
        assert driver is not None
        raise driver

    monkeypatch.setattr(availability, "SIMULATED", False)
    monkeypatch.setattr(availability, "find_library", lambda: None if driver is None else object())
    monkeypatch.setattr(availability, "open_driver", opened)
    monkeypatch.setattr(availability, "find_spec", lambda name: object() if has_compiler else None)
    monkeypatch.setattr(availability, "missing", availability.missing.__wrapped__)
    return availability.missing()


@pytest.mark.parametrize(
    ("driver", "has_compiler", "text", "is_near"),
    [
        (None, True, r"NVIDIA's driver is missing, or there is no NVIDIA GPU: install the driver, or take", False),
        (DriverError("cuInit", 100, "NO_DEVICE"), True, "the driver finds no GPU: see what nvidia-smi says", False),
        (PaperDriver(numbers=NUMBERS | {"cuDeviceGetCount": 0}), True, "the driver finds no GPU", False),
        (DriverError("cuInit", 999, "UNKNOWN"), True, r"the driver does not start \(cuInit: UNKNOWN \(999\)\)", True),
        (PaperDriver(), False, r"numba-cuda is missing, .*: pip install 'ringlet\[cuda\]'", True),
        (PaperDriver(numbers=NUMBERS | {"cuDriverGetVersion": 12_040}), False, r"'ringlet\[cuda12\]'", True),
    ],
)
def test_what_is_missing_is_said_and_how_to_get_it(
    driver: Any, has_compiler: bool, text: str, is_near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack = lacking(monkeypatch, driver, has_compiler)
    assert lack.is_near is is_near
    with pytest.raises(RingletError, match=f"^backend cuda: .*{text}"):
        availability.open_device(0)


def test_a_gpu_is_taken_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = PaperDriver()
    assert lacking(monkeypatch, driver) is None
    assert availability.open_device(1).name == "A GPU of paper (GPU 1)"
    with pytest.raises(RingletError, match=r"^device is 2: this machine has 0 \(A GPU of paper\), 1 \("):
        availability.open_device(2)


def test_a_gpu_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, PaperDriver(attributes=ATTRIBUTES | {cuda.CAPABILITY_MAJOR: 7}))
    with pytest.raises(RingletError, match=r"has compute capability 7\.0: 7\.5 or later is needed; take --backend cpu"):
        availability.open_device(0)
