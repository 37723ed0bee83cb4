"""The tiny models of tests/fixtures/models, made by transformers: each a directory ("hf"), most a GGUF file too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.formats.gguf import open_gguf
from ringlet.core.model_files import load_directory, load_gguf
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.weights import ModelWeights

FOLDER = Path(__file__).parent / "fixtures" / "models"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/config.json"))
FORMS = [(name, "hf") for name in NAMES] + [(name, "gguf") for name in NAMES if (FOLDER / name / "model.gguf").exists()]


@dataclass(frozen=True)
class TinyModel:
    """ids: int list; logits: float32 (len(ids), d_vocab), transformers' own, each after the ids up to it."""

    config: ModelConfig
    weights: ModelWeights
    ids: list[int]
    logits: np.ndarray


def architectures() -> list[type]:
    """Those that Ringlet comes with."""
    return [found.cls for found in PluginManager().registry("architecture").values()]


def open_tiny(name: str, form: str = "hf") -> TinyModel:
    folder = FOLDER / name
    if form == "hf":
        config, weights = load_directory(folder, architectures())
    else:
        config, weights = load_gguf(open_gguf(folder / "model.gguf"), architectures())
    with np.load(folder / "logits.npz") as stored:
        return TinyModel(config, weights, stored["ids"].tolist(), stored["logits"])
