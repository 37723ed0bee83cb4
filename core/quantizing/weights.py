"""A model's weights, quantised when it is loaded: computed on all cores, or found in the user's cache."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from ringlet.core.errors import RingletError
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.quantizing.blocks import quantize
from ringlet.core.quantizing.kept_weights import KeptWeights
from ringlet.core.quantizing.plan import FLOATS, planned_formats, quantizable
from ringlet.core.terminal.standard_error import passing_lines, warn
from ringlet.core.weights import Matrix, ModelWeights

WEIGHTS_OF_A_TASK = 1 << 20
WEIGHTS_AT_ONCE = 1 << 16  # few enough that the steps between stay in the processor's cache


def quantize_weights(
    weights: ModelWeights,
    format: str,
    name: str,
    model: Path,
    files: Collection[Path],
    mmap: bool = True,
    threads: int | None = None,
) -> ModelWeights:
    """The weights with all matrices in blocks that can be; see `plan`.

    format: a value of `plan.FORMATS`. name: the model's, for messages. model, files: where it lies. threads: None for
    all cores. Said on standard error: what stays as it is, and on a terminal how far it is.
    """
    planned = planned_formats(weights, format)
    _tell_what_stays(weights, planned, format, name)
    if not planned:
        return weights
    matrices = weights.matrices()
    kept = KeptWeights(model, format, files, matrices, planned)
    found = kept.read(mmap)
    if found is None:
        found = _computed(matrices, planned, format, threads)
        why = kept.write(found)
        if why:
            warn(f"the quantised weights cannot be kept, the next start computes them again: {why}")
        else:
            found = kept.read(mmap) or found
    return weights.with_matrices(found)


def _tell_what_stays(weights: ModelWeights, planned: Collection[str], format: str, name: str) -> None:
    blocks = [matrix.format for matrix in weights.matrices().values() if matrix.format not in FLOATS]
    short = quantizable(weights).keys() - set(planned)
    if blocks:
        kinds = ", ".join(sorted(set(blocks)))
        warn(f"{name}: {len(blocks)} matrices are quantised already, as {kinds}; they stay as they are")
    if short:
        warn(f"{name}: {len(short)} matrices stay as they are: their rows are not whole blocks of 32 weights")


def _computed(
    matrices: dict[str, Matrix], planned: dict[str, str], format: str, threads: int | None
) -> dict[str, Matrix]:
    """The planned matrices, quantised now."""
    try:
        found = {name: _empty(matrices[name], kind) for name, kind in planned.items()}
    except MemoryError:
        raise RingletError(f"there is not enough memory to quantise the model to {format.lower()}") from None
    tasks = [(name, rows) for name in planned for rows in _tasks(matrices[name])]
    with passing_lines() as tell, ThreadPoolExecutor(threads or usable_cpus()) as pool:
        running = [pool.submit(_quantize_rows, matrices[name], found[name], rows) for name, rows in tasks]
        try:
            for done, task in enumerate(as_completed(running), 1):
                task.result()
                tell(f"quantising the weights to {format.lower()}: {100 * done // len(running)}%")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _empty(matrix: Matrix, format: str) -> Matrix:
    block, (n_rows, n_columns) = BLOCK_FORMATS[format], matrix.shape
    return Matrix(np.empty((n_rows, n_columns // block.n_weights * block.n_bytes), np.uint8), format, n_columns)


def _tasks(matrix: Matrix) -> Iterator[range]:
    n_rows, step = len(matrix.data), max(1, WEIGHTS_OF_A_TASK // matrix.n_columns)
    return (range(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def _quantize_rows(matrix: Matrix, out: Matrix, rows: range) -> None:
    step = max(1, WEIGHTS_AT_ONCE // matrix.n_columns)
    for start in range(rows.start, rows.stop, step):
        part = slice(start, min(start + step, rows.stop))
        out.data[part] = quantize(matrix.dequantize(part), out.format)


def usable_cpus() -> int:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
