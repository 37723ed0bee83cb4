"""Reference logits, greedy continuations and llama.cpp's own error for the two real models.

    python tests/make_fixtures/real_models.py [--threads 2]

Needs torch, transformers, accelerate, gguf and llama-cpp-python (CPU). Reads the two GGUF files that the tests use
(RINGLET_TEST_MODELS) and the texts in tests/fixtures/real_models/prompts; writes beside them, for each model, NAME.npz
(the arrays of `reference_of`), and NAME.json (completions of short prompts, and llama.cpp's divergence).

Token ids are llama.cpp's own, since transformers ignores most `tokenizer.ggml.pre` values. Logits are those of
transformers in float32. So that a fault of its GGUF converter cannot hide, the same is asked of llama.cpp running the
same weights turned to float32, and this script stops where the two do not agree.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import llama_cpp
import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from kl_divergence import Logits, divergence, llama_cpp_logits  # noqa: E402

FOLDER = ROOT / "tests" / "fixtures" / "real_models"
MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma": "gemma-3-270m-q4_k_m.gguf"}
LENGTHS = {"mixed_long": 704}  # longer than gemma's window of 512
LENGTH = 288
EVERY = 32  # logits are kept at every 32nd position and the last
TOP, SPREAD = 32, 512  # of these positions: the largest logits, and those of ids drawn from the whole vocabulary
NEW_TOKENS = 64
COMPLETIONS = ("我爱你", "The capital of France is", "def fibonacci(n):\n", "1, 2, 3, 5, 8, 13,", "Once upon a time")
# How far transformers and llama.cpp, both in float32, may be apart, as a part of the largest logit. ggml's GELU is a
# table of float16 values: the same rounding of its argument in transformers moves gemma's logits by as much.
AGREEMENT = {"smollm2": 1e-4, "gemma": 3e-3}


def vocabulary(path: Path) -> llama_cpp.Llama:
    return llama_cpp.Llama(str(path), vocab_only=True, verbose=False)


def encode(tokenizer: llama_cpp.Llama, text: str) -> list[int]:
    """As llama.cpp does by default: with the begin token where the file asks for one, special tokens as plain text."""
    add_bos = tokenizer.metadata.get("tokenizer.ggml.add_bos_token") == "true"
    return tokenizer.tokenize(text.encode(), add_bos=add_bos, special=False)


def load(path: Path) -> PreTrainedModel:
    """transformers' model, its configuration checked against what the file and the model's authors say."""
    network = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    config = network.config
    if config.model_type == "gemma3_text":
        # The file has neither the local layers' RoPE base nor the layers' kinds: transformers fills in Gemma 3's own.
        kinds = ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(config.num_hidden_layers)]
        expect(config.layer_types == kinds, "every sixth layer is global")
        expect(config.sliding_window == 512, "the local layers' window is 512")
        expect(config.rope_parameters["sliding_attention"]["rope_theta"] == 10_000, "local RoPE base")
        expect(config.rope_parameters["full_attention"]["rope_theta"] == 1_000_000, "global RoPE base")
        expect(config.query_pre_attn_scalar == config.head_dim == 256, "scores are divided by √256")
        expect(config.hidden_activation == "gelu_pytorch_tanh", "GELU by its tanh formula")
        expect(config.final_logit_softcapping is None and config.attn_logit_softcapping is None, "no soft caps")
    else:
        expect(config.rope_parameters == {"rope_theta": 100_000.0, "rope_type": "default"}, "RoPE base")
    expect(network.lm_head.weight is network.get_input_embeddings().weight, "W_t is the embedding")
    return network


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"transformers read the file otherwise than expected: {what}")


@torch.inference_mode()
def teacher_forced(network: PreTrainedModel, ids: list[int]) -> np.ndarray:
    """float32 (len(ids), d_vocab), in one piece and without a cache."""
    return network(torch.tensor([ids]), use_cache=False).logits[0].numpy()


@torch.inference_mode()
def greedy(network: PreTrainedModel, ids: list[int], n: int) -> np.ndarray:
    """Logits (n, d_vocab) from which a greedy continuation drew its tokens, end of text ignored."""
    cache = DynamicCache(config=network.config)
    new, rows = ids, []
    for _ in range(n):
        row = network(torch.tensor([new]), past_key_values=cache, logits_to_keep=1).logits[0, -1].numpy()
        rows.append(row.copy())
        new = [int(row.argmax())]
    return np.stack(rows)


def summary(logits: np.ndarray) -> dict[str, np.ndarray]:
    """Of each row: the best id, its logit, how far the second is below it, log Σ exp, and the largest |logit|."""
    second, largest = np.partition(logits, -2, axis=-1)[:, -2:].T
    shifted = np.exp(logits.astype(np.float64) - largest[:, None]).sum(axis=-1)
    return {
        "best": logits.argmax(axis=-1).astype(np.int32),
        "largest": largest,
        "gap": largest - second,
        "log_sum": (largest + np.log(shifted)).astype(np.float32),
        "scale": np.abs(logits).max(axis=-1),
    }


def sample(logits: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Single logits of every EVERY-th row and the last: the TOP largest, and SPREAD ids drawn from the vocabulary."""
    positions = np.unique([*range(0, len(logits), EVERY), len(logits) - 1])
    rows = logits[positions]
    top_ids = np.argsort(-rows, axis=-1, kind="stable")[:, :TOP]
    spread_ids = np.sort(np.random.default_rng(seed).choice(logits.shape[1], SPREAD, replace=False))
    return {
        "positions": positions.astype(np.int32),
        "top_ids": top_ids.astype(np.int32),
        "top_logits": np.take_along_axis(rows, top_ids, axis=-1),
        "spread_ids": spread_ids.astype(np.int32),
        "spread_logits": rows[:, spread_ids],
    }


def continuation(network: PreTrainedModel, ids: list[int]) -> dict[str, np.ndarray]:
    """The greedy tokens and their gaps, proved against a run over prompt and continuation in one piece."""
    found = summary(greedy(network, ids, NEW_TOKENS))
    whole = summary(teacher_forced(network, [*ids, *found["best"].tolist()])[len(ids) - 1 : -1])
    clear = found["gap"] > 1e-4 * np.abs(found["largest"])
    expect(bool((found["best"] == whole["best"])[clear].all()), "its cache gives the same as no cache")
    return {f"greedy_{name}": found[name] for name in ("best", "largest", "gap")}


def completion(network: PreTrainedModel, tokenizer: llama_cpp.Llama, prompt: str) -> tuple[str, dict[str, np.ndarray]]:
    """The text after a short prompt, and its arrays."""
    ids = encode(tokenizer, prompt)
    found = summary(greedy(network, ids, NEW_TOKENS))
    text = tokenizer.detokenize(found["best"].tolist(), prev_tokens=ids).decode("utf-8", "replace")
    relative_gap = found["gap"] / np.abs(found["largest"])
    return text, {"ids": np.array(ids, np.int32), "best": found["best"], "relative_gap": relative_gap}


def to_float32(path: Path, folder: Path) -> Path:
    """The GGUF file with every matrix turned to F32 by llama.cpp itself."""
    target = folder / f"{path.stem}.f32.gguf"
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.allow_requantize, options.nthread = llama_cpp.LLAMA_FTYPE_ALL_F32, True, 1
    options.token_embedding_type = llama_cpp.GGML_TYPE_F32
    expect(llama_cpp.llama_model_quantize(str(path).encode(), str(target).encode(), ctypes.byref(options)) == 0, "f32")
    return target


def one_by_one(path: Path, context: int, threads: int) -> Logits:
    """llama.cpp fed a token at a time, as when it generates: other kernels than for a prompt."""
    engine = llama_cpp.Llama(
        str(path), n_ctx=context, n_threads=threads, n_threads_batch=threads, logits_all=True, verbose=False
    )

    def logits(ids: list[int]) -> np.ndarray:
        engine.reset()
        for token in ids:
            engine.eval([token])
        return engine.scores[: len(ids)].copy()

    return logits


def prompts() -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8").rstrip("\n") for path in sorted(FOLDER.glob("prompts/*.txt"))}


def make(name: str, path: Path, threads: int) -> None:
    tokenizer = vocabulary(path)
    network = load(path)
    context = max(LENGTHS.values()) + NEW_TOKENS
    arrays: dict[str, Any] = {}
    errors: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        exact = llama_cpp_logits(to_float32(path, Path(folder)), context, threads, float32_cache=True)
        quantised, stepwise = llama_cpp_logits(path, context, threads), one_by_one(path, context, threads)
        for seed, (kind, text) in enumerate(prompts().items()):
            ids = encode(tokenizer, text)[: LENGTHS.get(kind, LENGTH)]
            expect(len(ids) >= 256, f"{kind} has 256 tokens")
            reference = teacher_forced(network, ids)
            found = summary(reference)
            off = np.abs(exact(ids) - reference).max(axis=-1) / np.abs(reference).max(axis=-1)
            expect(off.max() < AGREEMENT[name], f"llama.cpp in float32 agrees on {kind}: off by {off.max():.2e}")
            parts = {"ids": np.array(ids, np.int32), **found, **sample(reference, seed), **continuation(network, ids)}
            arrays |= {f"{kind}/{part}": array for part, array in parts.items()}
            errors[kind] = {"tokens": len(ids), "float32_off": float(off.max())}
            for way, logits in (("prompt", quantised), ("stepwise", stepwise)):
                kl, same = divergence(reference, logits(ids))
                errors[kind] |= {f"{way}_kl": float(kl.mean()), f"{way}_same_best": float(same.mean())}
            errors[kind] = {key: float(f"{value:.4g}") for key, value in errors[kind].items()}
            click.echo(f"{name} {kind}: {errors[kind]}")
    completions = []
    for index, prompt in enumerate(COMPLETIONS):
        text, parts = completion(network, tokenizer, prompt)
        completions.append({"prompt": prompt, "text": text})
        arrays |= {f"completion {index}/{part}": array for part, array in parts.items()}
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)
    document = {
        "file": path.name,
        "made_with": {package.__name__: package.__version__ for package in (transformers, torch, llama_cpp)},
        "llama_cpp": errors,
        "completions": completions,
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


@click.command()
@click.option("--threads", default=2, show_default=True)
@click.option("--only", type=click.Choice(list(MODELS)), help="One of the models.")
def main(threads: int, only: str | None) -> None:
    torch.set_num_threads(threads)
    models = Path(os.environ.get("RINGLET_TEST_MODELS", "~/.cache/ringlet-test-models")).expanduser()
    for name in [only] if only else MODELS:
        make(name, models / MODELS[name], threads)


if __name__ == "__main__":
    main()
