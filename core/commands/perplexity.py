"""`perplexity`: how well a model predicts a text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from ringlet.core.commands.options import command, json_option, loading_options, open_pipeline, option, verbose_option
from ringlet.core.terminal.command import OWN
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import print_json, progress_bar, read_text_file


@command(short_help="Measure how well a model predicts a text.")
@click.argument("file", type=click.Path())
@option(
    OWN,
    "--context",
    type=click.IntRange(min=4),
    metavar="N",
    default=512,
    show_default=True,
    help="Tokens in a window.",
)
@loading_options
@json_option
@verbose_option
@click.pass_obj
def perplexity(state: CommandState, /, file: str, context: int, as_json: bool, verbose: bool, **loading: Any) -> None:
    """How well a model predicts the text in FILE ("-": standard input), in windows as llama.cpp measures it."""
    from ringlet.core.measurement.perplexity import perplexity as measure

    text = read_text_file(file)
    pipe = open_pipeline(state, verbose=verbose, context=context, **loading)

    with progress_bar(verbose) as tell:
        result = measure(
            pipe, text, context, lambda done, windows, so_far: tell(done, windows, f"perplexity {so_far:.4f} so far")
        )
    if as_json:
        print_json(asdict(result))
    else:
        click.echo(
            f"perplexity {result.perplexity:.4f} ± {result.error:.4f} "
            f"({result.tokens_scored} tokens scored, {result.windows} windows of {result.context})"
        )
