"""For each check of architectures, an architecture that fails it: Llama's tables with a slip."""

from __future__ import annotations

from dataclasses import replace

from tiny_models import FOLDER

from ringlet import Architecture
from ringlet.plugins.architectures.llama import Llama

MODEL = str(FOLDER / "llama")


def slip(name: str, **changes: object) -> type[Architecture]:
    """Llama, but that each of its tables has these fields."""
    tables = {"hf": replace(Llama.hf, **changes), "gguf": replace(Llama.gguf, **changes)}
    return type(name, (Architecture,), {"name": name, "recipe": Llama.recipe, **tables})


class NoTables(Architecture):
    name = "no_tables"


def without(name: str) -> dict[str, dict[str, str]]:
    weights = {ours: theirs for ours, theirs in Llama.hf.weights.items() if ours != name}
    return {"weights": weights}


class LacksWeight(Architecture):
    name = "lacks_weight"
    recipe = Llama.recipe
    hf = replace(Llama.hf, weights={ours: at for ours, at in Llama.hf.weights.items() if ours != "W_gate"})
    gguf = replace(Llama.gguf, weights={ours: at for ours, at in Llama.gguf.weights.items() if ours != "W_gate"})


class TooLarge(Architecture):
    name = "too_large"
    recipe = {**Llama.recipe, "embedding_scale": 1e30}
    hf = replace(Llama.hf, defaults={**Llama.hf.defaults, "score_scale": 1e30})
    gguf = replace(Llama.gguf, defaults={**Llama.gguf.defaults, "score_scale": 1e30})


FAULTY: dict[type[Architecture], str] = {
    NoTables: "it reads a format",
    LacksWeight: "config.json and safetensors: every weight of the recipe has a tensor",
    slip("EveryKey", harmless_keys=("*",)): "config.json and safetensors: a key that nobody reads is refused",
    slip("EveryTensor", harmless_tensors=("*",)): "GGUF: a tensor without a place is refused",
    TooLarge: "GGUF: its logits are numbers, however they are cut",
    slip("OtherNames", names=("other",)): f"{MODEL}: all of it is read",
}
