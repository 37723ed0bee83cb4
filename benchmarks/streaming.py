"""What a sliding ring costs in perplexity, with attention sinks and without: the table of the StreamingLLM paper.

    python benchmarks/streaming.py MODEL [--text FILE] [--tokens 4096] [--ring 256] [--sinks 0 --sinks 4] [--markdown]

(Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023.) The text is one long stream through one
ring; the same tokens are scored in every row, those after the first `--skip`, when each ring has long begun to slide.
Without `--text` it is the Python language's reference, as `pydoc` holds it in every Python, so its figures depend on
the version of Python. Chunks are exact: what a query sees depends on its position alone.
"""

from __future__ import annotations

from math import exp
from pathlib import Path
from platform import python_version

import click
import numpy as np

from ringlet import Pipeline
from ringlet.core.measurement.perplexity import negative_log_likelihoods
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step

CHUNK = 64


def python_reference() -> str:
    """English prose: the longest topics of `pydoc`, in order of their names."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics) if len(topics[name]) > 4000)


def stream_perplexity(pipe: Pipeline, layout: RingLayout, ids: list[int], skip: int) -> float:
    """exp of the mean of -ln p of ids[skip:], each given what the ring then holds."""
    ring, losses = pipe.new_ring(layout), []
    for at in range(0, len(ids) - 1, layout.chunk):
        part = ids[at : min(at + layout.chunk, len(ids) - 1)]
        logits = run_step(pipe.backend, [(ring, part, "all")])
        losses.append(negative_log_likelihoods(logits, ids[at + 1 : at + 1 + len(part)]))
    return exp(np.concatenate(losses)[skip - 1 :].mean())


@click.command()
@click.argument("model")
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="UTF-8.")
@click.option("--tokens", default=4096, show_default=True, help="Of the text, from its beginning.")
@click.option("--skip", default=1024, show_default=True, help="First tokens that are not scored.")
@click.option("--ring", "rings", multiple=True, default=[256, 512, 1024], show_default=True)
@click.option("--sinks", "all_sinks", multiple=True, type=int, default=[0, 4], show_default=True)
@click.option("--threads", type=int)
@click.option("--markdown", is_flag=True, help="Print the table for a page.")
def main(
    model: str,
    text: Path | None,
    tokens: int,
    skip: int,
    rings: tuple[int, ...],
    all_sinks: tuple[int, ...],
    threads: int | None,
    markdown: bool,
) -> None:
    """Perplexity of MODEL over a stream, with the full cache and with rings."""
    pipe = Pipeline.from_pretrained(model, threads=threads)
    ids = pipe.tokenizer.encode(python_reference() if text is None else text.read_text(encoding="utf-8"))[:tokens]
    if not 1 <= skip < len(ids):
        raise click.BadParameter(f"from 1 to {len(ids) - 1} are possible: the text has {len(ids)} tokens")
    source = f"the reference of Python {python_version()}" if text is None else text.name
    click.echo(f"{pipe.model.name}: {source}, {len(ids)} tokens, scored from {skip} on")
    row = "| {} | {} | {} |" if markdown else "{:>10}  {:>6}  {:>12}"
    click.echo(row.format("ring", "sinks", "perplexity"))
    if markdown:
        click.echo("| --: | --: | --: |")
    config = pipe.model.config
    click.echo(row.format("full", "", told(pipe, RingLayout.of(config, len(ids), chunk=CHUNK), ids, skip)))
    for context in rings:
        for sinks in all_sinks:
            layout = RingLayout.of(config, context, sinks, "slide", chunk=CHUNK)
            click.echo(row.format(context, sinks, told(pipe, layout, ids, skip)))


def told(pipe: Pipeline, layout: RingLayout, ids: list[int], skip: int) -> str:
    return f"{stream_perplexity(pipe, layout, ids, skip):.3f}"


if __name__ == "__main__":
    main()
