"""`explain`: attention, number by number."""

from __future__ import annotations

from typing import Any

import click

from ringlet.core.commands.options import (
    command,
    json_option,
    loading_options,
    open_pipeline,
    option,
    parse_special_option,
    ring_options,
)
from ringlet.core.terminal.command import OWN
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import passing_lines, print_json, print_lines, read_text_argument, remark
from ringlet.core.terminal.files import check_writable, write_text_file

REFERENCE = "numpy"  # the backend that tells of its arrays


@command(
    short_help="Show attention at work, number by number.",
    epilog="""\b
    Examples:
      ringlet explain "我爱你"
      ringlet explain "我爱你" --layer 2 --head 1 --token 2
      ringlet explain "我爱你" --max-tokens 12 --context 8 --overflow slide --sinks 2
      ringlet explain "床前明月光" --max-tokens 12 --html page.html
      ringlet explain "我爱你" --layer 2 --head 1 --svg attention.svg
      ringlet explain --softmax
      ringlet explain --scaling --svg scaling.svg
    """,
)
@click.argument("prompt", required=False)
@option(OWN, "--layer", type=int, metavar="N", default=0, show_default=True, help="Which layer; -1: the last.")
@option(OWN, "--head", type=int, metavar="N", default=0, show_default=True, help="Which of its heads; -1: the last.")
@option(OWN, "--token", type=int, metavar="N", default=-1, show_default=True, help="Which token asks; -1: the last.")
@option(
    OWN,
    "--max-tokens",
    type=int,
    metavar="N",
    default=0,
    show_default=True,
    help="Tokens to draw first, the likeliest.",
)
@option(OWN, "--softmax", is_flag=True, help="Why √d_k: how sharp α is with the scale, and without.")
@option(OWN, "--scaling", is_flag=True, help="What a token costs as the text grows, measured here.")
@option(OWN, "--svg", metavar="FILE", help="Draw the step of attention; with --scaling, that.")
@option(OWN, "--html", metavar="FILE", help="A page to look at in a browser: all layers, heads and steps.")
@parse_special_option
@loading_options
@ring_options
@json_option
@click.pass_obj
def explain(
    state: CommandState,
    /,
    prompt: str | None,
    layer: int,
    head: int,
    token: int,
    max_tokens: int,
    softmax: bool,
    scaling: bool,
    svg: str | None,
    html: str | None,
    parse_special: bool,
    as_json: bool,
    **loading: Any,
) -> None:
    """Follow one token of PROMPT (or of standard input, for "-") through attention, number by number."""
    if softmax and scaling:
        raise click.UsageError("--softmax and --scaling are two things: choose one")
    if svg is not None and softmax:
        raise click.UsageError("--svg does not go with --softmax: it draws PROMPT's attention, or --scaling")
    if html is not None and (softmax or scaling):
        raise click.UsageError("--html goes with neither --softmax nor --scaling")
    if scaling:
        explain_scaling(state, svg, as_json, loading)
        return
    text = explained_text(prompt, softmax)
    for path in filter(None, (html, svg)):
        check_writable(path)  # before a model is loaded
    pipe = open_pipeline(state, verbose=False, **(loading | {"backend": REFERENCE}))
    ids = pipe.tokenizer.encode(text, parse_special=parse_special)
    if html is not None:
        from ringlet.core.explanation.page_data import check_page_size

        check_page_size(pipe.model.config, len(ids) + max(0, max_tokens))
    trace = pipe.trace(ids, max_tokens)
    if softmax:
        from ringlet.core.explanation.softmax import study_softmax
        from ringlet.core.terminal.softmax_text import softmax_lines

        show(study_softmax(trace), softmax_lines, as_json)
        return
    from ringlet.core.explanation.attention_flow import attention_flow
    from ringlet.core.explanation.html_page import html_page
    from ringlet.core.explanation.walk import walk
    from ringlet.core.terminal.walk_text import walk_lines

    found = walk(pipe, trace, layer, head, token)
    if html is not None:
        write_picture(html, html_page(trace, layer, head, token))
    if svg is not None:
        write_picture(svg, attention_flow(trace, layer, head, token))
    show(found, walk_lines, as_json)


def explained_text(prompt: str | None, softmax: bool) -> str:
    """What the user gave, or, to see softmax at work, the usual text."""
    from ringlet.core.checks import check_text
    from ringlet.core.explanation.softmax import USUAL_TEXT

    if prompt is None:
        if softmax:
            return USUAL_TEXT
        raise click.UsageError("PROMPT is missing: it may be left out with --softmax and --scaling")
    text = read_text_argument(prompt)
    check_text(text)
    return text


def explain_scaling(state: CommandState, svg: str | None, as_json: bool, loading: dict[str, Any]) -> None:
    """Measured with the backend that the user wants."""
    from ringlet.core.measurement.scaling import measure_scaling, text_lengths
    from ringlet.core.terminal.scaling_text import scaling_lines, scaling_picture

    if loading["context"] is not None:
        text_lengths(loading["context"])  # this and the file before a model is loaded
    if svg is not None:
        check_writable(svg)
    pipe = open_pipeline(state, verbose=False, **loading)
    with passing_lines() as tell:
        found = measure_scaling(pipe, tell)
    if svg is not None:
        write_picture(svg, scaling_picture(found))
    show(found, scaling_lines, as_json)


def write_picture(path: str, text: str) -> None:
    write_text_file(path, text)
    remark(f"written: {path}", verbose=False)


def show(found: Any, lines_of: Any, as_json: bool) -> None:
    """What was found, as JSON or for people."""
    from ringlet.core.terminal.columns import page_width

    if as_json:
        print_json(found.to_dict())
    else:
        print_lines(lines_of(found, page_width()))
