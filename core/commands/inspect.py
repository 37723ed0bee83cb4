"""`inspect`: what a model is."""

from __future__ import annotations

import click
from click.core import ParameterSource

from ringlet.core.commands.options import command, ignored_keys_option, json_option, ring_options, source_option
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import print_json, print_lines


@command(
    short_help="Show what a model is, and what memory it takes.",
    epilog="\b\nExample:\n  ringlet inspect model.gguf --context 8192",
)
@click.argument("argument", metavar="[MODEL]", required=False)
@source_option
@ring_options
@ignored_keys_option
@json_option
@click.pass_obj
def inspect(
    state: CommandState,
    /,
    argument: str | None,
    model: str | None,
    context: int | None,
    sinks: int,
    overflow: str,
    ignore_config_keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show what MODEL is: sizes, weights, formats, and the memory its ring takes."""
    is_given = click.get_current_context().get_parameter_source("model") is ParameterSource.COMMANDLINE
    if argument is not None and model is not None and is_given:
        raise click.UsageError("MODEL is given twice: as an argument and as --model")
    from ringlet.core.measurement.inspection import inspect_model
    from ringlet.core.model import load_model
    from ringlet.core.pipeline import ring_layout
    from ringlet.core.terminal.inspection_text import inspection_lines

    architectures = [registered.cls for registered in state.plugins.registry("architecture").values()]
    loaded = load_model(model if argument is None else argument, architectures, ignore_config_keys=ignore_config_keys)
    found = inspect_model(loaded, ring_layout(loaded.config, context, sinks, overflow))
    if as_json:
        print_json(found)
        return
    print_lines(inspection_lines(found))
