"""A model's weights on the GPU: in one allocation, each matrix in planes, matrices that share their input stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.weights import LayerWeights, Matrix, ModelWeights
from ringlet.plugins.backends.cuda.device import Device
from ringlet.plugins.backends.cuda.planes import (
    ALIGNMENT,
    PLANES,
    fields_of,
    is_quantised,
    padded,
    plane_offsets,
    plane_row_bytes,
)

STAGING_BYTES = 1 << 26  # of a file that are on the GPU before they are in planes
REPACK_BLOCKS = 1 << 10  # blocks of threads at most

Bias = np.ndarray | None


@dataclass(frozen=True)
class DeviceMatrix:
    """planes: the addresses of PLANES, 0 where the format has none. n_blocks: of a row; of a float format, its columns
    with their padding. bias: address of float32 (n_rows,), or 0. first_row: where its outputs begin in the
    product's."""

    format: str
    n_rows: int
    n_columns: int
    n_blocks: int
    planes: tuple[int, int, int, int]
    bias: int = 0
    first_row: int = 0


@dataclass(frozen=True)
class Product:
    """Matrices that take the same activations; their outputs stand side by side. width: of all outputs."""

    matrices: tuple[DeviceMatrix, ...]
    width: int

    @property
    def formats(self) -> set[str]:
        return {matrix.format for matrix in self.matrices}


@dataclass(frozen=True)
class DeviceNorm:
    """Addresses of float32 vectors; 0 where there is none."""

    weight: int = 0
    bias: int = 0


@dataclass(frozen=True)
class DeviceLayer:
    qkv: Product
    output: Product
    up: Product  # then gate, where the recipe has it
    down: Product
    attention_norm: DeviceNorm
    attention_post_norm: DeviceNorm
    feed_forward_norm: DeviceNorm
    feed_forward_post_norm: DeviceNorm
    q_norm: int
    k_norm: int
    rope: int  # index into the ropes, or -1


@dataclass(frozen=True)
class DeviceWeights:
    embedding: DeviceMatrix
    positions: DeviceMatrix | None
    layers: tuple[DeviceLayer, ...]
    final_norm: DeviceNorm
    W_t: Product
    frequencies: int  # float64 (n_ropes, n_pairs)
    magnitudes: int  # float64 (n_ropes,)
    pairs_of_rope: tuple[int, ...]

    @property
    def n_pairs(self) -> int:
        """Of the rope that turns most, at least one."""
        return max(self.pairs_of_rope, default=1)


class Arena:
    """Takes memory piece by piece; this one only counts. end: bytes so far. file_bytes: of the matrices so far, as they
    lie in the file."""

    def __init__(self) -> None:
        self.end = self.file_bytes = 0

    def take(self, n_bytes: int) -> int:
        address = self._base() + self.end
        self.end += -(-max(n_bytes, 1) // ALIGNMENT) * ALIGNMENT
        return address

    def vector(self, values: np.ndarray | None) -> int:
        """Address of an array's values in their dtype; 0 for None."""
        return 0 if values is None else self.take(values.nbytes)

    def rows(self, matrix: Matrix, planes: dict[str, int], first_row: int) -> None:
        """Put a matrix's rows into planes, from a row on."""
        self.file_bytes += matrix.data.nbytes

    def _base(self) -> int:
        return ALIGNMENT  # an address that is not 0


class Upload(Arena):
    """Fills an allocation in the order in which another arena has counted it.

    progress: called with file_bytes whenever some have gone to the GPU.
    """

    def __init__(self, device: Device, base: int, staging: int, progress: Callable[[int], None]) -> None:
        super().__init__()
        self._device, self._address, self._staging, self._progress = device, base, staging, progress

    def vector(self, values: np.ndarray | None) -> int:
        address = super().vector(values)
        if values is not None:
            self._device.upload(values, address)
        return address

    def rows(self, matrix: Matrix, planes: dict[str, int], first_row: int) -> None:
        row_bytes = max(1, matrix.data.shape[1])
        at_once = max(1, STAGING_BYTES // row_bytes)
        for start in range(0, len(matrix.data), at_once):
            data = np.ascontiguousarray(matrix.data[start : start + at_once])
            self._device.upload(data, self._staging)
            self._repack(matrix, planes, first_row + start, len(data))
            self.file_bytes += data.nbytes
            self._progress(self.file_bytes)

    def _repack(self, matrix: Matrix, planes: dict[str, int], first_row: int, n_rows: int) -> None:
        block = BLOCK_FORMATS[matrix.format]
        row_bytes = plane_row_bytes(matrix.format, matrix.n_columns)
        for name, (first, size) in fields_of(matrix.format).items():
            target = planes[name] + first_row * row_bytes[name]
            if is_quantised(matrix.format):
                n_blocks, sizes = n_rows * matrix.n_columns // block.n_weights, (block.n_bytes, first, size, size)
            else:  # whole rows, whose padding stays 0
                whole = matrix.n_columns * size
                n_blocks, sizes = n_rows, (whole, 0, whole, row_bytes[name])
            threads = n_blocks * (sizes[2] // 2)
            grid = (max(1, min(REPACK_BLOCKS, threads // 128)), 1, 1)
            in_shorts = [size // 2 for size in sizes]
            self._device.launch("repack", grid, (self._staging, target, n_blocks, *in_shorts))

    def _base(self) -> int:
        return self._address


def staging_bytes(weights: ModelWeights) -> int:
    """Memory that an Upload's staging needs."""
    return max(STAGING_BYTES, *(matrix.data.shape[1] for matrix in weights.matrices().values()))


def lay_out(config: ModelConfig, weights: ModelWeights, arena: Arena) -> DeviceWeights:
    """Where everything is; with an Upload, it is there."""
    embedding = _matrix(arena, [weights.embedding])
    if weights.W_t is weights.embedding:
        bias = arena.vector(_float32(weights.b_t))
        W_t = Product((DeviceMatrix(**{**vars(embedding), "bias": bias}),), embedding.n_rows)
    else:
        W_t = _product(arena, [weights.W_t], [weights.b_t])
    ropes = list(dict.fromkeys(layer.rope for layer in config.layers if layer.rope is not None))
    frequencies = np.zeros((max(1, len(ropes)), max((len(rope.frequencies) for rope in ropes), default=1)))
    for row, rope in zip(frequencies, ropes, strict=False):
        row[: len(rope.frequencies)] = rope.frequencies
    layers = tuple(
        _layer(arena, layer, -1 if described.rope is None else ropes.index(described.rope))
        for layer, described in zip(weights.layers, config.layers, strict=True)
    )
    return DeviceWeights(
        embedding=embedding,
        positions=None if weights.positions is None else _matrix(arena, [weights.positions]),
        layers=layers,
        final_norm=_norm(arena, weights.final_norm, weights.final_norm_bias),
        W_t=W_t,
        frequencies=arena.vector(frequencies),
        magnitudes=arena.vector(np.array([rope.magnitude for rope in ropes] or [1.0])),
        pairs_of_rope=tuple(len(rope.frequencies) for rope in ropes),
    )


def _layer(arena: Arena, layer: LayerWeights, rope: int) -> DeviceLayer:
    ups, up_biases = [layer.W_up], [layer.b_up]
    if layer.W_gate is not None:
        ups, up_biases = [*ups, layer.W_gate], [*up_biases, layer.b_gate]
    return DeviceLayer(
        qkv=_product(arena, [layer.W_q, layer.W_k, layer.W_v], [layer.b_q, layer.b_k, layer.b_v]),
        output=_product(arena, [layer.W_o], [layer.b_o]),
        up=_product(arena, ups, up_biases),
        down=_product(arena, [layer.W_down], [layer.b_down]),
        attention_norm=_norm(arena, layer.attention_norm, layer.attention_norm_bias),
        attention_post_norm=_norm(arena, layer.attention_post_norm),
        feed_forward_norm=_norm(arena, layer.feed_forward_norm, layer.feed_forward_norm_bias),
        feed_forward_post_norm=_norm(arena, layer.feed_forward_post_norm),
        q_norm=arena.vector(_float32(layer.q_norm)),
        k_norm=arena.vector(_float32(layer.k_norm)),
        rope=rope,
    )


def _product(arena: Arena, matrices: Sequence[Matrix], biases: Sequence[Bias]) -> Product:
    """Matrices of one format that follow each other become one."""
    placed: list[DeviceMatrix] = []
    first_row = 0
    for _, group in groupby(zip(matrices, biases, strict=True), key=lambda pair: pair[0].format):
        pairs = list(group)
        n_rows = sum(len(matrix.data) for matrix, _ in pairs)
        bias = None
        if any(given is not None for _, given in pairs):
            zeros = (np.zeros(len(matrix.data), np.float32) for matrix, _ in pairs)
            bias = np.concatenate(
                [zero if given is None else given for zero, (_, given) in zip(zeros, pairs, strict=True)]
            )
        address = arena.vector(_float32(bias))
        placed.append(_matrix(arena, [matrix for matrix, _ in pairs], address, first_row))
        first_row += n_rows
    return Product(tuple(placed), first_row)


def _matrix(arena: Arena, parts: Sequence[Matrix], bias: int = 0, first_row: int = 0) -> DeviceMatrix:
    """Rows of one format and width, one matrix below the other."""
    format, n_columns = parts[0].format, parts[0].n_columns
    n_rows = sum(len(matrix.data) for matrix in parts)
    offsets, n_bytes = plane_offsets(format, n_rows, n_columns)
    start = arena.take(n_bytes)
    planes = {name: start + offset for name, offset in offsets.items()}
    at = 0
    for matrix in parts:
        arena.rows(matrix, planes, at)
        at += len(matrix.data)
    n_blocks = n_columns // BLOCK_FORMATS[format].n_weights if is_quantised(format) else padded(n_columns)
    addresses = [planes.get(name, 0) for name in PLANES]
    return DeviceMatrix(format, n_rows, n_columns, n_blocks, tuple(addresses), bias, first_row)  # type: ignore[arg-type]


def _norm(arena: Arena, weight: np.ndarray | None, bias: np.ndarray | None = None) -> DeviceNorm:
    return DeviceNorm(arena.vector(_float32(weight)), arena.vector(_float32(bias)))


def _float32(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None else np.ascontiguousarray(values, np.float32)
