"""`completion`: the script that completes commands in a shell."""

from __future__ import annotations

import click

from ringlet.core.commands.options import command

SHELLS = ("bash", "zsh", "fish")


@command(
    short_help="Print the script that completes commands in your shell.",
    epilog='\b\nExample, for bash:\n  eval "$(ringlet completion bash)"',
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes ringlet's commands and options in SHELL."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(found(ctx.find_root().command, {}, "ringlet", "_RINGLET_COMPLETE").source())
