"""What bad models get: one line that names the file and what is wrong with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import FOLDER, architectures, copy_model

from ringlet.core.errors import RingletError
from ringlet.core.formats.gguf import open_gguf
from ringlet.core.loading.model_files import load_directory, load_gguf
from ringlet.core.model import load_model


def refusal(load: Callable[[], Any]) -> str:
    """The one line that a load ends with."""
    with pytest.raises(RingletError) as caught:
        load()
    line = str(caught.value)
    assert "\n" not in line
    return line


def refused_directory(folder: Path, *needed: str) -> None:
    line = refusal(lambda: load_directory(folder, architectures()))
    for part in (str(folder), *needed):
        assert part in line, line


HOSTILE_CONFIGS = [
    ("llama", {"hidden_size": "64"}, "hidden_size is '64'"),
    ("llama", {"hidden_size": 64.0}, "hidden_size is 64.0"),
    ("llama", {"hidden_size": True}, "hidden_size is True"),
    ("llama", {"hidden_size": -64}, "hidden_size is -64"),
    ("llama", {"hidden_size": 0}, "hidden_size is 0"),
    ("llama", {"hidden_size": 1 << 80}, "hidden_size is"),
    ("llama", {"hidden_size": [64, 32]}, "hidden_size is [64, 32]"),
    ("llama", {"hidden_size": {"a": 1}}, "hidden_size is"),
    ("llama", {"num_hidden_layers": 1 << 30}, "1073741824 layers"),
    ("llama", {"head_dim": 1 << 30}, "d_k is 1073741824"),
    ("llama", {"intermediate_size": 1 << 30}, "d_ff is 1073741824"),
    ("llama", {"num_attention_heads": 3, "head_dim": None}, "d_model 64 is not a multiple of 3 heads"),
    ("llama", {"num_attention_heads": 8, "head_dim": None}, "has the shape [32, 64], the configuration needs [16, 64]"),
    ("llama", {"num_key_value_heads": 3}, "n_kv_heads 3"),
    ("llama", {"head_dim": 64}, "self_attn.q_proj.weight has the shape [64, 64], the configuration needs [256, 64]"),
    ("llama", {"head_dim": 15}, "RoPE cannot rotate 15"),
    ("llama", {"num_hidden_layers": 1}, "have no place in llama, such as 'model.layers.1."),
    ("llama", {"num_hidden_layers": 3}, "layers.2.input_layernorm.weight is missing"),
    ("llama", {"intermediate_size": 71}, "has the shape [72, 64], the configuration needs [71, 64]"),
    ("llama", {"vocab_size": 127}, "the vocabulary is 127, but model.embed_tokens.weight has 128 rows"),
    ("llama", {"rms_norm_eps": "1e-5"}, "rms_norm_eps is '1e-5'"),
    ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
    ("llama", {"rms_norm_eps": float("inf")}, "rms_norm_eps is inf"),
    ("llama", {"rms_norm_eps": 0}, "rms_norm_eps is 0"),
    ("llama", {"hidden_act": "relu2"}, "hidden_act is 'relu2': known are silu"),
    ("llama", {"hidden_act": ["silu"]}, "hidden_act is ['silu']"),
    ("llama", {"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no': true or false is needed"),
    ("llama", {"tie_word_embeddings": True, "mlp_bias": True}, "layers.0.mlp.gate_proj.bias is missing"),
    ("llama", {"is_causal": False}, "is_causal is False: only true is supported"),
    ("llama", {"sliding_window": 16}, "sliding_window is 16: it may change the result"),
    ("llama", {"logit_scale": 0.5}, "--ignore-config-key logit_scale"),
    ("llama", {"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}"),
    ("llama", {"rope_parameters": "linear"}, "rope_parameters is 'linear': an object is needed"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2}}, "rope_parameters.rope_type is 'dynamic'"),
    ("llama", {"rope_parameters": {"rope_type": "longrope"}}, "rope_type is 'longrope': known are default, linear"),
    ("llama", {"rope_parameters": {"rope_type": "linear"}}, "rope_parameters.factor is missing"),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": -2}}, "rope_parameters.factor is -2"),
    ("llama", {"rope_parameters": {"rope_theta": 1e4, "mrope_section": [2, 2]}}, "rope_parameters.mrope_section"),
    ("llama", {"rope_parameters": {"rope_theta": 0}}, "rope_parameters.rope_theta is 0"),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 1e-200}}, "rope_parameters.factor is 1e-200"),
    ("llama_yarn", {"rope_parameters": {"rope_type": "yarn", "factor": 2, "beta_slow": 1e-320}}, "beta_slow is 1e-320"),
    ("llama", {"rope_parameters": {"rope_theta": 1, "rope_type": "yarn", "factor": 2}}, "a base above 1"),
    ("llama_llama3",
     {"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}},
     "high_freq_factor is 4: more than low_freq_factor"),
    ("mistral", {"sliding_window": 0}, "sliding_window is 0"),
    ("mistral", {"sliding_window": "16"}, "sliding_window is '16'"),
    ("qwen2_window", {"layer_types": ["sliding_attention"]}, "layer_types is"),
    ("qwen2_window", {"layer_types": ["chunked_attention"] * 3}, "'chunked_attention' is not supported"),
    ("qwen2_window", {"use_sliding_window": False}, "sliding_attention needs use_sliding_window true"),
    ("qwen2_window", {"max_window_layers": -1, "layer_types": None}, "max_window_layers is -1"),
    ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
    ("gemma3", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
    ("gemma3", {"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters.rope_theta is 5.0"),
    ("gemma3_multimodal", {"text_config": None}, "text_config is missing"),
    ("gemma3_multimodal", {"text_config": {"hidden_size": 33}}, "config.json"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights is False"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    ("gpt2", {"n_positions": 65}, "wpe.weight has the shape [64, 36], the configuration needs [65, 36]"),
    ("gpt2", {"n_inner": 100}, "mlp.c_fc.weight has the shape [36, 144], the configuration needs [36, 100]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "needed"), HOSTILE_CONFIGS)
def test_a_config_that_cannot_be_is_refused(name: str, changes: dict, needed: str, tmp_path: Path) -> None:
    refused_directory(copy_model(name, tmp_path, changes), needed)


def test_a_key_can_be_ignored(tmp_path: Path) -> None:
    """On the user's word, also one inside an object, and one that would be read."""
    folder = copy_model("llama", tmp_path, {"logit_scale": 2, "rope_parameters": {"rope_type": "dynamic", "x": 1}})
    ignored = ("logit_scale", "rope_parameters.rope_type", "rope_parameters.x")
    config, _ = load_directory(folder, architectures(), ignored=ignored)
    assert config == load_directory(FOLDER / "llama", architectures())[0]
    for key in ignored:
        line = refusal(lambda: load_directory(folder, architectures(), ignored=set(ignored) - {key}))  # noqa: B023
        assert key in line


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size"])
def test_a_size_left_out_is_the_architectures_own(key: str, tmp_path: Path) -> None:
    """Llama's own is 32 layers and d_model 4,096, which this file does not hold."""
    refused_directory(copy_model("llama", tmp_path, {key: None}), "32 layers" if "layers" in key else "d_model is 4096")


@pytest.mark.parametrize(
    ("tensors", "needed"),
    [
        ({"model.layers.1.mlp.up_proj.weight": None}, "the tensor layers.1.mlp.up_proj.weight is missing"),
        ({"model.embed_tokens.weight": None}, "the tensor embed_tokens.weight is missing"),
        ({"lm_head.weight": None}, "the tensor lm_head.weight is missing"),
        ({"model.norm.weight": np.ones(63, np.float16)}, "model.norm.weight has the shape [63]"),
        ({"model.norm.weight": np.ones((64, 1), np.float16)}, "model.norm.weight has the shape [64, 1]"),
        ({"model.norm.weight": np.ones(64, np.int8)}, "stored as I8"),
        ({"model.layers.0.self_attn.v_proj.bias": np.ones(32, np.float16)}, "self_attn.v_proj.bias"),
        ({"model.layers.0.mlp.experts.0.w1.weight": np.ones((2, 2), np.float16)}, "1 tensors have no place in llama"),
    ],
)
def test_tensors_must_be_just_those_of_the_recipe(tensors: dict, needed: str, tmp_path: Path) -> None:
    refused_directory(copy_model("llama", tmp_path, tensors=tensors), needed)


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("", "not valid JSON"),
        ("[1, 2]", "a JSON object is needed"),
        ("{}", "model_type is missing"),
        ('{"model_type": 7}', "model_type is missing"),
        ('{"model_type": "mamba"}', "the architecture 'mamba' is not supported; known are"),
        ("[" * 100000, "not valid JSON"),
        ('{"model_type": "\xff"}', "not valid JSON"),
    ],
)
def test_a_config_that_is_none(text: str, needed: str, tmp_path: Path) -> None:
    copy_model("llama", tmp_path)
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    refused_directory(tmp_path, needed)


def test_a_directory_without_a_model(tmp_path: Path) -> None:
    assert "config.json" in refusal(lambda: load_model(tmp_path, architectures()))
    (tmp_path / "config.json").write_text((FOLDER / "llama" / "config.json").read_text())
    assert "safetensors" in refusal(lambda: load_model(tmp_path, architectures()))


def test_a_truncated_model(tmp_path: Path) -> None:
    copy_model("llama", tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    refused_directory(tmp_path, "model.safetensors")


@pytest.mark.parametrize(
    ("name", "changes", "needed"),
    [
        ("llama", {"general.architecture": None}, "general.architecture is missing"),
        ("llama", {"general.architecture": "mamba"}, "the architecture 'mamba' is not supported; known are"),
        ("llama", {"llama.block_count": None}, "llama.block_count is missing"),
        ("llama", {"llama.embedding_length": "64"}, "llama.embedding_length is '64'"),
        ("llama", {"llama.embedding_length": 64.0}, "llama.embedding_length is 64.0"),
        ("llama", {"llama.attention.head_count_kv": np.array([2, 4])}, "llama.attention.head_count_kv is"),
        ("llama", {"llama.attention.head_count_kv": np.array([])}, "llama.attention.head_count_kv is"),
        ("llama", {"llama.expert_count": 8}, "--ignore-config-key llama.expert_count"),
        ("llama", {"llama.attention.causal": False}, "llama.attention.causal is False"),
        ("llama", {"llama.attention.key_length": 15}, "an even number up to d_k (15)"),
        ("llama", {"llama.rope.dimension_count": 3}, "llama.rope.dimension_count is 3"),
        ("llama", {"llama.rope.dimension_count": 18}, "llama.rope.dimension_count is 18"),
        ("llama", {"llama.rope.scaling.type": "longrope"}, "known are none, linear, yarn"),
        ("llama", {"llama.rope.scaling.yarn_log_multiplier": 0.1}, "llama.rope.scaling.yarn_log_multiplier"),
        ("llama", {"llama.vocab_size": 5}, "the vocabulary is 5, but token_embd.weight has 128 rows"),
        ("llama_llama3", {"llama.rope.dimension_count": 8}, "rope_freqs.weight needs 4 positive numbers"),
        ("gemma3", {"gemma3.attention.sliding_window_pattern": np.array([True, False])}, "for each of 7 layers"),
        ("gemma3", {"gemma3.attn_logit_softcapping": 50.0}, "gemma3.attn_logit_softcapping is 50.0"),
        ("gpt2", {"gpt2.context_length": 63}, "position_embd.weight has the shape [64, 36]"),
    ],
)
def test_metadata_that_cannot_be_is_refused(name: str, changes: dict, needed: str) -> None:
    opened = open_gguf(FOLDER / name / "model.gguf")
    changed = {key: value for key, value in ({**opened.metadata} | changes).items() if value is not None}
    line = refusal(lambda: load_gguf(replace(opened, metadata=changed), architectures()))
    assert needed in line, line
    assert str(opened.path) in line


def test_a_gguf_matrix_in_a_format_that_is_no_weight() -> None:
    opened = open_gguf(FOLDER / "llama" / "model.gguf")
    name = "blk.0.attn_q.weight"
    bad = replace(opened.tensors[name], format="IQ1_S")
    changed = replace(opened, tensors={**opened.tensors, name: bad})
    line = refusal(lambda: load_gguf(changed, architectures()))
    assert name in line
    assert "IQ1_S" in line


def test_a_transposed_matrix_in_a_format_that_cannot_be_transposed(tmp_path: Path) -> None:
    wrong = {"transformer.h.0.attn.c_attn.weight": np.zeros((36, 108), np.int8)}
    refused_directory(copy_model("gpt2", tmp_path, tensors=wrong), "transformer.h.0.attn.c_attn.weight", "I8")


def test_config_json_is_the_only_file_read_whole(tmp_path: Path) -> None:
    """One of absurd size is refused before it is read."""
    copy_model("llama", tmp_path)
    with (tmp_path / "config.json").open("r+b") as file:
        file.truncate(1 << 32)
    refused_directory(tmp_path, "more than 16 MiB")


def test_names_in_errors_stay_short(tmp_path: Path) -> None:
    values = json.loads((FOLDER / "llama" / "config.json").read_text()) | {"hidden_act": "x" * 100_000}
    copy_model("llama", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(values))
    line = refusal(lambda: load_directory(tmp_path, architectures()))
    assert len(line) < 400


LLAMA_3 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "initializer_range": 0.02, "mlp_bias": False, "pretraining_tp": 1,
    "rope_scaling": None, "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0", "use_cache": True,
}  # fmt: skip
SMOLLM2 = {
    "is_llama_config": True, "pad_token_id": 2, "rope_interleaved": False, "rope_scaling": None,
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN_2 = {"use_mrope": False, "use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 21}
GEMMA_3 = {
    "attn_logit_softcapping": None, "cache_implementation": "hybrid", "final_logit_softcapping": None,
    "head_dim": 16, "rope_scaling": None, "eos_token_id": [1, 106],
}  # fmt: skip
GPT_2 = {
    "n_ctx": 64, "model_type": "gpt2", "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1,
    "summary_type": "cls_index", "summary_activation": None, "summary_first_dropout": 0.1, "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "_num_labels": 1,
    "output_past": True, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "keys"),
    [("llama", LLAMA_3), ("llama", SMOLLM2), ("qwen2_window", QWEN_2), ("gemma3", GEMMA_3), ("gpt2", GPT_2)],
)
def test_keys_of_models_on_the_hub_pass(name: str, keys: dict, tmp_path: Path) -> None:
    """Beside the sizes, published models of these families say these things."""
    folder = copy_model(name, tmp_path)
    values = json.loads((folder / "config.json").read_text()) | keys
    if not values.get("use_sliding_window", True):
        del values["layer_types"]
    (folder / "config.json").write_text(json.dumps(values))
    load_directory(folder, architectures())


HOSTILE_VALUES = [
    "x",
    -1,
    0.5,
    1 << 200,
    1e308,
    1e-320,
    float("nan"),
    True,
    [],
    [1],
    [[1, 2], [1, 2]],
    ["x"] * 7,
    {},
    {"rope_type": 3, "factor": []},
]


def refused_or_loaded(load: Callable[[], Any]) -> None:
    try:
        load()
    except RingletError as error:
        line = str(error)
    else:
        line = ""
    assert "\n" not in line


@pytest.mark.parametrize("name", ["llama_llama3", "llama_yarn", "qwen2_window", "gemma3", "gemma3_multimodal", "gpt2"])
def test_no_value_of_any_key_ends_in_another_error(name: str, tmp_path: Path) -> None:
    """Each key of config.json, and of the objects in it, says each hostile thing: the model loads or is refused."""
    known = architectures()
    shutil.copytree(FOLDER / name, tmp_path, dirs_exist_ok=True)
    values = json.loads((tmp_path / "config.json").read_text())
    for key in [*values, "a key\nof two lines"]:
        for hostile in HOSTILE_VALUES:
            inner = values.get(key)
            inner = inner if isinstance(inner, dict) else {}
            for changed in [hostile, *({**inner, name: hostile} for name in inner)]:
                (tmp_path / "config.json").write_text(json.dumps(values | {key: changed}))
                refused_or_loaded(lambda: load_directory(tmp_path, known))


@pytest.mark.parametrize("name", ["llama_yarn", "llama_llama3", "gemma3"])
def test_no_value_of_any_metadata_ends_in_another_error(name: str) -> None:
    known = architectures()
    opened = open_gguf(FOLDER / name / "model.gguf")
    values = {**opened.metadata}
    arrays = [np.array([1, 2]), np.array([[1], [1]]), np.zeros(0, np.float32), np.array([True] * 7), np.arange(99)]
    arrays.append([np.array([1, 2]), np.array([1, 2])])  # an array of arrays, as the file's reader gives it
    for key in [*values, opened.metadata["general.architecture"] + ".a key\nof two lines"]:
        for hostile in [*HOSTILE_VALUES, *arrays]:
            changed = replace(opened, metadata=values | {key: hostile})
            refused_or_loaded(lambda: load_gguf(changed, known))  # noqa: B023
