"""`bench`: how fast a model is here."""

from __future__ import annotations

from typing import Any

import click

from ringlet.core.commands.options import command, json_option, loading_options, open_pipeline, option
from ringlet.core.terminal.command import OWN
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import passing_lines, print_json, print_lines


@command(
    short_help="Measure how fast a model runs here.",
    epilog="""\b
    Examples:
      ringlet bench --model model.gguf --depth 0,1024,4096
      ringlet bench --model model.gguf --prompt 0 --batch 1,8 --threads 2 --json
    """,
)
@option(
    OWN,
    "--prompt",
    type=int,
    metavar="N",
    default=512,
    show_default=True,
    help="Tokens of a prompt; 0: do not measure that.",
)
@option(
    OWN, "--generate", type=int, metavar="N", default=64, show_default=True, help="Tokens to generate; 0: as above."
)
@option(OWN, "--depth", metavar="N,N…", default="0", show_default=True, help="Tokens that a ring holds already.")
@option(OWN, "--batch", metavar="N,N…", default="1", show_default=True, help="Sequences computed together.")
@option(OWN, "--repeat", type=int, metavar="N", default=5, show_default=True, help="How often to measure each test.")
@loading_options
@json_option
@click.pass_obj
def bench(
    state: CommandState,
    /,
    prompt: int,
    generate: int,
    depth: str,
    batch: str,
    repeat: int,
    as_json: bool,
    **loading: Any,
) -> None:
    """Measure how fast a model takes prompts and generates, and how near to the machine's limit that is."""
    from ringlet.core.measurement.benchmark import Settings, run_benchmark, whole_numbers
    from ringlet.core.terminal.benchmark_text import benchmark_lines, benchmark_rows

    depths, batches = whole_numbers("--depth", depth, 0), whole_numbers("--batch", batch, 1)
    settings = Settings(prompt, generate, depths, batches, repeat)
    pipe = open_pipeline(state, verbose=False, **loading)
    with passing_lines() as tell:
        results = list(run_benchmark(pipe, settings, tell))
    if as_json:
        print_json(benchmark_rows(pipe, results, repeat))
    else:
        print_lines(benchmark_lines(results))
