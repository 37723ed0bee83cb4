"""Architectures as tables: what they read, what they refuse, and how a plugin adds one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_models import FOLDER, FORMS, NAMES, architectures, copy_model, open_tiny

from ringlet.core.config import ModelConfig
from ringlet.core.errors import PluginError
from ringlet.core.formats.gguf import open_gguf
from ringlet.core.loading.architecture import Architecture, SourceTable
from ringlet.core.loading.layers import HuggingFaceLayers
from ringlet.core.loading.model_files import load_directory, load_gguf
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.weights import ModelWeights
from ringlet.plugins.architectures.llama import Llama


def load(folder: Path, ignored: tuple[str, ...] = ()) -> tuple[ModelConfig, ModelWeights]:
    return load_directory(folder, architectures(), ignored=ignored)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama", {"rope_parameters": None, "rope_theta": 10000.0}),
        ("llama", {"rope_parameters": None, "rope_scaling": {"type": "default"}}),
        (
            "llama_llama3",
            {
                "rope_parameters": None,
                "rope_theta": 500.0,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 32,
                },
            },
        ),
        ("llama_linear_biases", {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 4.0}}),
        ("gemma3", {"rope_parameters": None, "layer_types": None, "_sliding_window_pattern": None}),
        ("gemma3", {"rope_parameters": None, "rope_theta": 1000000, "rope_local_base_freq": 10000}),
        (
            "gemma3_linear",
            {
                "rope_parameters": None,
                "rope_theta": 20000,
                "rope_local_base_freq": 50,
                "rope_scaling": {"type": "linear", "factor": 8.0},
            },
        ),
        ("qwen2_window", {"layer_types": None}),
    ],
)
def test_older_spellings_say_the_same(name: str, changes: dict, tmp_path: Path) -> None:
    """As config.json was written before transformers 5, and with the architecture's defaults left out."""
    assert load(copy_model(name, tmp_path, changes))[0] == open_tiny(name).config


@pytest.mark.parametrize("name", [name for name, form in FORMS if form == "gguf" and name != "mistral"])
def test_both_forms_of_a_model_are_one_model(name: str) -> None:
    """Sizes, windows and scales agree; RoPE's frequencies to float32's last bits, in which GGUF holds the base."""
    hf, gguf = open_tiny(name).config, open_tiny(name, "gguf").config
    for mine, other in zip(hf.layers, gguf.layers, strict=True):
        assert mine.window == other.window
        if mine.rope is not None and other.rope is not None:
            np.testing.assert_allclose(mine.rope.frequencies, other.rope.frequencies, rtol=1e-6)
            assert mine.rope.magnitude == other.rope.magnitude
    assert replace(gguf, layers=hf.layers, norm_epsilon=hf.norm_epsilon) == hf
    assert gguf.norm_epsilon == pytest.approx(hf.norm_epsilon, rel=1e-6)


def test_mistral_without_a_window(tmp_path: Path) -> None:
    """null says that there is none; a key that is not there means Mistral's 4,096."""
    file = copy_model("mistral", tmp_path) / "config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"sliding_window": None}))
    assert {layer.window for layer in load(tmp_path)[0].layers} == {None}
    del values["sliding_window"]
    file.write_text(json.dumps(values))
    assert {layer.window for layer in load(tmp_path)[0].layers} == {4096}


def test_weights_are_views_of_the_file() -> None:
    """Nothing is copied, fused rows neither, but GPT-2's transposed matrices."""
    transposed = ("W_q", "W_k", "W_v", "W_o", "W_up", "W_down")
    for name, form in FORMS:
        tiny = open_tiny(name, form)
        copied = {key for key, matrix in tiny.weights.matrices().items() if not is_mapped(matrix.data)}
        if (name, form) == ("gpt2", "hf"):
            assert all(key.split(".")[-1] in transposed for key in copied)
            assert len(copied) == 6 * tiny.config.n_layers
        else:
            assert not copied, (name, form)


def is_mapped(data: np.ndarray) -> bool:
    """Whether the array's memory is a memory map's."""
    base: object = data
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return base is not None


@pytest.mark.parametrize("order", [1, -1])
def test_an_output_matrix_of_the_files_own_overrules_tying(order: int, tmp_path: Path) -> None:
    """As in transformers 5, where both differ; and where they do not, no page of either is read to find out."""
    held = load_file(FOLDER / "qwen3" / "model.safetensors")["model.embed_tokens.weight"]
    config, weights = load(copy_model("qwen3", tmp_path, tensors={"lm_head.weight": held[::order].copy()}))
    assert not config.tied
    np.testing.assert_array_equal(weights.W_t.dequantize(), held[::order].astype(np.float32))


def test_buffers_of_old_checkpoints_are_left_aside(tmp_path: Path) -> None:
    buffers = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    load(copy_model("llama", tmp_path, tensors=buffers))
    masks = {f"transformer.h.{n}.attn.bias": np.ones((1, 1, 64, 64), np.float32) for n in range(2)}
    load(copy_model("gpt2", tmp_path, tensors={**masks, "transformer.h.0.attn.masked_bias": np.ones(1, np.float32)}))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "qwen2"])  # its BF16 is more than NumPy knows
def test_tensors_may_lack_the_models_prefix(name: str, tmp_path: Path) -> None:
    """Base models are saved without "model." before their names."""
    copy_model(name, tmp_path)
    held = load_file(tmp_path / "model.safetensors")
    prefixes = ("model.", "transformer.", "language_model.model.")
    for prefix in prefixes:
        held = {key.removeprefix(prefix): value for key, value in held.items()}
    save_file(held, tmp_path / "model.safetensors")
    assert load(tmp_path)[0] == open_tiny(name).config


PLUGIN = """
from dataclasses import replace
from ringlet.core.hookspecs import hookimpl
from ringlet.core.loading.architecture import Architecture
from ringlet.plugins.architectures.llama import Llama

class Fused(Architecture):
    name = "fused"
    recipe = Llama.recipe
    hf = replace(
        Llama.hf,
        names=("fused",),
        weights={
            **{ours: theirs for ours, theirs in Llama.hf.weights.items() if ours not in ("W_gate", "W_up")},
            "W_gate W_up": "layers.{layer}.mlp.gate_up_proj.weight",
        },
    )

@hookimpl
def register_architectures(register):
    register(Fused)
"""


def test_a_plugin_adds_an_architecture_by_a_table(tmp_path: Path) -> None:
    """A family that differs from Llama in one fused matrix, from a file, gives Llama's own weights."""
    (tmp_path / "fused.py").write_text(PLUGIN)
    copy_model("llama", tmp_path, {"model_type": "fused"})
    held = load_file(tmp_path / "model.safetensors")
    for layer in range(2):
        parts = [held.pop(f"model.layers.{layer}.mlp.{part}_proj.weight") for part in ("gate", "up")]
        held[f"model.layers.{layer}.mlp.gate_up_proj.weight"] = np.concatenate(parts)
    save_file(held, tmp_path / "model.safetensors")
    registry = PluginManager([tmp_path / "fused.py"]).registry("architecture")
    config, weights = load_directory(tmp_path, [found.cls for found in registry.values()])
    tiny = open_tiny("llama")
    assert config == replace(tiny.config, architecture="fused")
    for name, matrix in weights.matrices().items():
        np.testing.assert_array_equal(matrix.dequantize(), tiny.weights.matrices()[name].dequantize())


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"keys": {"d_modle": "hidden_size"}}, "d_modle"),
        ({"defaults": {"norms": "rms"}}, "norms"),
        ({"weights": {"W_x": "x.weight"}}, "W_x"),
        ({"biases": "b_x"}, "b_x"),
        ({"transposed": "W_qkv"}, "W_qkv"),
    ],
)
def test_a_plugins_slip_is_named(change: dict, fault: str) -> None:
    with pytest.raises(PluginError, match=fault):
        replace(Llama.hf, **change)


def test_a_plugins_recipe_is_checked() -> None:
    with pytest.raises(PluginError, match="normm"):
        type("Slip", (Architecture,), {"name": "slip", "recipe": {"normm": "rms"}})
    with pytest.raises(PluginError, match="hf must be a SourceTable"):
        type("Slip", (Architecture,), {"name": "slip", "hf": {}})


def test_sizes_without_key_or_default_are_the_plugins_fault(tmp_path: Path) -> None:
    keys = {field: key for field, key in Llama.hf.keys.items() if field != "d_ff"}
    table = SourceTable(names=("llama",), keys=keys, weights=Llama.hf.weights, layers=HuggingFaceLayers())
    slip = type("Slip", (Architecture,), {"name": "slip", "hf": table})
    with pytest.raises(PluginError, match="d_ff has neither a key nor a default"):
        load_directory(copy_model("llama", tmp_path), [slip])


def test_a_fused_tensor_needs_all_its_parts_in_the_recipe(tmp_path: Path) -> None:
    weights = {ours: theirs for ours, theirs in Llama.hf.weights.items() if ours not in ("W_gate", "W_up")}
    table = replace(Llama.hf, weights={**weights, "W_gate W_up": "layers.{layer}.mlp.up_proj.weight"})
    slip = type("Slip", (Architecture,), {"name": "slip", "hf": table, "recipe": {"gated": False}})
    with pytest.raises(PluginError, match="W_up shares a tensor with W_gate, which the recipe lacks"):
        load_directory(copy_model("llama", tmp_path), [slip])


@pytest.mark.parametrize("value", [[4, 4], [2, 2]])
def test_gguf_may_give_a_size_for_each_layer(value: list[int]) -> None:
    opened = open_gguf(FOLDER / "llama" / "model.gguf")
    key = "llama.attention.head_count" if value[0] == 4 else "llama.attention.head_count_kv"
    changed = replace(opened, metadata={**opened.metadata, key: np.array(value, np.int32)})
    assert load_gguf(changed, architectures())[0] == open_tiny("llama", "gguf").config
