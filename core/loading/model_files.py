"""The files of a model → its configuration and weights: config.json and safetensors, or GGUF."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ringlet.core.config import ModelConfig
from ringlet.core.errors import FormatError, PluginError, RingletError, fault_text, quoted
from ringlet.core.formats.gguf import GGUFFile
from ringlet.core.formats.json_object import read_json_object
from ringlet.core.formats.safetensors import open_safetensors
from ringlet.core.formats.tensor import StoredTensor
from ringlet.core.loading.architecture import Architecture, SourceTable, read_config
from ringlet.core.loading.common_names import HARMLESS_GGUF_KEYS, HARMLESS_HF_KEYS
from ringlet.core.loading.config_reader import ConfigReader
from ringlet.core.loading.weight_loading import load_weights
from ringlet.core.weights import ModelWeights


def load_directory(
    directory: Path, architectures: Iterable[type[Architecture]], mmap: bool = True, ignored: Collection[str] = ()
) -> tuple[ModelConfig, ModelWeights]:
    """From config.json and safetensors."""
    file = directory / "config.json"
    if not file.is_file():
        raise FormatError(f"{directory}: no config.json in this directory: it is not a model")
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
    values = {key.removeprefix(prefix): opened.metadata[key] for key in opened.metadata if key.startswith(prefix)}
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
    with faults_of(architecture, config.file):
        return read_tables(architecture, table, config, tensors, harmless_keys)


@contextmanager
def faults_of(architecture: type[Architecture], file: str) -> Iterator[None]:
    """What goes wrong while a plugin's tables are used, and functions in them called, names the plugin."""
    origin = architecture.origin
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin does not end the process
        if origin is None:
            raise
        if isinstance(error, RingletError):
            kind = PluginError if isinstance(error, PluginError) else FormatError
            raise kind(f"{error} (architecture {architecture.name} of {origin})") from error
        line = f"architecture {architecture.name} ({origin}): tables: {fault_text(error)}, while {file} was read"
        raise PluginError(line) from error


def read_tables(
    architecture: type[Architecture],
    table: SourceTable,
    config: ConfigReader,
    tensors: dict[str, StoredTensor],
    harmless_keys: Collection[str],
) -> tuple[ModelConfig, ModelWeights]:
    language = config.section(table.section) if table.section else config
    if language is None:
        raise FormatError(f"{config.file}: {table.section} is missing")
    model_config, biases = read_config(architecture, table, language, tensors)
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
    raise FormatError(f"{file}: the architecture {quoted(kind)} is not supported; known are {', '.join(sorted(known))}")
