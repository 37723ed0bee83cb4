"""Named tensors of a file → our weights, by an architecture's table. Every shape is proved, no tensor is left over."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.errors import FormatError, PluginError, quoted
from ringlet.core.formats.tensor import StoredTensor
from ringlet.core.loading.architecture import SourceTable
from ringlet.core.loading.common_names import HARMLESS_TENSORS
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.weights import LayerWeights, Matrix, ModelWeights

Shape = tuple[int, ...]


def model_shapes(config: ModelConfig, biases: Collection[str]) -> dict[str, Shape]:
    """The weights outside the layers that a model of this recipe has, with their shapes, outputs first."""
    shapes: dict[str, Shape] = {"embedding": (config.d_vocab, config.d_model), "final_norm": (config.d_model,)}
    if not config.tied:
        shapes["W_t"] = (config.d_vocab, config.d_model)
    if config.learned_positions:
        shapes["positions"] = (config.context_length, config.d_model)
    possible = {"final_norm_bias": (config.d_model,), "b_t": (config.d_vocab,)}
    return shapes | {name: shape for name, shape in possible.items() if name in biases}


def layer_shapes(config: ModelConfig, biases: Collection[str]) -> dict[str, Shape]:
    """The weights of one layer of this recipe, with their shapes, outputs first."""
    model, q, k = (config.d_model,), (config.n_heads * config.d_k,), (config.n_kv_heads * config.d_k,)
    v, heads, hidden = (config.n_kv_heads * config.d_v,), (config.n_heads * config.d_v,), (config.d_ff,)
    shapes: dict[str, Shape] = {
        "attention_norm": model, "feed_forward_norm": model,
        "W_q": q + model, "W_k": k + model, "W_v": v + model, "W_o": model + heads,
        "W_up": hidden + model, "W_down": model + hidden,
    }  # fmt: skip
    if config.gated:
        shapes["W_gate"] = hidden + model
    if config.post_norms:
        shapes |= {"attention_post_norm": model, "feed_forward_post_norm": model}
    if config.qk_norm:
        shapes |= {"q_norm": (config.d_k,), "k_norm": (config.d_k,)}
    possible = {
        "b_q": q, "b_k": k, "b_v": v, "b_o": model, "b_gate": hidden, "b_up": hidden, "b_down": model,
        "attention_norm_bias": model, "feed_forward_norm_bias": model,
    }  # fmt: skip
    return shapes | {name: shape for name, shape in possible.items() if name in biases}


@np.errstate(all="ignore")  # weights that are no numbers are seen in the logits
def load_weights(
    table: SourceTable, config: ModelConfig, biases: Collection[str], tensors: Mapping[str, StoredTensor], file: str
) -> ModelWeights:
    """Raises FormatError for a tensor that is missing, of the wrong shape, or left over."""
    loader = WeightLoader(table, config, biases, tensors, file)
    outside = loader.take_all(model_shapes(config, biases), None)
    shapes = layer_shapes(config, biases)
    layers = [LayerWeights(**loader.take_all(shapes, layer)) for layer in range(config.n_layers)]
    loader.refuse_unused()
    outside.setdefault("W_t", outside["embedding"])
    return ModelWeights(layers=tuple(layers), **outside)


class WeightLoader:
    """Hands out weights by our names and remembers which tensors they came from."""

    def __init__(
        self,
        table: SourceTable,
        config: ModelConfig,
        biases: Collection[str],
        tensors: Mapping[str, StoredTensor],
        file: str,
    ) -> None:
        self.table, self.config, self.tensors, self.file = table, config, tensors, file
        self.transposed = table.transposed.split()
        self.shapes = model_shapes(config, biases) | layer_shapes(config, biases)
        self.places = {
            name: (pattern, names.split()) for names, pattern in table.weights.items() for name in names.split()
        }
        self.used: set[str] = set()
        self._shared: dict[str, Matrix | np.ndarray] = {}  # tensors that hold several weights

    def take_all(self, shapes: Mapping[str, Shape], layer: int | None) -> dict[str, Any]:
        """The weights of these names and shapes, each of the kind that its field holds."""
        return {name: self.take(name, layer, shape) for name, shape in shapes.items()}

    def take(self, name: str, layer: int | None, shape: Shape) -> Matrix | np.ndarray:
        """The weight, a Matrix or a float32 vector, of just this shape."""
        if name not in self.places:
            raise FormatError(f"{self.file}: {self.config.architecture} has no tensor for {name} in this format")
        pattern, sharers = self.places[name]
        lacking = next((sharer for sharer in sharers if sharer not in self.shapes), None)
        if lacking is not None:
            raise PluginError(
                f"architecture {self.table.names[0]}: {name} shares a tensor with {lacking}, which the recipe lacks"
            )
        tensor = self.find(pattern.format(layer=layer))
        sizes = [self.shapes[sharer][0] for sharer in sharers]
        self.prove(tensor, (sum(sizes), *shape[1:]), name in self.transposed)
        if len(sharers) == 1:
            return self.read(tensor, name, shape)
        if tensor.name not in self._shared:
            self._shared[tensor.name] = self.read(tensor, name, shape)
        whole, start = self._shared[tensor.name], sum(sizes[: sharers.index(name)])
        stop = start + shape[0]
        return whole.rows(start, stop) if isinstance(whole, Matrix) else whole[start:stop]

    def find(self, name: str) -> StoredTensor:
        tensor = self.table.find(name, self.tensors)
        if tensor is None:
            raise FormatError(f"{self.file}: the tensor {name} is missing")
        self.used.add(tensor.name)
        return tensor

    def prove(self, tensor: StoredTensor, shape: Shape, transposed: bool) -> None:
        stored = shape[::-1] if transposed else shape
        if tuple(tensor.shape) != stored:
            raise FormatError(
                f"{self.file}: tensor {tensor.name} has the shape {list(tensor.shape)}, "
                f"the configuration needs {list(stored)}"
            )

    def read(self, tensor: StoredTensor, name: str, shape: Shape) -> Matrix | np.ndarray:
        if len(shape) == 1:
            vector = tensor.vector()
            return vector + np.float32(self.table.norm_offset) if name.endswith("norm") else vector
        return transpose(tensor) if name in self.transposed else tensor.matrix()

    def refuse_unused(self) -> None:
        ignorable = [*HARMLESS_TENSORS, *self.table.harmless_tensors]
        if "rope_factors" in self.table.weights:
            ignorable.append(self.table.weights["rope_factors"])
        unused = [
            name for name in self.tensors.keys() - self.used if not any(fnmatchcase(name, item) for item in ignorable)
        ]
        if unused:
            raise FormatError(
                f"{self.file}: {len(unused)} tensors have no place in {self.config.architecture}, "
                f"such as {quoted(min(unused))}"
            )


def transpose(tensor: StoredTensor) -> Matrix:
    """A matrix stored with the inputs first, copied to have the outputs first."""
    block = BLOCK_FORMATS.get(tensor.format)
    if block is None or block.n_weights != 1:
        raise FormatError(
            f"{tensor.path}: tensor {tensor.name} is stored inputs first, as {tensor.format}: "
            "F32, F16 or BF16 is needed"
        )
    n_inputs, n_outputs = tensor.shape
    items = np.asarray(tensor.data).reshape(n_inputs, n_outputs, block.n_bytes)
    data = np.ascontiguousarray(items.transpose(1, 0, 2)).reshape(n_outputs, n_inputs * block.n_bytes)
    return Matrix(data, tensor.format, n_inputs)
