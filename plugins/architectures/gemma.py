"""Gemma 2 and 3: norms around both halves of a block, layers with a window, a scaled embedding.

Gemma 2 caps scores and logits; Gemma 3 norms each head's q and k instead, and has another RoPE where it has a window.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.loading.architecture import Architecture, Key
from ringlet.core.loading.layers import GgufLayers, HuggingFaceLayers
from ringlet.core.loading.windows import WindowReader, window_but_every_nth
from ringlet.plugins.architectures.llama import Llama

LAYERS_OF_27B = (46, 62)  # Gemma 2, Gemma 3


def embedding_scale(sizes: dict[str, Any]) -> float:
    return sizes["d_model"] ** 0.5


def score_scale(sizes: dict[str, Any]) -> float:
    """GGUF files do not say it: llama.cpp's rule, by which the 27B models alone divide by √(d_model/h)."""
    is_27b = sizes["n_layers"] in LAYERS_OF_27B
    return (sizes["d_model"] / sizes["n_heads"] if is_27b else sizes["d_k"]) ** -0.5


def hf_windows(every_nth: int) -> WindowReader:
    return window_but_every_nth("sliding_window", "sliding_window_pattern", default=4096, n=every_nth)


def gguf_windows(every_nth: int, default: int | None) -> WindowReader:
    return window_but_every_nth(
        "attention.sliding_window", "attention.sliding_window_pattern", default=default, n=every_nth
    )


class Gemma2(Architecture):
    name = "gemma2"
    recipe = {"norm": "rms", "gated": True, "post_norms": True}
    hf = replace(
        Llama.hf,
        names=("gemma2",),
        keys={
            **Llama.hf.keys,
            "activation": "hidden_activation",
            "score_scale": Key("query_pre_attn_scalar", lambda scalar: scalar**-0.5),
            "score_soft_cap": "attn_logit_softcapping",
            "logit_soft_cap": "final_logit_softcapping",
        },
        defaults={
            "d_model": 2304,
            "d_ff": 9216,
            "n_layers": 26,
            "n_heads": 8,
            "n_kv_heads": 4,
            "d_k": 256,
            "context_length": 8192,
            "norm_epsilon": 1e-6,
            "activation": "gelu_tanh",
            "tied": True,
            "embedding_scale": embedding_scale,
            "score_scale": 256**-0.5,
            "score_soft_cap": 50.0,
            "logit_soft_cap": 30.0,
        },
        weights={
            **Llama.hf.weights,
            "attention_post_norm": "layers.{layer}.post_attention_layernorm.weight",
            "feed_forward_norm": "layers.{layer}.pre_feedforward_layernorm.weight",
            "feed_forward_post_norm": "layers.{layer}.post_feedforward_layernorm.weight",
        },
        switched_biases={"attention_bias": "b_q b_k b_v b_o"},
        norm_offset=1.0,
        layers=HuggingFaceLayers(windows=hf_windows(2)),
        harmless_keys=("hidden_act", "_sliding_window_pattern"),
    )
    gguf = replace(
        Llama.gguf,
        names=("gemma2",),
        keys={
            **Llama.gguf.keys,
            "score_soft_cap": "attn_logit_softcapping",
            "logit_soft_cap": "final_logit_softcapping",
        },
        defaults={
            "activation": "gelu_tanh",
            "embedding_scale": embedding_scale,
            "score_scale": score_scale,
            "score_soft_cap": 50.0,
            "logit_soft_cap": 30.0,
        },
        weights={
            **Llama.gguf.weights,
            "attention_post_norm": "blk.{layer}.post_attention_norm.weight",
            "feed_forward_post_norm": "blk.{layer}.post_ffw_norm.weight",
        },
        optional_biases="",
        layers=GgufLayers(windows=gguf_windows(2, default=4096)),
    )


class Gemma3(Architecture):
    name = "gemma3"
    recipe = {**Gemma2.recipe, "qk_norm": True}
    hf = replace(
        Gemma2.hf,
        names=("gemma3_text",),
        keys={key: name for key, name in Gemma2.hf.keys.items() if key != "score_soft_cap"},
        defaults={**Gemma2.hf.defaults, "context_length": 131072, "score_soft_cap": None, "logit_soft_cap": None},
        weights={
            **Gemma2.hf.weights,
            "q_norm": "layers.{layer}.self_attn.q_norm.weight",
            "k_norm": "layers.{layer}.self_attn.k_norm.weight",
        },
        layers=HuggingFaceLayers(windows=hf_windows(6), base=1_000_000.0, local_base=10_000.0),
    )
    gguf = replace(
        Gemma2.gguf,
        names=("gemma3",),
        keys={key: name for key, name in Gemma2.gguf.keys.items() if key != "score_soft_cap"},
        defaults={**Gemma2.gguf.defaults, "score_soft_cap": None, "logit_soft_cap": None},
        layers=GgufLayers(windows=gguf_windows(6, default=None), base=1_000_000.0, local_base=10_000.0),
    )


class Gemma3Multimodal(Architecture):
    """The language model in a Gemma 3 that also sees; in GGUF it is a file of its own, as above."""

    name = "gemma3_multimodal"
    recipe = Gemma3.recipe
    hf = replace(
        Gemma3.hf,
        names=("gemma3",),
        section="text_config",
        prefixes=("model.language_model.", "language_model.model.", "language_model."),
        harmless_keys=(
            *Gemma3.hf.harmless_keys,
            "vision_config",
            "mm_tokens_per_image",
            "*_token_index",
            "tie_word_embeddings",
        ),
        harmless_tensors=(
            "vision_tower.*",
            "model.vision_tower.*",
            "multi_modal_projector.*",
            "model.multi_modal_projector.*",
        ),
    )


@hookimpl
def register_architectures(register: Register) -> None:
    register(Gemma2)
    register(Gemma3)
    register(Gemma3Multimodal)
