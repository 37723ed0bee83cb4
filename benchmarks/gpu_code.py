"""Registers, shared memory and spills of every CUDA kernel on GPUs of four generations; needs no GPU.

    python benchmarks/gpu_code.py

compiles each kernel to PTX by numba-cuda and assembles it by `ptxas` (pip install "ringlet[cuda-test]"),
and prints a Markdown table, that of docs/cuda.md, in about ten minutes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))
HEADS = ((64, 64), (128, 128), (256, 256))  # d_k, d_v


class Usage(NamedTuple):
    """What `ptxas` says of a kernel. spilled: bytes stored and loaded because registers did not suffice."""

    registers: int
    shared: int
    spilled: int


def kernel_names(capability: tuple[int, int]) -> list[str]:
    """All that some model may need on a GPU of the capability."""
    from ringlet.core.quantization import BLOCK_FORMATS
    from ringlet.plugins.backends.cuda.kernels.catalogue import SINGLE
    from ringlet.plugins.backends.cuda.shapes import BYTE_PRODUCT_TOKENS, TILES

    blocks = [name for name, block in BLOCK_FORMATS.items() if block.n_weights > 1]
    floats = [name for name, block in BLOCK_FORMATS.items() if block.n_weights == 1]
    instruction = "k8" if capability < (8, 0) else "k16"
    names = [*SINGLE, *(f"lookup-{name}" for name in BLOCK_FORMATS)]
    names += [f"byte_product-{name}-{tokens}" for name in blocks for tokens in BYTE_PRODUCT_TOKENS]
    names += [f"float_product-{name}-{tokens}" for name in floats for tokens in BYTE_PRODUCT_TOKENS]
    names += [f"attention-{d_k}-{d_v}-{instruction}{ring}" for ring in ("", "-q8") for d_k, d_v in HEADS]
    names += [f"float_attention-{d_k}-{d_v}" for d_k, d_v in HEADS]
    if capability >= (8, 0):
        names += [f"tile_product-{name}-{tile}" for name in blocks for tile in TILES]
    return names


def usage_of(job: tuple[str, tuple[int, int]]) -> Usage:
    """Compile and assemble one kernel. Raises RuntimeError where `ptxas` refuses it."""
    from ringlet.plugins.backends.cuda.kernels.catalogue import kernel_named
    from ringlet.plugins.backends.cuda.kernels.compiling import ptx_of

    name, capability = job
    ptx = ptx_of(kernel_named(name), capability)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [assembler(), "-v", f"-arch=sm_{capability[0]}{capability[1]}", str(source), "-o", f"{source}.cubin"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} on {capability}: {done.stderr}")
    return read_usage(done.stderr)


def read_usage(told: str) -> Usage:
    """The numbers in what `ptxas -v` prints."""

    def number(pattern: str) -> int:
        found = re.search(pattern, told)
        return int(found[1]) if found else 0

    spilled = number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads")
    return Usage(number(r"Used (\d+) registers"), number(r"(\d+) bytes smem"), spilled)


def assembler() -> str:
    """`ptxas` of the package nvidia-cuda-nvcc, else the one on the path. Raises RuntimeError where there is none."""
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found = next(Path(folder).glob("*/bin/ptxas"), None)
        if found is not None:
            return str(found)
    found_on_path = shutil.which("ptxas")
    if found_on_path is None:
        raise RuntimeError('there is no ptxas: pip install "ringlet[cuda-test]"')
    return found_on_path


def check_compilers() -> None:
    """Raises RuntimeError where numba-cuda, NVIDIA's library that compiles for it or `ptxas` is missing."""
    if find_spec("numba_cuda") is None or not nvrtc_libraries():
        raise RuntimeError('numba-cuda and its compiler are missing: pip install "ringlet[cuda-test]"')
    assembler()


def nvrtc_libraries() -> list[Path]:
    """The files of NVIDIA's runtime compiler in installed packages."""
    spec = find_spec("nvidia")
    folders = (spec.submodule_search_locations or []) if spec else []
    return [path for folder in folders for path in Path(folder).glob("*/*/*nvrtc*")]


def table() -> Iterator[str]:
    """A Markdown row a kernel, as soon as all are known: registers, shared memory and spills on each generation."""
    titles = [f"sm_{major}{minor}" for major, minor in CAPABILITIES]
    yield "| kernel | " + " | ".join(titles) + " |\n| --- |" + " --: |" * len(titles)
    names = list(dict.fromkeys(name for capability in CAPABILITIES for name in kernel_names(capability)))
    wanted = [(name, capability) for name in names for capability in CAPABILITIES if name in kernel_names(capability)]
    with ProcessPoolExecutor() as pool:
        found = dict(zip(wanted, pool.map(usage_of, wanted, chunksize=4), strict=True))
    for name in names:
        cells = [cell(found.get((name, capability))) for capability in CAPABILITIES]
        yield f"| `{name}` | " + " | ".join(cells) + " |"


def cell(usage: Usage | None) -> str:
    """registers / bytes of shared memory / bytes spilled; a dash where the kernel is for other GPUs."""
    return "–" if usage is None else f"{usage.registers} / {usage.shared} / {usage.spilled}"


def main() -> None:
    for row in table():
        print(row, flush=True)


if __name__ == "__main__":
    main()
