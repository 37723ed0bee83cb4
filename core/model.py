"""A loaded model: its configuration, weights and tokenizer, from a GGUF file or a directory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from ringlet.core.config import ModelConfig
from ringlet.core.errors import one_line
from ringlet.core.formats.gguf import open_gguf
from ringlet.core.formats.source import resolve_source
from ringlet.core.loading.architecture import Architecture
from ringlet.core.loading.model_files import load_directory, load_gguf
from ringlet.core.weights import ModelWeights
from ringlet.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True)
class Model:
    """All that a backend and the pipeline need. name: how messages call it. path: the GGUF file or the directory."""

    config: ModelConfig
    weights: ModelWeights
    tokenizer: Tokenizer
    name: str
    path: Path

    def __repr__(self) -> str:
        return f"<Model {one_line(self.name)}: {self.config.sizes}, {self.weights.nbytes / 1e6:.1f} MB>"

    def __deepcopy__(self, memo: dict[int, object]) -> Model:
        """Nothing in it changes, and it is large: the copies of a sampler that keeps one share it."""
        return self


def load_model(
    source: str | os.PathLike[str] | None,
    architectures: Iterable[type[Architecture]],
    *,
    mmap: bool = True,
    ignore_config_keys: Collection[str] = (),
    quantize: str | None = None,
    threads: int | None = None,
) -> Model:
    """The model that `source` names (see `formats.source.resolve_source`), its weights memory-mapped.

    architectures: those known. ignore_config_keys: configuration keys to treat as not there. quantize: what the weights
    are quantised to, a value of `quantizing.plan.FORMATS`; threads: that do it, None for all cores.
    Raises FormatError, which names the file and what is wrong with it.
    """
    found = resolve_source(source)
    path = Path(found.path)
    if found.kind == "gguf":
        opened = open_gguf(path, mmap)
        config, weights = load_gguf(opened, architectures, ignore_config_keys)
        files = list(opened.paths)
        tokenizer = Tokenizer.from_gguf(opened.metadata, name=str(path))
    else:
        config, weights = load_directory(path, architectures, mmap, ignore_config_keys)
        files = sorted(path.glob("*.safetensors"))
        tokenizer = Tokenizer.from_directory(path)
    if quantize is not None:
        from ringlet.core.quantizing.weights import quantize_weights

        weights = quantize_weights(weights, quantize, found.name, path, files, mmap, threads)
    return Model(config, weights, tokenizer, found.name, path)
