"""GPT-2: LayerNorm, learned positions, biases everywhere, q, k and v in one matrix."""

from __future__ import annotations

from typing import Any

from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.loading.architecture import Architecture, SourceTable
from ringlet.core.loading.common_names import GGUF_KEYS, GGUF_WEIGHTS
from ringlet.core.loading.layers import GgufLayers, HuggingFaceLayers

BIASES = "b_q b_k b_v b_o b_up b_down attention_norm_bias feed_forward_norm_bias final_norm_bias"
QKV = ("W_q", "W_k", "W_v", "b_q", "b_k", "b_v", "rope_factors")


def d_ff(sizes: dict[str, Any]) -> int:
    return 4 * sizes["d_model"]


class GPT2(Architecture):
    name = "gpt2"
    recipe = {"norm": "layer", "gated": False, "learned_positions": True}
    hf = SourceTable(
        names=("gpt2",),
        keys={
            "d_model": "n_embd",
            "d_ff": "n_inner",
            "d_vocab": "vocab_size",
            "n_layers": "n_layer",
            "n_heads": "n_head",
            "context_length": "n_positions",
            "norm_epsilon": "layer_norm_epsilon",
            "activation": "activation_function",
            "tied": "tie_word_embeddings",
        },
        defaults={
            "d_model": 768,
            "d_ff": d_ff,
            "n_layers": 12,
            "n_heads": 12,
            "context_length": 1024,
            "norm_epsilon": 1e-5,
            "activation": "gelu_tanh",
            "tied": True,
        },
        weights={
            "embedding": "wte.weight",
            "positions": "wpe.weight",
            "final_norm": "ln_f.weight",
            "final_norm_bias": "ln_f.bias",
            "W_t": "lm_head.weight",
            "attention_norm": "h.{layer}.ln_1.weight",
            "attention_norm_bias": "h.{layer}.ln_1.bias",
            "W_q W_k W_v": "h.{layer}.attn.c_attn.weight",
            "b_q b_k b_v": "h.{layer}.attn.c_attn.bias",
            "W_o": "h.{layer}.attn.c_proj.weight",
            "b_o": "h.{layer}.attn.c_proj.bias",
            "feed_forward_norm": "h.{layer}.ln_2.weight",
            "feed_forward_norm_bias": "h.{layer}.ln_2.bias",
            "W_up": "h.{layer}.mlp.c_fc.weight",
            "b_up": "h.{layer}.mlp.c_fc.bias",
            "W_down": "h.{layer}.mlp.c_proj.weight",
            "b_down": "h.{layer}.mlp.c_proj.bias",
        },
        prefixes=("transformer.",),
        biases=BIASES,
        transposed="W_q W_k W_v W_o W_up W_down",
        layers=HuggingFaceLayers(base=None),
        required={"scale_attn_weights": True, "is_causal": True},
        harmless_keys=("n_ctx", "reorder_and_upcast_attn"),
        harmless_tensors=("*h.*.attn.bias", "*h.*.attn.masked_bias"),
    )
    gguf = SourceTable(
        names=("gpt2",),
        keys={**GGUF_KEYS, "norm_epsilon": "attention.layer_norm_epsilon"},
        defaults={"activation": "gelu_tanh"},
        weights={
            **{name: tensor for name, tensor in GGUF_WEIGHTS.items() if name not in QKV},
            "positions": "position_embd.weight",
            "final_norm_bias": "output_norm.bias",
            "attention_norm_bias": "blk.{layer}.attn_norm.bias",
            "W_q W_k W_v": "blk.{layer}.attn_qkv.weight",
            "b_q b_k b_v": "blk.{layer}.attn_qkv.bias",
            "feed_forward_norm_bias": "blk.{layer}.ffn_norm.bias",
        },
        biases=BIASES,
        layers=GgufLayers(base=None),
        required={"attention.causal": True},
        harmless_keys=("rope.dimension_count",),
    )


@hookimpl
def register_architectures(register: Register) -> None:
    register(GPT2)
