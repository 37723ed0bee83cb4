"""`warmup`: what the first use of a model would wait for, done now."""

from __future__ import annotations

from typing import Any

import click

from ringlet.core.commands.options import command, loading_options, open_pipeline, option
from ringlet.core.terminal.command import OWN
from ringlet.core.terminal.command_group import CommandState


@command(
    short_help="Compile what a model needs, before it is first used.",
    epilog="""\b
    Examples:
      ringlet warmup
      ringlet warmup --model org/name --quantize q8_0
      ringlet warmup --all
    """,
)
@option(OWN, "--all", "everything", is_flag=True, help="Compile for every format that a model may have.")
@loading_options
@click.pass_obj
def warmup(state: CommandState, /, everything: bool, **loading: Any) -> None:
    """Compile the kernels that a model needs, and quantise its weights if asked to, before they are first used."""
    pipe = open_pipeline(state, verbose=False, **loading)
    pipe.logits([0])  # what a ring of this kind needs comes with the first one
    click.echo(f"{pipe.model.name}: backend {pipe.backend.label} {pipe.backend.warm_up(everything)}")
