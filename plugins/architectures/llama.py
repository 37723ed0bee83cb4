"""Llama (1 to 3.x, SmolLM2 and many others) and Mistral."""

from __future__ import annotations

from dataclasses import replace

from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.loading.architecture import Architecture, SourceTable
from ringlet.core.loading.common_names import GGUF_KEYS, GGUF_WEIGHTS, HF_KEYS
from ringlet.core.loading.layers import GgufLayers, HuggingFaceLayers
from ringlet.core.loading.windows import window_everywhere

HF_WEIGHTS = {
    "embedding": "embed_tokens.weight",
    "final_norm": "norm.weight",
    "W_t": "lm_head.weight",
    "attention_norm": "layers.{layer}.input_layernorm.weight",
    "W_q": "layers.{layer}.self_attn.q_proj.weight",
    "W_k": "layers.{layer}.self_attn.k_proj.weight",
    "W_v": "layers.{layer}.self_attn.v_proj.weight",
    "W_o": "layers.{layer}.self_attn.o_proj.weight",
    "b_q": "layers.{layer}.self_attn.q_proj.bias",
    "b_k": "layers.{layer}.self_attn.k_proj.bias",
    "b_v": "layers.{layer}.self_attn.v_proj.bias",
    "b_o": "layers.{layer}.self_attn.o_proj.bias",
    "feed_forward_norm": "layers.{layer}.post_attention_layernorm.weight",
    "W_gate": "layers.{layer}.mlp.gate_proj.weight",
    "W_up": "layers.{layer}.mlp.up_proj.weight",
    "W_down": "layers.{layer}.mlp.down_proj.weight",
    "b_gate": "layers.{layer}.mlp.gate_proj.bias",
    "b_up": "layers.{layer}.mlp.up_proj.bias",
    "b_down": "layers.{layer}.mlp.down_proj.bias",
}


class Llama(Architecture):
    name = "llama"
    recipe = {"norm": "rms", "gated": True}
    hf = SourceTable(
        names=("llama",),
        keys=HF_KEYS,
        defaults={
            "d_model": 4096,
            "d_ff": 11008,
            "n_layers": 32,
            "n_heads": 32,
            "context_length": 2048,
            "norm_epsilon": 1e-6,
            "activation": "silu",
            "tied": False,
        },
        weights=HF_WEIGHTS,
        prefixes=("model.",),
        switched_biases={"attention_bias": "b_q b_k b_v b_o", "mlp_bias": "b_gate b_up b_down"},
        layers=HuggingFaceLayers(pairing="halves"),
        required={"is_causal": True},
    )
    gguf = SourceTable(
        names=("llama",),
        keys=GGUF_KEYS,
        weights=GGUF_WEIGHTS,
        optional_biases="b_q b_k b_v b_o b_gate b_up b_down",
        required={"attention.causal": True},
        # The rows of W_q and W_k are permuted so that RoPE's pairs stand side by side.
        layers=GgufLayers(pairing="adjacent", windows=window_everywhere("attention.sliding_window")),
    )


class Mistral(Architecture):
    """A Llama whose every layer may have a window; its GGUF files say "llama"."""

    name = "mistral"
    recipe = Llama.recipe
    hf = replace(
        Llama.hf,
        names=("mistral",),
        defaults={**Llama.hf.defaults, "d_ff": 14336, "n_kv_heads": 8, "context_length": 131072},
        switched_biases={},
        layers=HuggingFaceLayers(windows=window_everywhere("sliding_window", 4096)),
    )


@hookimpl
def register_architectures(register: Register) -> None:
    register(Llama)
    register(Mistral)
