"""The tables against transformers itself: its defaults, its RoPE, and its own reading of our GGUF files."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tiny_models import FOLDER, FORMS, architectures, open_tiny

from ringlet.core.loading.architecture import Key, SourceTable
from ringlet.core.loading.common_names import ACTIVATIONS
from ringlet.core.loading.config_reader import ConfigReader
from ringlet.core.loading.layers import HuggingFaceLayers

pytestmark = pytest.mark.reference

TABLES = [(cls.hf.names[0], cls.hf) for cls in architectures(plugins=()) if cls.hf.section is None]


@pytest.mark.parametrize(("model_type", "table"), TABLES, ids=[name for name, _ in TABLES])
def test_defaults_are_those_of_transformers(model_type: str, table: SourceTable) -> None:
    """What a config.json that says nothing means."""
    transformers = pytest.importorskip("transformers")
    config = transformers.CONFIG_MAPPING[model_type]()
    sizes: dict[str, Any] = {}
    for field, entry in table.keys.items():
        if field == "d_vocab":
            continue
        key = entry.name if isinstance(entry, Key) else entry
        default = table.defaults.get(field)
        sizes[field] = default(sizes) if callable(default) else default
        theirs = getattr(config, key, None)
        if isinstance(entry, Key) and theirs is not None:
            theirs = entry.convert(theirs)
        elif field == "activation":
            theirs = ACTIVATIONS[theirs]
        if sizes[field] is None:  # left out: it follows from other sizes
            derived = {"n_kv_heads": sizes.get("n_heads"), "d_k": sizes["d_model"] // config.num_attention_heads}
            assert theirs in (None, derived.get(field)), field
        elif field == "d_ff" and theirs is None:
            assert sizes[field] == 4 * config.hidden_size  # GPT2MLP's own rule
        else:
            assert sizes[field] == theirs, field


@pytest.mark.parametrize(("model_type", "table"), TABLES, ids=[name for name, _ in TABLES])
def test_default_layers_are_those_of_transformers(model_type: str, table: SourceTable) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.CONFIG_MAPPING[model_type]()
    n_layers = config.num_hidden_layers
    sizes = {"d_k": 64, "n_layers": n_layers, "context_length": 1024}
    layers = table.layers.read(ConfigReader({}, "config.json"), sizes, None)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * n_layers
    if model_type == "mistral":
        kinds = ["sliding_attention"] * n_layers
    for layer, kind in zip(layers, kinds, strict=True):
        assert layer.window == (config.sliding_window if kind == "sliding_attention" else None)
        parameters = getattr(config, "rope_parameters", None)
        if parameters:
            base = parameters.get(kind, parameters)["rope_theta"]
            assert layer.rope is not None
            assert layer.rope.frequencies[1] == pytest.approx(base ** (-2 / 64))
        else:
            assert layer.rope is None


YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 512}
ROPES = [
    {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0},
    {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    YARN,
    YARN | {"beta_fast": 16.0, "beta_slow": 2.0},
    YARN | {"truncate": False},
    YARN | {"attention_factor": 0.75},
    YARN | {"mscale": 0.7, "mscale_all_dim": 1.3},
    YARN | {"factor": 1.0},
    YARN | {"rope_theta": 10.0, "original_max_position_embeddings": 8},
    {key: value for key, value in YARN.items() if key != "original_max_position_embeddings"},
]


@pytest.mark.parametrize("d_k", [8, 64, 80])
@pytest.mark.parametrize("parameters", ROPES, ids=lambda parameters: "-".join(map(str, parameters.values())))
def test_rope_scalings_are_those_of_transformers(parameters: dict, d_k: int) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = transformers.LlamaConfig(
        head_dim=d_k, max_position_embeddings=4096, rope_parameters=dict(parameters), hidden_size=4 * d_k,
        num_attention_heads=4,
    )  # fmt: skip
    frequencies, magnitude = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
    reader = ConfigReader({"rope_parameters": parameters}, "config.json")
    sizes = {"d_k": d_k, "n_layers": 1, "context_length": 4096}
    rope = HuggingFaceLayers().read(reader, sizes, None)[0].rope
    reader.refuse_unread(())
    assert rope is not None
    np.testing.assert_allclose(rope.frequencies, frequencies.numpy(), rtol=2e-6)
    assert math.isclose(rope.magnitude, magnitude, rel_tol=1e-12)


@pytest.mark.parametrize("name", [name for name, form in FORMS if form == "gguf" and name != "mistral"])
def test_transformers_reads_the_gguf_files_alike(name: str) -> None:
    """An independent reader finds the model in the tensors, so they are as llama.cpp's converter writes them.

    The configuration is given, as transformers reads only some of a GGUF file's. It knows no GGUF for Mistral.
    """
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = FOLDER / name
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file="model.gguf",
        config=transformers.AutoConfig.from_pretrained(folder),
        dtype=torch.float32,
        attn_implementation="eager",
    )
    tiny = open_tiny(name, "gguf")
    with torch.no_grad():
        logits = model(torch.tensor([tiny.ids])).logits[0].numpy()
    assert np.abs(logits - tiny.logits).max() < 1e-4 * np.abs(tiny.logits).max()
