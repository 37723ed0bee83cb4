"""What the device can do at most, measured where that is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from on_gpu.report import Part

from ringlet.plugins.backends.cuda.device import Device, Memory

COPIED = 1 << 31  # bytes, far more than a GPU's cache
PUBLISHED = {"B200": 2250e12, "H200": 989e12, "H100": 989e12, "A100": 312e12, "L40": 181e12, "4090": 165e12}
N = 8192  # rows and columns of the matrices that torch multiplies


@dataclass(frozen=True)
class Limits:
    """bandwidth: bytes a second, read and written. peak: bfloat16 operations a second, None where it is not known."""

    bandwidth: float
    peak: float | None


def measured_limits(part: Part, device: Device, tiny: bool) -> Limits:
    """By copies in the GPU's memory, and by torch's product of large matrices; without torch the published peak."""
    bandwidth = copy_bandwidth(device, *((1 << 16, 2) if tiny else (COPIED, 10)))
    part.fact("bandwidth of a copy, read and written, GB/s", bandwidth / 1e9)
    torch = torch_on_gpu()
    published = next((peak for name, peak in PUBLISHED.items() if name in device.name), None)
    part.fact("published dense bf16 peak, TFLOP/s", published and published / 1e12)
    if torch is None or tiny:
        part.say("no torch with a GPU: shares are of the published peak")
        return Limits(bandwidth, published)
    peak = product_speed(torch)
    part.fact(f"torch {torch.__version__}: bf16 product of {N} rows and columns, TFLOP/s", peak / 1e12)
    return Limits(bandwidth, max(peak, published or 0))


def copy_bandwidth(device: Device, n_bytes: int, times: int) -> float:
    source, target = Memory(device, n_bytes), Memory(device, n_bytes)

    def copy() -> None:
        for _ in range(times):
            device.copy(source.address, target.address, n_bytes)

    copy()
    return 2 * n_bytes * times / device.seconds(copy)


def product_speed(torch: Any) -> float:
    """Operations a second."""
    left, right = (torch.randn(N, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = seconds_of(torch, lambda: left @ right, 20)
    return float(2 * N**3 / seconds)


def torch_on_gpu() -> Any:
    """torch, where it is installed and has a GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def seconds_of(torch: Any, work: Any, times: int) -> float:
    """Of one call on torch's stream, the mean of several after a first."""
    work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1000 / times
