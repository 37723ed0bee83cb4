"""What every architecture has to do: read a model that lies as its tables say, and leave nothing of it over.

A model's directory or GGUF file is read where one is given. Without one, a small model is made up from the tables
themselves: a configuration that answers every key they ask for, and a tensor for every weight that the recipe needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.config import ModelConfig
from ringlet.core.errors import FormatError
from ringlet.core.formats.gguf import open_gguf
from ringlet.core.formats.source import resolve_source
from ringlet.core.formats.tensor import StoredTensor
from ringlet.core.loading.architecture import Architecture, Key, SourceTable, read_config
from ringlet.core.loading.common_names import HARMLESS_GGUF_KEYS, HARMLESS_HF_KEYS
from ringlet.core.loading.config_reader import REQUIRED, ConfigReader
from ringlet.core.loading.model_files import load_directory, load_gguf, load_tables
from ringlet.core.loading.weight_loading import layer_shapes, model_shapes
from ringlet.core.ring_cache import RingLayout
from ringlet.core.weights import ModelWeights
from ringlet.testing.checks import Check, require
from ringlet.testing.random_models import in_pieces, tokens

FORMATS = {"hf": "config.json and safetensors", "gguf": "GGUF"}
SIZES: dict[str, Any] = {
    "d_model": 24, "d_k": 8, "d_v": 8, "d_ff": 40, "d_vocab": 37, "n_layers": 6, "n_heads": 4, "n_kv_heads": 2,
    "context_length": 64, "norm_epsilon": 1e-5,
}  # fmt: skip
MADE_UP = Path("a model made up from the tables")
TOLERANCE = 1e-4  # of the largest logit

Loaded = tuple[ModelConfig, ModelWeights]


def architecture_checks(
    architecture: type[Architecture], reference: type[Backend], model: str | None = None
) -> Iterator[Check]:
    """The suite. reference: the numpy backend's class. model: a directory, a GGUF file or a name of the Hub."""
    yield Check("it reads a format", partial(reads_a_format, architecture))
    for format, about in FORMATS.items():
        table = getattr(architecture, format)
        if table is not None:
            tables = (architecture, table, format)
            made_up = partial(made_up_model, *tables)
            yield Check(f"{about}: every weight of the recipe has a tensor", partial(reads, made_up))
            yield Check(f"{about}: a key that nobody reads is refused", partial(refuses_keys, *tables))
            yield Check(f"{about}: a tensor without a place is refused", partial(refuses_tensors, *tables))
            yield Check(f"{about}: its logits are numbers, however they are cut", partial(computes, made_up, reference))
    if model is not None:
        given = partial(load_given, architecture, model)
        yield Check(f"{model}: all of it is read", partial(reads, given))
        yield Check(f"{model}: its logits are numbers, however they are cut", partial(computes, given, reference))


def reads_a_format(architecture: type[Architecture]) -> None:
    require(bool(architecture.hf or architecture.gguf), "it has neither hf nor gguf: give it a SourceTable")


def reads(load: Callable[[], Loaded]) -> None:
    load()


def computes(load: Callable[[], Loaded], reference: type[Backend]) -> None:
    """In one piece, and in pieces."""
    config, weights = load()
    backend = reference(config, weights)
    ids = tokens(min(24, config.context_length), config)
    layout = RingLayout.of(config, len(ids), chunk=len(ids))
    whole, cut = (in_pieces(backend, backend.new_ring(layout, "f32"), ids, sizes) for sizes in ([len(ids)], [5, 1]))
    require(bool(np.isfinite(whole).all()) and bool(whole.any()), "the logits hold NaN or infinity, or nothing but 0")
    error = float(np.abs(whole - cut).max() / np.abs(whole).max())
    require(error <= TOLERANCE, f"in pieces the logits are off by {error:.2g} of the largest")


def load_given(architecture: type[Architecture], source: str) -> Loaded:
    """Configuration and weights; a tokenizer is not asked for."""
    found = resolve_source(source)
    path = Path(found.path)
    if found.kind == "gguf":
        return load_gguf(open_gguf(path), [architecture])
    return load_directory(path, [architecture])


# --- a model made up from the tables ---------------------------------------------------------------------------------


class AnsweringReader(ConfigReader):
    """A configuration that has an answer to every key that must be there."""

    def whole(self, key: str, default: Any = REQUIRED) -> Any:
        return super().whole(key, 4 if default is REQUIRED else default)

    def number(self, key: str, default: Any = REQUIRED) -> Any:
        return super().number(key, 2.0 if default is REQUIRED else default)

    def flag(self, key: str, default: Any = REQUIRED) -> Any:
        return super().flag(key, False if default is REQUIRED else default)

    def choice(self, key: str, choices: Mapping[str, Any], default: Any = REQUIRED) -> Any:
        return super().choice(key, choices, next(iter(choices.values())) if default is REQUIRED else default)


def made_up_values(table: SourceTable) -> dict[str, Any]:
    """The sizes under their keys, in the section that the table names."""
    values = {key: SIZES[field] for field, key in table.keys.items() if field in SIZES and isinstance(key, str)}
    values |= {key.name: 16.0 for key in table.keys.values() if isinstance(key, Key)}
    return {table.section: values} if table.section else values


def made_up_model(
    architecture: type[Architecture],
    table: SourceTable,
    format: str,
    extra_values: Mapping[str, Any] = {},
    extra_tensors: Collection[str] = (),
) -> Loaded:
    """Raises what loading raises: FormatError names what the tables lack."""
    config, biases = made_up_config(architecture, table)
    tensors = dict(made_up_tensors(table, config, biases))
    tensors |= {name: stored(name, (3,)) for name in extra_tensors}
    reader = AnsweringReader({**made_up_values(table), **extra_values}, str(MADE_UP))
    harmless = HARMLESS_HF_KEYS if format == "hf" else HARMLESS_GGUF_KEYS
    return load_tables(architecture, table, reader, tensors, harmless)


def made_up_config(architecture: type[Architecture], table: SourceTable) -> tuple[ModelConfig, set[str]]:
    """What the tables make of the sizes, before any tensor but the embedding is there."""
    reader = AnsweringReader(made_up_values(table), str(MADE_UP))
    language = reader.section(table.section) if table.section else reader
    assert language is not None
    require("embedding" in table.weights, "weights names no tensor for the embedding")
    name = table.weights["embedding"]
    tensors = {name: stored(name, (SIZES["d_vocab"], SIZES["d_model"]))}
    tensors |= {f"side {n}": stored(f"side {n}", (512,)) for n in range(64)}  # sizes are held against the tensors'
    return read_config(architecture, table, language, tensors)


def made_up_tensors(
    table: SourceTable, config: ModelConfig, biases: Collection[str]
) -> Iterator[tuple[str, StoredTensor]]:
    """A tensor for each weight of the recipe, or of the several that share one, by its name in the file."""
    outside, inside = model_shapes(config, biases), layer_shapes(config, biases)
    for shapes, layers in ((outside, [None]), (inside, list(range(config.n_layers)))):
        known = " ".join(table.weights).split()
        for ours in shapes:
            require(ours in known, f"weights names no tensor for {ours}, which the recipe needs")
        for names, pattern in table.weights.items():
            sharers = names.split()
            if sharers[0] not in shapes:
                continue
            shape = (sum(shapes[sharer][0] for sharer in sharers if sharer in shapes), *shapes[sharers[0]][1:])
            shape = shape[::-1] if sharers[0] in table.transposed.split() else shape
            for layer in layers:
                name = pattern.format(layer=layer)
                yield name, stored(name, shape)


def stored(name: str, shape: tuple[int, ...]) -> StoredTensor:
    """A tensor of F32 with numbers that depend on its name and shape alone."""
    rng = np.random.default_rng([len(name), *name.encode(), *shape])
    values = rng.normal(0, 1 / np.sqrt(shape[-1]), shape).astype(np.float32)
    return StoredTensor(name, shape, "F32", values.reshape(-1).view(np.uint8), MADE_UP)


def refuses_keys(architecture: type[Architecture], table: SourceTable, format: str) -> None:
    try:
        made_up_model(architecture, table, format, extra_values={"a_key_that_nobody_reads": 5})
    except FormatError as error:
        require("a_key_that_nobody_reads" in str(error), f"it was refused, but for another reason: {error}")
        return
    require(False, "harmless_keys takes every key: what a model's configuration says would be passed over")


def refuses_tensors(architecture: type[Architecture], table: SourceTable, format: str) -> None:
    try:
        made_up_model(architecture, table, format, extra_tensors=["a.tensor.without.a.place"])
    except FormatError as error:
        require("a.tensor.without.a.place" in str(error), f"it was refused, but for another reason: {error}")
        return
    require(False, "harmless_tensors takes every tensor: weights of a model would be passed over")
