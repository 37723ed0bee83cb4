"""`explain`: attention, number by number."""

from __future__ import annotations

from typing import Any

import click

from ringlet.core.commands.options import (
    json_option,
    loading_options,
    open_pipeline,
    parse_special_option,
    ring_options,
)
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import print_json, print_lines, read_text_argument


@click.command(
    epilog="""\b
    Examples:
      ringlet explain "我爱你"
      ringlet explain "我爱你" --layer 2 --head 1 --token 2
      ringlet explain "我爱你" --max-tokens 12 --context 8 --overflow slide --sinks 2
    """
)
@click.argument("prompt")
@click.option("--layer", type=int, default=0, show_default=True, help="Which layer; -1: the last.")
@click.option("--head", type=int, default=0, show_default=True, help="Which of its heads; -1: the last.")
@click.option(
    "--token", type=int, default=-1, show_default=True, help="Which token asks, by its position; -1: the last."
)
@click.option(
    "--max-tokens", type=int, default=0, show_default=True, help="Tokens to draw after the prompt, the likeliest."
)
@parse_special_option
@loading_options
@ring_options
@json_option
@click.pass_obj
def explain(
    state: CommandState,
    /,
    prompt: str,
    layer: int,
    head: int,
    token: int,
    max_tokens: int,
    parse_special: bool,
    as_json: bool,
    **loading: Any,
) -> None:
    """Follow one token of PROMPT (or of standard input, for "-") through attention, number by number."""
    from ringlet.core.checks import check_text
    from ringlet.core.explanation.walk import walk
    from ringlet.core.terminal.columns import page_width
    from ringlet.core.terminal.walk_text import walk_lines

    text = read_text_argument(prompt)
    check_text(text)
    pipe = open_pipeline(state, verbose=False, **(loading | {"backend": "numpy"}))
    trace = pipe.trace(pipe.tokenizer.encode(text, parse_special=parse_special), max_tokens)
    found = walk(pipe, trace, layer, head, token)
    if as_json:
        print_json(found.to_dict())
    else:
        print_lines(walk_lines(found, page_width()))
