"""Bytes that the CUDA kernels move in a step against the least possible, and those that leave the GPU, for models of
usual shapes; needs no GPU.

    python benchmarks/gpu_bytes.py

prints the Markdown tables of docs/cuda.md. What is counted, and what holds the counts to the kernels, stands in
on_gpu/traffic.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from comparison.report import markdown_table
from on_gpu.models import SHAPES, Shape, synthetic
from on_gpu.paper_device import PaperDevice
from on_gpu.traffic import StepTraffic, Traffic

from ringlet.core.batch import Batch
from ringlet.core.drawing_plan import LISTED
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


def batch_of(backend: CudaBackend, work: Work) -> Batch:
    config = backend.config
    layout = RingLayout.of(config, work.depth + work.tokens, chunk=max(CHUNK, work.tokens))
    parts = []
    for index in range(work.sequences):
        ring = backend.new_ring(layout, "f16")
        ring.append([0] * work.depth)
        parts.append((ring, [(index + i) % config.d_vocab for i in range(work.tokens)], "last"))
    return Batch.of(parts, config.d_vocab)


def counts(backend: CudaBackend, device: PaperDevice, work: Work) -> dict[str, Traffic]:
    """By kernel, of one step."""
    batch, found = batch_of(backend, work), dict[str, Traffic]()
    del device.launches[:]
    backend.forward_likeliest(batch, LISTED)
    step = StepTraffic(batch, backend.config)
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


def table_of_leaving() -> str:
    """Kilobytes that a step copies to the host: a list of the likeliest tokens, and what all logits would be."""
    rows = []
    for name, shape in SHAPES.items():
        device = PaperDevice()
        backend = CudaBackend(*synthetic(name, shape, filled=False), device=device)
        likeliest = partial(backend.forward_likeliest, count=LISTED)
        listed, whole = (
            [leaving(device, step, batch_of(backend, work)) for work in WORKS] for step in (likeliest, backend.forward)
        )
        rows.append([f"{name}, the {LISTED} likeliest", *listed])
        rows.append([f"{name}, all {shape.d_vocab:,} logits", *whole])
    return markdown_table(["kB", *(work.title for work in WORKS)], rows, text_columns=1)


def leaving(device: PaperDevice, step: Callable[[Batch], object], batch: Batch) -> str:
    before = device.downloaded
    step(batch)
    return f"{(device.downloaded - before) / 1000:,.1f}"


def cell(traffic: Traffic | None) -> str:
    return "–" if traffic is None else f"{traffic.moved / 1e6:,.1f} / {traffic.moved / traffic.least:.2f}"


def tables() -> Iterator[str]:
    for name, shape in SHAPES.items():
        yield table(name, shape)


def main() -> None:
    print("\n\n".join([*tables(), table_of_leaving()]))


if __name__ == "__main__":
    main()
