"""Trains the embedded verse model: a small Llama, from what prepare.py wrote.

    python training/train.py prepared poet

writes the finished model into the folder `poet` (config.json, model.safetensors in F16, tokenizer.json: `--model
poet` runs it) and the float32 weights into `poet/checkpoint`, from which `--resume` trains on. The defaults are those
that made the embedded model; on two cores it reached 4,050 steps in 98 minutes.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT = 128  # tokens of a training example
BATCH = 32  # examples a step: 4,096 tokens
WARM_UP = 200  # steps
HELD_OUT_BATCH = 16
REPORT_EVERY = 500  # steps
FRESH_RATE, RESUMED_RATE = 2e-3, 8e-4  # the peaks of the learning rate


def llama_config(d_vocab: int, d_model: int, d_ff: int, n_layers: int, n_heads: int, n_kv_heads: int) -> LlamaConfig:
    """Llama with d_k = d_model / n_heads, W_t tied to the embedding, and positions to 1,024."""
    return LlamaConfig(
        vocab_size=d_vocab,
        hidden_size=d_model,
        intermediate_size=d_ff,
        num_hidden_layers=n_layers,
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        head_dim=d_model // n_heads,
        max_position_embeddings=1024,
        rope_theta=10000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )


def make_optimizer(model: LlamaForCausalLM) -> torch.optim.AdamW:
    """AdamW that lets matrices decay, norms not."""
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95))


def learning_rate(peak: float, step: int, progress: float) -> float:
    """Linear warm-up, then a cosine over the progress (0 to 1) down to a twentieth of the peak."""
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return peak * min(1, (step + 1) / WARM_UP) * (0.95 * cosine + 0.05)


def draw_batch(ids: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
    """BATCH pieces of CONTEXT tokens from anywhere in ids (n,): int64 (BATCH, CONTEXT)."""
    starts = rng.integers(0, len(ids) - CONTEXT, BATCH)
    return torch.from_numpy(np.stack([ids[start : start + CONTEXT] for start in starts]))


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, held_out: np.ndarray) -> float:
    """Mean loss per token (nats) on ids that training never sees, (n,)."""
    model.eval()
    batches = torch.from_numpy(held_out).view(-1, CONTEXT).split(HELD_OUT_BATCH)
    losses = [model(x, labels=x).loss.item() * len(x) for x in (batch.to(model.device) for batch in batches)]
    model.train()
    return sum(losses) * CONTEXT / len(held_out)


def train(
    model: LlamaForCausalLM,
    ids: np.ndarray,
    rng: np.random.Generator,
    peak: float,
    progress: Callable[[int], float],
    report: Callable[[int, float], None],
) -> None:
    """Train until progress(step), 0 to 1, reaches 1; every REPORT_EVERY steps, call report(step, loss)."""
    optimizer = make_optimizer(model)
    step = 0
    while (done := progress(step)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(peak, step, done)
        x = draw_batch(ids, rng).to(model.device)
        loss = model(x, labels=x).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % REPORT_EVERY == 0:
            report(step, loss.item())


def progress_in(minutes: float, steps: int | None) -> Callable[[int], float]:
    """How much of the budget is used, 0 to 1: of the steps where they are given, else of the minutes from now."""
    if steps is not None:
        return lambda step: step / steps
    start = time.monotonic()
    return lambda step: (time.monotonic() - start) / (minutes * 60)


def config_json(config: LlamaConfig) -> dict[str, object]:
    """The config.json of the finished model: what defines it, in names that every loader of Llama knows."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": config.hidden_act,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "attention_bias": False,
        "mlp_bias": False,
        "rope_theta": 10000.0,
        "dtype": "float16",
    }


def export(model: LlamaForCausalLM, tokenizer: Path, out: Path) -> None:
    """The finished model: F16 weights without the tied W_t, config.json, tokenizer.json."""
    tied = "lm_head.weight"
    weights = {name: tensor.half().contiguous() for name, tensor in model.state_dict().items() if name != tied}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config_json(model.config), indent=2), encoding="utf-8")
    shutil.copyfile(tokenizer, out / "tokenizer.json")


def read_ids(path: Path, held_out: int) -> tuple[np.ndarray, np.ndarray]:
    """(training ids, held-out ids), int64; the held-out ones are the last."""
    ids = np.load(path).astype(np.int64)
    if len(ids) <= held_out + CONTEXT:
        raise click.UsageError(f"{path} holds {len(ids):,} tokens: too few to hold out {held_out:,} (--held-out)")
    return ids[:-held_out], ids[-held_out:]


def check_shape(d_model: int, n_heads: int, n_kv_heads: int, held_out: int) -> None:
    if d_model % n_heads or n_heads % n_kv_heads or d_model // n_heads % 2:
        raise click.UsageError("--d-model must be an even multiple of --n-heads, and --n-heads one of --n-kv-heads")
    if held_out % CONTEXT:
        raise click.UsageError(f"--held-out must be a multiple of {CONTEXT}")


@click.command(context_settings={"show_default": True})
@click.argument("prepared", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=98.0, help="Train this long.")
@click.option(
    "--steps", type=click.IntRange(1), help="Train this many steps instead; the same steps, the same weights."
)
@click.option(
    "--resume", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A checkpoint to go on from."
)
@click.option("--d-model", type=click.IntRange(1), default=192)
@click.option("--d-ff", type=click.IntRange(1), default=512)
@click.option("--n-layers", type=click.IntRange(1), default=4)
@click.option("--n-heads", type=click.IntRange(1), default=3)
@click.option("--n-kv-heads", type=click.IntRange(1), default=1)
@click.option("--held-out", type=click.IntRange(CONTEXT), default=65536, help="Tokens to measure the loss on.")
@click.option("--device", default="cpu", help="Where PyTorch computes, for example cuda.")
def main(
    prepared: Path,
    out: Path,
    minutes: float,
    steps: int | None,
    resume: Path | None,
    d_model: int,
    d_ff: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    held_out: int,
    device: str,
) -> None:
    """Train on PREPARED (tokenizer.json, ids.npy); write the model into OUT. --resume keeps the checkpoint's shape."""
    check_shape(d_model, n_heads, n_kv_heads, held_out)
    ids, unseen = read_ids(prepared / "ids.npy", held_out)
    torch.manual_seed(0)
    if resume is None:
        d_vocab = Tokenizer.from_file(str(prepared / "tokenizer.json")).get_vocab_size()
        model = LlamaForCausalLM(llama_config(d_vocab, d_model, d_ff, n_layers, n_heads, n_kv_heads))
    else:
        model = LlamaForCausalLM.from_pretrained(resume, dtype=torch.float32)
    model = model.to(device)
    # A resumed run draws pieces that the first one did not.
    rng = np.random.default_rng(0 if resume is None else time.time_ns())
    peak = FRESH_RATE if resume is None else RESUMED_RATE
    checkpoint = out / "checkpoint"
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        rate = step * BATCH * CONTEXT / (time.monotonic() - started)
        lost = held_out_loss(model, unseen)
        click.echo(f"step {step:,}: loss {loss:.3f}, held out {lost:.3f}, {rate:,.0f} tokens/s", err=True)
        model.save_pretrained(checkpoint)

    train(model, ids, rng, peak, progress_in(minutes, steps), report)
    model.save_pretrained(checkpoint)
    export(model, prepared / "tokenizer.json", out)
    click.echo(f"held-out loss {held_out_loss(model, unseen):.3f} per token; the model is in {out}", err=True)


if __name__ == "__main__":
    main()
