"""Makes tests/fixtures/models: tiny random models by transformers, as directories and as GGUF files, with their logits.

    python tests/make_fixtures/models.py [NAME ...]

The GGUF files follow llama.cpp's converter (convert_hf_to_gguf.py): its names come from the gguf package, rows of W_q
and W_k are permuted for Llama, Gemma's norms have their 1 added, GPT-2's matrices are transposed.
Logits are float32, of the stored (rounded) weights. Needs torch, transformers and gguf.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

FOLDER = Path(__file__).parents[1] / "fixtures" / "models"
N_TOKENS = 48

SIZES = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclass(frozen=True)
class Tiny:
    """A model to make. gguf: the architecture's name there, None where GGUF cannot say what the model is."""

    config: transformers.PretrainedConfig
    gguf: str | None
    dtype: str = "float16"


def models() -> dict[str, Tiny]:
    llama, gemma = transformers.LlamaConfig, transformers.Gemma3TextConfig
    gemma_sizes = {**SIZES, "num_hidden_layers": 7, "head_dim": 16, "sliding_window": 16, "num_key_value_heads": 1}
    return {
        "llama": Tiny(llama(**{**SIZES, "hidden_size": 64, "num_hidden_layers": 2}), "llama"),
        "llama_llama3": Tiny(llama(**SIZES, head_dim=20, tie_word_embeddings=True, rope_parameters=LLAMA3), "llama"),
        "llama_linear_biases": Tiny(
            llama(
                **SIZES,
                attention_bias=True,
                mlp_bias=True,
                rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
            ),
            "llama",
        ),
        "llama_yarn": Tiny(
            llama(
                **SIZES,
                head_dim=16,
                rope_parameters={
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "rope_theta": 100.0,
                    "original_max_position_embeddings": 24,
                },
            ),
            "llama",
        ),
        "mistral": Tiny(transformers.MistralConfig(**SIZES, sliding_window=16), "llama"),
        "qwen2": Tiny(transformers.Qwen2Config(**SIZES), "qwen2", "bfloat16"),
        "qwen2_window": Tiny(
            transformers.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=12, max_window_layers=1), None
        ),
        "qwen3": Tiny(transformers.Qwen3Config(**SIZES, head_dim=24, tie_word_embeddings=True), "qwen3"),
        "gemma3": Tiny(gemma(**gemma_sizes, query_pre_attn_scalar=16), "gemma3"),
        "gemma2": Tiny(
            transformers.Gemma2Config(
                **{**gemma_sizes, "num_hidden_layers": 4},
                query_pre_attn_scalar=16,
                attn_logit_softcapping=2.0,
                final_logit_softcapping=9.0,
            ),
            "gemma2",
        ),
        "gemma3_linear": Tiny(
            gemma(
                **{**gemma_sizes, "num_hidden_layers": 3},
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                query_pre_attn_scalar=24,
                final_logit_softcapping=5.0,
                rope_parameters={
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 20000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                },
            ),
            None,
        ),
        "gemma3_multimodal": Tiny(
            transformers.Gemma3Config(
                text_config=gemma(**{**gemma_sizes, "num_hidden_layers": 2}, sliding_window_pattern=2),
                vision_config={
                    "hidden_size": 8,
                    "intermediate_size": 8,
                    "num_hidden_layers": 1,
                    "num_attention_heads": 2,
                    "image_size": 8,
                    "patch_size": 4,
                },
                mm_tokens_per_image=4,
            ),
            None,
        ),
        "phi": Tiny(transformers.PhiConfig(**{**SIZES, "num_hidden_layers": 2}), None),
        "gpt2": Tiny(
            transformers.GPT2Config(
                vocab_size=96, n_embd=36, n_layer=2, n_head=3, n_positions=64, bos_token_id=None, eos_token_id=None
            ),
            "gpt2",
            "float32",
        ),
    }


def spread_weights(model: torch.nn.Module, seed: int) -> None:
    """Weights large enough that attention is sharp, norms and biases that are not trivial."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name or ".ln_" in name:
            centre = 1.0 if name.endswith("weight") and "Gemma" not in type(model).__name__ else 0.0
            parameter.data = centre + 0.3 * noise
        elif name.endswith("bias"):
            parameter.data = 0.3 * noise
        elif "embed" in name or "wte" in name or "wpe" in name:
            parameter.data = 0.7 * noise
        else:
            sharp = 1.5 if any(part in name for part in ("q_proj", "k_proj", "c_attn")) else 1.0
            inputs = parameter.shape[0] if ".c_" in name else parameter.shape[1]
            parameter.data = sharp * noise / math.sqrt(inputs)


def gguf_tensor(name: str, values: np.ndarray, tiny: Tiny) -> np.ndarray:
    """A tensor as llama.cpp's converter would store it."""
    config = tiny.config
    if tiny.gguf == "llama" and (".q_proj." in name or ".k_proj." in name):
        heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
        halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
        return halves.swapaxes(1, 2).reshape(values.shape)
    if tiny.gguf in ("gemma2", "gemma3") and name.endswith("norm.weight"):
        return values + np.float32(1)
    if tiny.gguf == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        return np.ascontiguousarray(values.T)
    return values


def rope_factors(config: transformers.PretrainedConfig) -> np.ndarray:
    """What llama.cpp divides each frequency by for Llama 3."""
    scaling, width = config.rope_parameters, config.head_dim
    frequencies = 1.0 / scaling["rope_theta"] ** (np.arange(0, width, 2) / width)
    context, low, high = (
        scaling[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    factors = []
    for wavelength in 2 * math.pi / frequencies:
        if wavelength < context / high:
            factors.append(1.0)
        elif wavelength > context / low:
            factors.append(scaling["factor"])
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, np.float32)


def write_gguf(path: Path, tiny: Tiny, state: dict[str, torch.Tensor]) -> None:
    config = tiny.config
    writer = gguf.GGUFWriter(path, tiny.gguf)
    layers = config.num_hidden_layers
    writer.add_block_count(layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    if tiny.gguf == "gpt2":
        writer.add_feed_forward_length(4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_head_count_kv(config.num_key_value_heads)
        write_rope(writer, tiny)
        if getattr(config, "sliding_window", None):
            writer.add_sliding_window(config.sliding_window)
        if tiny.gguf == "gemma2":
            writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
    names = gguf.get_tensor_name_map({name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}[tiny.gguf], layers)
    for name, tensor in state.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = gguf_tensor(name, tensor.float().numpy(), tiny)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if values.ndim == 2 and tiny.dtype == "float16":
            values = values.astype(np.float16)
        if values.ndim == 2 and tiny.dtype == "bfloat16":
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(stored, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(stored, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_rope(writer: gguf.GGUFWriter, tiny: Tiny) -> None:
    config = tiny.config
    d_k = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if d_k * config.num_attention_heads != config.hidden_size:
        writer.add_key_length(d_k)
        writer.add_value_length(d_k)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_dimension_count(d_k)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_factors(config))
    elif rope["rope_type"] != "default":
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def make(name: str, tiny: Tiny, seed: int) -> None:
    folder = FOLDER / name
    kind = transformers.AutoModelForCausalLM
    if tiny.config.model_type == "gemma3":
        kind = transformers.AutoModelForImageTextToText
    model = kind.from_config(tiny.config)
    spread_weights(model, seed)
    model.to(getattr(torch, tiny.dtype)).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=1, sort_keys=True) + "\n")
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = np.random.default_rng(seed).integers(0, tiny.config.get_text_config().vocab_size, N_TOKENS)
    with torch.no_grad():
        logits = model(torch.tensor(ids)[None]).logits[0].numpy()
    np.savez(folder / "logits.npz", ids=ids.astype(np.int32), logits=logits)
    if tiny.gguf:
        write_gguf(folder / "model.gguf", tiny, model.state_dict())
    spread = np.sort(logits, axis=-1)
    gap = np.mean(spread[:, -1] - spread[:, -2])
    print(f"{name}: largest logit {np.abs(logits).max():.2f}, mean gap of the best two {gap:.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for seed, (name, tiny) in enumerate(models().items()):
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, tiny, seed)
