"""The CUDA kernels compiled and assembled without a GPU, against the table of docs/cuda.md."""

from __future__ import annotations

import re
from pathlib import Path

import gpu_code
import pytest

from ringlet.core.drawing_plan import LISTED
from ringlet.plugins.backends.cuda.shapes import SIMULATED, can_rank

TABLE_ROW = re.compile(r"^\| `([\w-]+)` \| (.+) \|$", re.MULTILINE)
USAGE = re.compile(r"(\d+) / (\d+) / (\d+)")
HOT = (  # of every family and of every kind of block; the whole table takes ten minutes
    "place",
    "normalise",
    "rank",
    "likeliest",
    "lookup-Q8_0",
    "byte_product-Q4_0-1",
    "byte_product-Q2_K-1",
    "byte_product-Q8_0-2",
    "byte_product-Q4_K-1",
    "byte_product-Q6_K-8",
    "byte_product-IQ4_XS-1",
    "float_product-BF16-1",
    "tile_product-Q4_K-large",
    "tile_product-Q8_0-small",
    "attention-64-64-k8",
    "attention-128-128-k16",
    "attention-128-128-k16-q8",
    "tile_product-Q2_K-flat",
)


def recorded(repository: Path) -> dict[tuple[str, tuple[int, int]], gpu_code.Usage]:
    found = {}
    page = (repository / "docs" / "cuda.md").read_text(encoding="utf-8")
    for name, cells in TABLE_ROW.findall(page[page.index("<!-- table -->") :]):
        for capability, cell in zip(gpu_code.CAPABILITIES, cells.split(" | "), strict=True):
            match = USAGE.fullmatch(cell)
            if match:
                found[name, capability] = gpu_code.Usage(*map(int, match.groups()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", HOT)
def test_kernels_take_no_more_than_the_table_says(name: str, repository: Path) -> None:
    try:
        gpu_code.check_compilers()
    except RuntimeError as missing:
        pytest.skip(str(missing))
    table = recorded(repository)
    capabilities = [c for c in gpu_code.CAPABILITIES if name in gpu_code.kernel_names(c)]
    assert capabilities
    for capability in capabilities:
        usage = gpu_code.usage_of((name, capability))
        said = table[name, capability]
        assert usage.spilled <= said.spilled
        assert usage.registers <= said.registers
        assert usage.shared <= said.shared


def test_the_table_holds_every_kernel(repository: Path) -> None:
    pytest.importorskip("numba_cuda")
    wanted = {(name, c) for c in gpu_code.CAPABILITIES for name in gpu_code.kernel_names(c)}
    assert set(recorded(repository)) == wanted


def test_nothing_spills_but_products_of_many_tokens(repository: Path) -> None:
    spilling = {name for (name, _), usage in recorded(repository).items() if usage.spilled}
    assert all(re.fullmatch(r"byte_product-\w+-[48]", name) for name in spilling)
    assert len(spilling) <= 6


@pytest.mark.skipif(SIMULATED, reason="the simulator's blocks are smaller")
def test_the_likeliest_of_every_vocabulary_can_be_listed() -> None:
    for d_vocab in (1, 32_000, 262_208, 1 << 19):
        assert can_rank(d_vocab, LISTED)
    assert not can_rank((1 << 19) + 1, LISTED)


def test_what_ptxas_prints_is_read() -> None:
    told = (
        "ptxas info    : 0 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Used 96 registers, used 1 barriers, 4096 bytes smem"
    )
    assert gpu_code.read_usage(told) == gpu_code.Usage(96, 4096, 20)
