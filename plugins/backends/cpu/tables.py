"""The records that kernels read, filled from a model, from rings and from a batch; see `records`.

The objects here own or hold on to every piece of memory whose address they write down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.ring_cache import RingCache
from ringlet.core.weights import LayerWeights, Matrix, ModelWeights
from ringlet.plugins.backends.cpu import records
from ringlet.plugins.backends.cpu.interleaving import interleave, is_interleaved, takes_bytes
from ringlet.plugins.backends.cpu.machine_code import machine_code
from ringlet.plugins.backends.cpu.records import address, padded

RING_FORMATS = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.int8): "Q8"}


def needed_units(weights: ModelWeights) -> list[str]:
    """Names of the pieces of machine code (see `units`) that the model needs, the largest first."""
    looked_up = [matrix for matrix in (weights.embedding, weights.positions) if matrix is not None]
    formats = {matrix.format for matrix in multiplied(weights)}, {matrix.format for matrix in looked_up}
    return _units_of(["F16"], *formats)  # the usual ring; attention over others is compiled when there is one


def all_units() -> list[str]:
    """Names of all that some model may need."""
    return _units_of(RING_FORMATS.values(), BLOCK_FORMATS, BLOCK_FORMATS)


def _units_of(
    rings: Iterable[str], multiplied_formats: Collection[str], looked_up_formats: Collection[str]
) -> list[str]:
    attend = [f"attend_{name}" for name in rings]
    multiply = [f"multiply_{name}" for name in sorted(multiplied_formats)]
    unpack = [f"unpack_{name}" for name in sorted(looked_up_formats)]
    turned = ["interleave"] if any(is_interleaved(name) for name in multiplied_formats) else []
    return ["step", *attend, "draw", *multiply, *unpack, *turned]


def multiplied(weights: ModelWeights) -> list[Matrix]:
    """The matrices that meet activations, each once."""
    looked_up = {"embedding", "positions"}
    found = [matrix for name, matrix in weights.matrices().items() if name not in looked_up]
    return list({id(matrix): matrix for matrix in [*found, weights.W_t]}.values())


def byte_widths(weights: ModelWeights) -> dict[str, int]:
    """Columns of the activations that are needed as byte rows, by name; 0 where no matrix takes them."""
    takers: dict[str, list[Matrix | None]] = {"normed": [weights.W_t], "heads": [], "hidden": []}
    for layer in weights.layers:
        takers["normed"] += [layer.W_q, layer.W_k, layer.W_v, layer.W_gate, layer.W_up]
        takers["heads"].append(layer.W_o)
        takers["hidden"].append(layer.W_down)
    return {
        name: max((m.n_columns for m in matrices if m is not None and takes_bytes(m)), default=0)
        for name, matrices in takers.items()
    }


class ModelTable:
    """A model as records: `record` holds one records.MODEL. n_threads: of those that interleave weights."""

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, codes: Mapping[str, int], n_threads: int = 1
    ) -> None:
        self._kept: list[object] = [weights]
        in_blocks = [matrix for matrix in multiplied(weights) if takes_bytes(matrix)]
        turned = interleave(in_blocks, codes["interleave"], n_threads) if in_blocks else []
        self._interleaved = {id(matrix): array for matrix, array in zip(in_blocks, turned, strict=True)}
        self.config, self.weights, self.codes = config, weights, codes
        self.ropes = list(dict.fromkeys(layer.rope for layer in config.layers if layer.rope is not None))
        self.rope_of_layer = [-1 if layer.rope is None else self.ropes.index(layer.rope) for layer in config.layers]
        self.record = np.zeros(1, records.MODEL)
        model = self.record[0]
        for name in ("d_model", "d_k", "d_v", "d_ff", "n_layers", "n_heads", "n_kv_heads"):
            model[name] = getattr(config, name)
        for name in ("gated", "norm_epsilon", "embedding_scale", "score_scale"):
            model[name] = getattr(config, name)
        model["score_soft_cap"], model["logit_soft_cap"] = config.score_soft_cap or 0, config.logit_soft_cap or 0
        model["layer_norm"], model["parallel"] = config.norm == "layer", config.residual == "parallel"
        model["activation"] = records.ACTIVATIONS.index(config.activation)
        model["n_ropes"] = len(self.ropes)
        for name, width in byte_widths(weights).items():
            model[f"{name}_row"] = records.byte_row_bytes(width)
        model["ropes"] = self._keep(self._rope_records())
        model["layers"] = self._keep(self._layer_records(weights.layers))
        self._matrix(model["embedding"], weights.embedding, "unpack")
        self._matrix(model["W_t"], weights.W_t, "multiply", weights.b_t)
        self._matrix(model["positions"], weights.positions, "unpack")
        self._norm(model["final_norm"], weights.final_norm, weights.final_norm_bias)

    @property
    def angle_width(self) -> int:
        """Float32 values that a row of cosines takes."""
        return padded(max((len(rope.frequencies) for rope in self.ropes), default=1))

    @property
    def row_values(self) -> int:
        """Float32 values that the rows take that a thread unpacks together: of weights, keys or values."""
        config = self.config
        columns = max(config.d_model, config.d_ff, config.n_heads * config.d_v, config.d_k)
        panel = records.panel_bytes(max(byte_widths(self.weights).values())) // 4
        return max(4 * padded(columns), records.VALUE_ROWS * padded(config.d_v), panel)

    def _layer_records(self, layers: tuple[LayerWeights, ...]) -> np.ndarray:
        table = np.zeros(len(layers), records.LAYER)
        for record, layer, rope in zip(table, layers, self.rope_of_layer, strict=True):
            for name in ("q", "k", "v", "o", "gate", "up", "down"):
                matrix, bias = getattr(layer, f"W_{name}"), getattr(layer, f"b_{name}")
                self._matrix(record[f"W_{name}"], matrix, "multiply", bias)
            self._norm(record["attention_norm"], layer.attention_norm, layer.attention_norm_bias)
            self._norm(record["feed_forward_norm"], layer.feed_forward_norm, layer.feed_forward_norm_bias)
            self._norm(record["attention_post_norm"], layer.attention_post_norm)
            self._norm(record["feed_forward_post_norm"], layer.feed_forward_post_norm)
            record["q_norm"], record["k_norm"] = self._vector(layer.q_norm), self._vector(layer.k_norm)
            record["rope"] = rope
        return table

    def _rope_records(self) -> np.ndarray:
        table = np.zeros(max(1, len(self.ropes)), records.ROPE)
        for record, rope in zip(table, self.ropes, strict=False):
            record["frequencies"] = self._keep(np.array(rope.frequencies, np.float64))
            record["n_pairs"], record["magnitude"] = len(rope.frequencies), rope.magnitude
            record["adjacent"] = rope.pairing == "adjacent"
        return table

    def _matrix(self, record: np.void, matrix: Matrix | None, use: str, bias: np.ndarray | None = None) -> None:
        if matrix is None:
            return
        if use == "multiply" and takes_bytes(matrix):
            data, row_bytes = self._interleaved[id(matrix)], matrix.data.shape[1]
        else:
            data = matrix.data if matrix.data.strides[1] == 1 else np.ascontiguousarray(matrix.data)
            row_bytes = data.strides[0]
        record["address"], record["row_bytes"] = self._keep(data), row_bytes
        record["code"], record["takes_bytes"] = self.codes[f"{use}_{matrix.format}"], takes_bytes(matrix)
        record["n_rows"], record["n_columns"] = matrix.shape
        record["bias"] = self._vector(bias)

    def _norm(self, record: np.void, weight: np.ndarray | None, bias: np.ndarray | None = None) -> None:
        record["weight"], record["bias"] = self._vector(weight), self._vector(bias)

    def _vector(self, vector: np.ndarray | None) -> int:
        """Address of a padded float32 copy, or 0."""
        if vector is None:
            return 0
        copy = np.zeros(padded(len(vector)), np.float32)
        copy[: len(vector)] = vector
        return self._keep(copy)

    def _keep(self, array: np.ndarray) -> int:
        self._kept.append(array)
        return address(array)


class RingTable:
    """A ring as records, and the rotations that its sinks need beside those of the tokens."""

    def __init__(self, ring: RingCache, model: ModelTable) -> None:
        self._memory = ring.memory
        if len(ring.layout.layers) != model.config.n_layers:
            raise ValueError(f"a ring of {len(ring.layout.layers)} layers, the model has {model.config.n_layers}")
        self.capacity = max(layer.capacity for layer in ring.layout.layers)
        self.table = np.zeros(len(ring.layout.layers), records.RING_LAYER)
        self.rotations: list[tuple[int, int]] = []  # rope and position of each
        for index, (record, layer) in enumerate(zip(self.table, ring.layout.layers, strict=True)):
            keys, values = ring.memory.keys[index], ring.memory.values[index]
            self._check(keys, layer.slots, model.config.d_k, model.config)
            self._check(values, layer.slots, model.config.d_v, model.config)
            if not (
                1 <= layer.capacity <= layer.slots and 0 <= layer.sinks < layer.slots and keys.dtype == values.dtype
            ):
                raise ValueError(f"a ring of {layer}, {keys.dtype} keys and {values.dtype} values")
            record["keys"], record["values"] = address(keys), address(values)
            name = RING_FORMATS[keys.dtype]
            unit = f"attend_{name}"
            record["kind"], record["code"] = records.RING_KINDS.index(name), machine_code([unit])[unit]
            if name == "Q8":
                scales = ring.memory.key_scales[index], ring.memory.value_scales[index]
                for each in scales:
                    self._check_scales(each, layer.slots, model.config)
                record["key_scales"], record["value_scales"] = map(address, scales)
            record["key_bytes"], record["value_bytes"] = keys.strides[1], values.strides[1]
            record["slots"], record["capacity"], record["sinks"] = layer.slots, layer.capacity, layer.sinks
            if layer.sinks and model.rope_of_layer[index] >= 0:
                rotation = (model.rope_of_layer[index], layer.capacity - 1)
                if rotation not in self.rotations:
                    self.rotations.append(rotation)
                record["sink_angles"] = self.rotations.index(rotation)
        self.address = address(self.table)

    @staticmethod
    def _check(array: np.ndarray, slots: int, width: int, config: ModelConfig) -> None:
        shape = (config.n_kv_heads, slots, width)
        if array.shape != shape or array.dtype not in RING_FORMATS or not array.flags.c_contiguous:
            raise ValueError(
                f"a ring's memory is {array.shape} of {array.dtype}, not {shape} of float32, float16 or int8"
            )

    @staticmethod
    def _check_scales(array: np.ndarray, slots: int, config: ModelConfig) -> None:
        shape = (config.n_kv_heads, slots)
        if array.shape != shape or array.dtype != np.float32 or not array.flags.c_contiguous:
            raise ValueError(f"a ring's scales are {array.shape} of {array.dtype}, not {shape} of float32")


def rotations(model: ModelTable, positions: list[int], rings: list[RingTable]) -> tuple[list[int], list[int]]:
    """A step's records.RING and records.ANGLE_ROW, number after number: each rope at each token's position, then the
    rings' own rotations.
    """
    rows = [(rope, position) for rope in range(len(model.ropes)) for position in positions]
    ring_records = list[int]()
    for ring in rings:
        ring_records += (ring.address, len(rows))
        rows += ring.rotations
    return ring_records, [number for row in rows for number in row]
