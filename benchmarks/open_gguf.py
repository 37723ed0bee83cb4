"""How long a GGUF file takes to open, and its vocabulary to read.

    python benchmarks/open_gguf.py MODEL.gguf [--repeats 9]

Prints the median time of each in seconds, with the file's pages in memory: opening reads the whole header and places
every tensor; the tokens' texts are decoded when they are first asked for.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter

import click

from ringlet.core.formats.gguf import open_gguf

TOKENS = "tokenizer.ggml.tokens"


def measure(model: Path) -> tuple[float, float]:
    """Seconds to open the file, and to read its tokens from then on."""
    start = perf_counter()
    metadata = open_gguf(model).metadata
    opened = perf_counter()
    metadata.get(TOKENS)
    return opened - start, perf_counter() - opened


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--repeats", type=click.IntRange(min=1), default=9, show_default=True, help="How often to measure.")
def main(model: Path, repeats: int) -> None:
    """Median times to open MODEL (a GGUF file) and to read its tokens."""
    tokens = open_gguf(model).metadata.get(TOKENS)  # its pages come into memory
    n_tokens = len(tokens) if isinstance(tokens, list) else 0
    opening, reading = zip(*(measure(model) for _ in range(repeats)), strict=True)
    click.echo(f"{model.name}, {n_tokens} tokens, median of {repeats}")
    click.echo(f"open   {median(opening):.4f} s")
    click.echo(f"tokens {median(reading):.4f} s")


if __name__ == "__main__":
    main()
