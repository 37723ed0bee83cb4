"""Qwen 2 and 2.5 (biases on q, k and v) and Qwen 3 (a norm on each head's q and k instead)."""

from __future__ import annotations

from dataclasses import replace

from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.loading.architecture import Architecture
from ringlet.core.loading.layers import GgufLayers, HuggingFaceLayers
from ringlet.core.loading.windows import window_in_late_layers
from ringlet.plugins.architectures.llama import Llama


class Qwen2(Architecture):
    name = "qwen2"
    recipe = Llama.recipe
    hf = replace(
        Llama.hf,
        names=("qwen2",),
        defaults={**Llama.hf.defaults, "d_ff": 22016, "n_kv_heads": 32, "context_length": 32768},
        biases="b_q b_k b_v",
        switched_biases={},
        layers=HuggingFaceLayers(windows=window_in_late_layers),
    )
    gguf = replace(Llama.gguf, names=("qwen2",), biases="b_q b_k b_v", optional_biases="", layers=GgufLayers())


class Qwen3(Architecture):
    name = "qwen3"
    recipe = {**Llama.recipe, "qk_norm": True}
    hf = replace(
        Qwen2.hf,
        names=("qwen3",),
        defaults={**Qwen2.hf.defaults, "d_k": 128},
        weights={
            **Qwen2.hf.weights,
            "q_norm": "layers.{layer}.self_attn.q_norm.weight",
            "k_norm": "layers.{layer}.self_attn.k_norm.weight",
        },
        biases="",
        switched_biases={"attention_bias": "b_q b_k b_v b_o"},
    )
    gguf = replace(Qwen2.gguf, names=("qwen3",), biases="")


@hookimpl
def register_architectures(register: Register) -> None:
    register(Qwen2)
    register(Qwen3)
