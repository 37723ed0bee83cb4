"""Bytes that the CUDA kernels move in a step against the least possible, for models of usual shapes; needs no GPU.

    python benchmarks/gpu_bytes.py

prints the Markdown tables of docs/cuda.md. What is counted, and what holds the counts to the kernels, stands in
on_gpu/traffic.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from comparison.report import markdown_table
from on_gpu.models import SHAPES, Shape, synthetic
from on_gpu.paper_device import PaperDevice
from on_gpu.traffic import StepTraffic, Traffic

from ringlet.core.batch import Batch
from ringlet.core.ring_cache import RingLayout
from ringlet.plugins.backends.cuda.backend import CudaBackend

CHUNK = 512


class Work(NamedTuple):
    """A step: so many sequences, each with tokens that are new and a context before them."""

    title: str
    sequences: int
    tokens: int
    depth: int


WORKS = (
    Work("a token", 1, 1, 4096),
    Work("a token of each of 8", 8, 1, 4096),
    Work("a token of each of 64", 64, 1, 4096),
    Work("a prompt of 512", 1, 512, 0),
)


def counts(backend: CudaBackend, device: PaperDevice, work: Work) -> dict[str, Traffic]:
    """By kernel, of one step."""
    config = backend.config
    layout = RingLayout.of(config, work.depth + work.tokens, chunk=max(CHUNK, work.tokens))
    parts = []
    for index in range(work.sequences):
        ring = backend.new_ring(layout, "f16")
        ring.append([0] * work.depth)
        parts.append((ring, [(index + i) % config.d_vocab for i in range(work.tokens)], "last"))
    batch, found = Batch.of(parts, config.d_vocab), dict[str, Traffic]()
    del device.launches[:]
    backend.forward(batch)
    step = StepTraffic(batch, config)
    for launch in device.launches:
        name = kernel_title(launch.name)
        found[name] = found.get(name, Traffic(0, 0)).plus(step.of(launch))
    return found


def kernel_title(name: str) -> str:
    """Without the sizes of heads, which are the model's."""
    return name if "product" in name else name.split("-")[0]


def table(name: str, shape: Shape) -> str:
    """Megabytes moved of each kernel, and how many times the least that is; a column a kind of step."""
    device = PaperDevice()
    backend = CudaBackend(*synthetic(name, shape, filled=False), device=device)
    columns = [counts(backend, device, work) for work in WORKS]
    kernels = list(dict.fromkeys(kernel for column in columns for kernel in column))
    rows = [[f"`{kernel}`", *(cell(column.get(kernel)) for column in columns)] for kernel in kernels]
    rows.append(["all", *(cell(Traffic(*map(sum, zip(*column.values(), strict=True)))) for column in columns)])
    return markdown_table([name, *(work.title for work in WORKS)], rows, text_columns=1)


def cell(traffic: Traffic | None) -> str:
    return "–" if traffic is None else f"{traffic.moved / 1e6:,.1f} / {traffic.moved / traffic.least:.2f}"


def tables() -> Iterator[str]:
    for name, shape in SHAPES.items():
        yield table(name, shape)


def main() -> None:
    print("\n\n".join(tables()))


if __name__ == "__main__":
    main()
