"""A loaded model: its configuration, weights and tokenizer, from a GGUF file or a directory."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from ringlet.core.architecture import Architecture, SourceTable, read_config
from ringlet.core.common_names import HARMLESS_GGUF_KEYS, HARMLESS_HF_KEYS
from ringlet.core.config import ModelConfig
from ringlet.core.config_reader import ConfigReader
from ringlet.core.errors import FormatError
from ringlet.core.formats.gguf import GGUFFile, open_gguf
from ringlet.core.formats.safetensors import open_safetensors
from ringlet.core.formats.source import resolve_source
from ringlet.core.formats.tensor import StoredTensor
from ringlet.core.weight_loading import load_weights
from ringlet.core.weights import ModelWeights
from ringlet.tokenization.tokenizer import Tokenizer

LARGEST_CONFIG = 1 << 24  # bytes


@dataclass(frozen=True)
class Model:
    """All that a backend and the pipeline need. name: how messages call it. path: the GGUF file or the directory."""

    config: ModelConfig
    weights: ModelWeights
    tokenizer: Tokenizer
    name: str
    path: Path


def load_model(
    source: str | os.PathLike[str] | None,
    architectures: Iterable[type[Architecture]],
    *,
    mmap: bool = True,
    ignore_config_keys: Collection[str] = (),
) -> Model:
    """The model that `source` names (see `formats.source.resolve_source`), its weights memory-mapped.

    architectures: those known. ignore_config_keys: configuration keys to treat as not there.
    Raises FormatError, which names the file and what is wrong with it.
    """
    found = resolve_source(source)
    path = Path(found.path)
    if found.kind == "gguf":
        opened = open_gguf(path, mmap)
        config, weights = load_gguf(opened, architectures, ignore_config_keys)
        tokenizer = Tokenizer.from_gguf(opened.metadata, name=str(path))
    else:
        config, weights = load_directory(path, architectures, mmap, ignore_config_keys)
        tokenizer = Tokenizer.from_directory(path)
    return Model(config, weights, tokenizer, found.name, path)


def load_directory(
    directory: Path, architectures: Iterable[type[Architecture]], mmap: bool = True, ignored: Collection[str] = ()
) -> tuple[ModelConfig, ModelWeights]:
    """From config.json and safetensors."""
    file = directory / "config.json"
    values = read_json_object(file)
    kind = values.get("model_type")
    if not isinstance(kind, str):
        raise FormatError(f"{file}: model_type is missing: it must name the architecture")
    architecture, table = find_table(kind, "hf", architectures, str(file))
    config = ConfigReader(values, str(file), ignored)
    tensors = open_safetensors(directory, mmap)
    return load_tables(architecture, table, config, tensors, HARMLESS_HF_KEYS)


def load_gguf(
    opened: GGUFFile, architectures: Iterable[type[Architecture]], ignored: Collection[str] = ()
) -> tuple[ModelConfig, ModelWeights]:
    """From an open GGUF file: the metadata under the architecture's own prefix, and the tensors."""
    path = opened.path
    kind = opened.metadata.get("general.architecture")
    if not isinstance(kind, str):
        raise FormatError(f"{path}: general.architecture is missing")
    architecture, table = find_table(kind, "gguf", architectures, str(path))
    prefix = f"{kind}."
    values = {key.removeprefix(prefix): value for key, value in opened.metadata.items() if key.startswith(prefix)}
    config = ConfigReader(values, str(path), ignored, prefix)
    return load_tables(architecture, table, config, opened.tensors, HARMLESS_GGUF_KEYS)


def load_tables(
    architecture: type[Architecture],
    table: SourceTable,
    config: ConfigReader,
    tensors: dict[str, StoredTensor],
    harmless_keys: Collection[str],
) -> tuple[ModelConfig, ModelWeights]:
    """What is common to both formats."""
    model_config, biases = read_config(architecture, table, config, tensors)
    config.refuse_unread((*harmless_keys, *table.harmless_keys))
    return model_config, load_weights(table, model_config, biases, tensors, config.file)


def find_table(
    kind: str, format: str, architectures: Iterable[type[Architecture]], file: str
) -> tuple[type[Architecture], SourceTable]:
    """The architecture that reads models of this kind in this format, and its table."""
    known = set()
    for architecture in architectures:
        table = getattr(architecture, format)
        if table is not None:
            if kind in table.names:
                return architecture, table
            known.update(table.names)
    raise FormatError(f"{file}: the architecture {kind!r} is not supported; known are {', '.join(sorted(known))}")


def read_json_object(file: Path) -> dict:
    """The object that a JSON file holds; FormatError where there is none."""
    if not file.is_file():
        raise FormatError(f"{file.parent}: no {file.name} in this directory: it is not a model")
    if file.stat().st_size > LARGEST_CONFIG:
        raise FormatError(f"{file}: more than {LARGEST_CONFIG >> 20} MiB: it is not a configuration")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file}: not valid JSON ({error})") from None
    if not isinstance(values, dict):
        raise FormatError(f"{file}: a JSON object is needed")
    return values
