"""The tiny models of tests/fixtures/models, made by transformers: each a directory ("hf"), most a GGUF file too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from ringlet.core.config import ModelConfig
from ringlet.core.formats.gguf import open_gguf
from ringlet.core.loading.model_files import load_directory, load_gguf
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.weights import ModelWeights

FOLDER = Path(__file__).parent / "fixtures" / "models"
PLUGIN = Path(__file__).parent / "fixtures" / "plugins" / "phi.py"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/config.json"))
FORMS = [(name, "hf") for name in NAMES] + [(name, "gguf") for name in NAMES if (FOLDER / name / "model.gguf").exists()]


@dataclass(frozen=True)
class TinyModel:
    """ids: int list; logits: float32 (len(ids), d_vocab), transformers' own, each after the ids up to it."""

    config: ModelConfig
    weights: ModelWeights
    ids: list[int]
    logits: np.ndarray


def architectures(plugins: tuple[Path, ...] = (PLUGIN,)) -> list[type]:
    """Those that Ringlet comes with, and those of plugins' files: one, unless said otherwise."""
    return [found.cls for found in PluginManager(plugins).registry("architecture").values()]


def open_tiny(name: str, form: str = "hf") -> TinyModel:
    folder = FOLDER / name
    if form == "hf":
        config, weights = load_directory(folder, architectures())
    else:
        config, weights = load_gguf(open_gguf(folder / "model.gguf"), architectures())
    with np.load(folder / "logits.npz") as stored:
        return TinyModel(config, weights, stored["ids"].tolist(), stored["logits"])


def copy_model(name: str, folder: Path, changes: dict | None = None, tensors: dict | None = None) -> Path:
    """A tiny model's directory with other keys in config.json and other tensors; None takes one away."""
    values = json.loads((FOLDER / name / "config.json").read_text()) | (changes or {})
    kept = {key: value for key, value in values.items() if value is not None or key not in (changes or {})}
    (folder / "config.json").write_text(json.dumps(kept))
    held = load_file(FOLDER / name / "model.safetensors") | (tensors or {})
    save_file({key: value for key, value in held.items() if value is not None}, folder / "model.safetensors")
    return folder
