"""How far a backend, or llama.cpp, is from the same model computed in float32.

    python benchmarks/kl_divergence.py [MODEL] [TEXT] [--backend cpu] [--context 512]
    python benchmarks/kl_divergence.py [MODEL] [TEXT] --quantize all [--float-copy COPY.gguf]

Prints for each engine the mean Kullback-Leibler divergence KL(reference ‖ engine) in nats a token, and how often both
hold the same token for the best. The reference is the `numpy` backend: the stored weights, unpacked and computed in
float32. `--transformers` measures that reference itself. llama.cpp joins where `llama_cpp` can be imported.

`--quantize` measures instead what it costs to quantise the model at load: the reference is the model as it is. A GGUF
file that is quantised already is measured as a copy in F16, which `--float-copy` names and makes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from float_copy import write_float_copy

DEFAULT_TEXT = Path(__file__).resolve().parent.parent / "tests/fixtures/real_models/prompts/mixed_long.txt"

Logits = Callable[[list[int]], np.ndarray]  # token ids to float32 (len(ids), d_vocab), teacher forced


class Divergence(NamedTuple):
    """One number a position."""

    kl: np.ndarray  # float64, nats
    same_best: np.ndarray  # bool


def divergence(reference: np.ndarray, logits: np.ndarray) -> Divergence:
    """KL(p ‖ q) = Σᵢ pᵢ·(log pᵢ - log qᵢ) of each row, for the softmaxes p and q of logits (positions, d_vocab)."""
    kl = np.array([kl_of_row(x, y) for x, y in zip(reference, logits, strict=True)])
    return Divergence(kl, reference.argmax(axis=-1) == logits.argmax(axis=-1))


def kl_of_row(x: np.ndarray, y: np.ndarray) -> float:
    """KL(softmax(x) ‖ softmax(y)) in float64: Σᵢ pᵢ·(xᵢ - yᵢ) - log Σ eˣ + log Σ eʸ."""
    x, y = x.astype(np.float64) - x.max(), y.astype(np.float64) - y.max()
    weights = np.exp(x)
    total = weights.sum()
    return weights @ (x - y) / total - np.log(total) + np.log(np.exp(y).sum())


def llama_cpp_logits(model: Path, context: int, threads: int | None, float32_cache: bool = False) -> Logits:
    """llama.cpp's logits, with its default cache in float16 unless told otherwise."""
    import llama_cpp

    cache = llama_cpp.GGML_TYPE_F32 if float32_cache else None
    engine = llama_cpp.Llama(
        str(model),
        n_ctx=context,
        n_batch=min(context, 512),
        n_threads=threads,
        n_threads_batch=threads,
        type_k=cache,
        type_v=cache,
        logits_all=True,
        verbose=False,
    )

    def logits(ids: list[int]) -> np.ndarray:
        engine.reset()
        engine.eval(ids)
        return engine.scores[: len(ids)].copy()

    return logits


def transformers_logits(model: Path, threads: int | None) -> Logits:
    """The logits of PyTorch in float32, through transformers' own reading of the GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM

    if threads:
        torch.set_num_threads(threads)
    network = AutoModelForCausalLM.from_pretrained(
        str(model.parent), gguf_file=model.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()

    @torch.inference_mode()
    def logits(ids: list[int]) -> np.ndarray:
        return network(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()

    return logits


def ringlet_engine(
    model: Path | None, backend: str, context: int, threads: int | None, quantize: str | None = None
) -> Logits:
    from ringlet import Pipeline

    source = None if model is None else str(model)
    options = {"backend": backend, "context": context, "threads": threads, "quantize": quantize}
    return Pipeline.from_pretrained(source, **options).logits


def engines(
    model: Path | None, backends: tuple[str, ...], context: int, threads: int | None, torch: bool
) -> Iterator[tuple[str, Logits]]:
    """The engines to measure, by name."""
    for backend in backends:
        yield backend, ringlet_engine(model, backend, context, threads)
    if model is not None and model.is_file() and importlib.util.find_spec("llama_cpp"):
        yield "llama.cpp", llama_cpp_logits(model, context, threads)
    if model is not None and torch:
        yield "transformers", transformers_logits(model, threads)


def quantized_engines(
    model: Path | None, backends: tuple[str, ...], context: int, threads: int | None, words: tuple[str, ...]
) -> Iterator[tuple[str, Logits]]:
    """The same model quantised, by format and backend."""
    for word in words:
        for backend in backends:
            yield f"{word}, {backend}", ringlet_engine(model, backend, context, threads, word)


def windows(ids: list[int], context: int, limit: int) -> list[list[int]]:
    """The first `limit` windows of up to `context` tokens."""
    whole = [ids[start : start + context] for start in range(0, len(ids), context)]
    return [window for window in whole if len(window) > 1][:limit]


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path), required=False)
@click.argument("text", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=DEFAULT_TEXT)
@click.option("--backend", "backends", multiple=True, default=["cpu"], help="Repeatable.", show_default=True)
@click.option("--context", default=512, show_default=True, help="Tokens of one window; each starts with an empty ring.")
@click.option("--max-windows", default=6, show_default=True, help="Windows of the text to use.")
@click.option("--threads", type=int, help="Threads of every engine; its own default if not given.")
@click.option("--transformers", "torch", is_flag=True, help="Measure PyTorch in float32 too, to check the reference.")
@click.option("--quantize", "words", multiple=True, help="Measure this format, or all, instead of engines. Repeatable.")
@click.option("--float-copy", type=click.Path(path_type=Path), help="Measure a copy of MODEL in F16, made there.")
@click.option("--markdown", is_flag=True, help="Print the table for a page.")
def main(
    model: Path | None,
    text: Path,
    backends: tuple[str, ...],
    context: int,
    max_windows: int,
    threads: int | None,
    torch: bool,
    words: tuple[str, ...],
    float_copy: Path | None,
    markdown: bool,
) -> None:
    """Mean KL and share of same best tokens against float32, for MODEL (a GGUF file or a directory; the embedded model
    without it) on TEXT (UTF-8)."""
    from ringlet import Pipeline
    from ringlet.core.quantizing.plan import FORMATS

    if float_copy is not None and model is not None:
        write_float_copy(model, float_copy)
        model = float_copy
    reference = Pipeline.from_pretrained(
        None if model is None else str(model), backend="numpy", context=context, threads=threads
    )
    special = reference.tokenizer.encode("")  # a begin token, where the model wants one
    ids = reference.tokenizer.encode(text.read_text(encoding="utf-8"), add_special=False)
    parts = [special + window for window in windows(ids, context - len(special), max_windows)]
    click.echo(f"{reference.model.name}, {sum(map(len, parts))} tokens in {len(parts)} windows of {context}")
    expected = [reference.logits(part) for part in parts]
    if words:
        chosen = tuple(FORMATS) if "all" in words else words
        found = quantized_engines(model, backends, context, threads, chosen)
    else:
        found = engines(model, backends, context, threads, torch)
    row = "| {} | {} | {} | {} | {} |" if markdown else "{:<16} {:>10} {:>10} {:>10} {:>10}"
    click.echo(row.format("engine", "mean KL", "99% of KL", "largest KL", "same best"))
    if markdown:
        click.echo(row.format("---", *["--:"] * 4))
    for name, logits in found:
        results = [divergence(want, logits(part)) for want, part in zip(expected, parts, strict=True)]
        kl, same = (np.concatenate(column) for column in zip(*results, strict=True))
        figures = [f"{figure:.6f}" for figure in (kl.mean(), np.quantile(kl, 0.99), kl.max())]
        click.echo(row.format(name, *figures, f"{100 * same.mean():.2f}%"))


if __name__ == "__main__":
    main()
