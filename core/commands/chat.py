"""`chat`: talk with a model."""

from __future__ import annotations

from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Any

import click

from ringlet.core.commands.options import (
    command,
    loading_options,
    open_pipeline,
    option,
    options,
    ring_options,
    verbose_option,
)
from ringlet.core.defaults import DEFAULT_SAMPLER
from ringlet.core.errors import RingletError
from ringlet.core.terminal.command import SAMPLING, TEXT
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import read_text_file, remark, warn
from ringlet.tokenization.chat.shipped import SHIPPED

if TYPE_CHECKING:
    from ringlet.tokenization.chat.format import ChatFormat
    from ringlet.tokenization.tokenizer import Tokenizer

MOST_BYTES = 1 << 20  # of a template in a file
SEEDS = 1 << 32  # seeds to draw from: short enough to be typed again
template_options = options(
    option(TEXT, "--system", metavar="TEXT", help="What the model is told before the conversation."),
    option(
        TEXT,
        "--template",
        metavar="TEMPLATE",
        help=f"A chat template instead of the model's own: {', '.join(SHIPPED)}, the name of another of the model's, "
        "a file, or a Jinja text.",
    ),
)


@command(
    short_help="Talk with a model.",
    epilog="""\b
    Examples:
      ringlet chat --model model.gguf
      ringlet chat --model org/name --system "Answer in one sentence." --context 8192
      ringlet chat --template plain --max-tokens 64
      echo "Who was Li Bai?" | ringlet chat --model model.gguf
    """,
)
@loading_options
@template_options
@option(
    TEXT,
    "--max-tokens",
    type=int,
    metavar="N",
    help="Tokens of an answer at most.  [default: as many as the context has]",
)
@option(TEXT, "--stop", multiple=True, metavar="TEXT", help="End an answer before this text; may be repeated.")
@option(
    SAMPLING,
    "--sampler",
    metavar="SPEC",
    default=DEFAULT_SAMPLER,
    show_default=True,
    help="A chain of samplers, as for generate.",
)
@option(
    SAMPLING,
    "--seed",
    type=int,
    metavar="N",
    help="The same seed gives the same answers.  [default: another each time]",
)
@ring_options
@verbose_option
@click.pass_obj
def chat(
    state: CommandState,
    /,
    system: str | None,
    template: str | None,
    sampler: str,
    seed: int | None,
    max_tokens: int | None,
    stop: tuple[str, ...],
    verbose: bool,
    **loading: Any,
) -> None:
    """Talk with a model: each line is a message. /help lists what else a line may be, Ctrl-D leaves.

    Through a pipe it is the same, without a prompt.
    """
    from ringlet.core.chat.conversation import ChatOptions, Conversation
    from ringlet.core.generation.options import GenerationOptions
    from ringlet.core.terminal.chat_lines import ChatLines, line_editing
    from ringlet.core.terminal.chat_session import ChatSession

    def check_sampler(spec: str) -> None:
        GenerationOptions.checked(state.plugins, 1 if max_tokens is None else max_tokens, spec, seed, stop, False)

    check_sampler(sampler)  # before a model is loaded, perhaps downloaded
    pipe = open_pipeline(state, verbose=verbose, **loading)
    chosen = ChatOptions(sampler, randbelow(SEEDS) if seed is None else seed, max_tokens, stop)
    conversation = Conversation(pipe, chat_format(pipe.tokenizer, template), chosen, system)
    lines = ChatLines()
    remark(f"seed: {chosen.seed}", verbose)
    if lines.is_terminal:
        remark("/help lists the commands, Ctrl-D leaves", verbose)
    with line_editing(lines.is_terminal):
        ChatSession(conversation, lines, check_sampler).run()


def chat_format(tokenizer: Tokenizer, template: str | None) -> ChatFormat:
    """The model's own, one by its name, or one in a file or a text. Raises RingletError where there is none."""
    if template is None or template in tokenizer.chat_templates:
        return tokenizer.chat_format(template)
    if template in SHIPPED:
        warn_of_missing_tokens(tokenizer, template)
        return tokenizer.chat_format(template)
    if "{{" in template or "{%" in template:
        return tokenizer.chat_format(template, "--template")
    if template.isidentifier() and not Path(template).exists():
        names = ", ".join((*sorted(tokenizer.chat_templates), *SHIPPED))
        raise RingletError(f"--template {template}: neither a file nor a template's name: there are {names}")
    return tokenizer.chat_format(read_text_file(template, MOST_BYTES), template)


def warn_of_missing_tokens(tokenizer: Tokenizer, template: str) -> None:
    """A model that was not trained for a format reads its control tokens as plain text."""
    missing = [text for text in SHIPPED[template] if len(tokenizer.encode(text, False, parse_special=True)) != 1]
    if missing:
        warn(f"the model has no token {', '.join(missing)}: the template {template} is not the one it was trained with")
