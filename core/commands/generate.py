"""`generate`: complete a prompt."""

from __future__ import annotations

from contextlib import closing
from secrets import randbelow
from typing import TYPE_CHECKING, Any

import click

from ringlet.core.commands.options import (
    json_option,
    loading_options,
    open_pipeline,
    parse_special_option,
    ring_options,
    verbose_option,
)
from ringlet.core.defaults import DEFAULT_SAMPLER, MAX_TOKENS
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import print_chunks, print_json, read_text_argument, remark, warn

if TYPE_CHECKING:
    from ringlet.core.completion import Completion

SEEDS = 1 << 32  # seeds to draw from: short enough to be typed again


@click.command(
    epilog="""\b
    Examples:
      ringlet generate "《静夜思》" --seed 7
      ringlet generate - < prompt.txt
      ringlet generate -- "- a text that begins with a dash"
      ringlet generate "def fib(n):" --model model.gguf --sampler "min_p=0.1,temperature=1.2"
      ringlet generate "Hello" --sampler temperature=0 --max-tokens 32 --json
    """
)
@click.argument("prompt")
@loading_options
@ring_options
@click.option(
    "--sampler",
    metavar="SPEC",
    default=DEFAULT_SAMPLER,
    show_default=True,
    help="A chain of samplers, left to right: name, name=value or name(parameter=value), with commas between, "
    'as in "min_p=0.1,temperature(temperature=1.2)". See: ringlet plugins list.',
)
@click.option("--seed", type=int, help="The same seed gives the same text.  [default: another each time]")
@click.option("--max-tokens", type=int, default=MAX_TOKENS, show_default=True, help="Tokens to generate at most.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be given several times.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the model's end token.")
@parse_special_option
@json_option
@verbose_option
@click.pass_obj
def generate(
    state: CommandState,
    /,
    prompt: str,
    sampler: str,
    seed: int | None,
    max_tokens: int,
    stop: tuple[str, ...],
    ignore_eos: bool,
    parse_special: bool,
    as_json: bool,
    verbose: bool,
    **loading: Any,
) -> None:
    """Complete PROMPT, or standard input for "-"."""
    from ringlet.core.checks import check_text
    from ringlet.core.completion import Completion
    from ringlet.core.generation.options import GenerationOptions

    text = read_text_argument(prompt)
    seed = randbelow(SEEDS) if seed is None else seed
    check_text(text)  # this and the options before a model is loaded, perhaps downloaded
    GenerationOptions.checked(state.plugins, max_tokens, sampler, seed, stop, ignore_eos)
    pipe = open_pipeline(state, verbose=verbose, **loading)
    ids = pipe.tokenizer.encode(text, parse_special=parse_special)
    if max_tokens and pipe.layout.overflow == "stop" and len(ids) == pipe.layout.context:
        warn(f"the prompt fills the context of {len(ids)} tokens: choose a larger --context, or --overflow slide")
    with closing(pipe.stream(ids, max_tokens, sampler, seed, stop, ignore_eos)) as stream:
        chunks = list(stream) if as_json else print_chunks(stream)
    completion = Completion.of_chunks(chunks)
    if as_json:
        print_json(completion.to_dict())
    remark(f"seed: {seed}; {speed_text(completion)}", verbose)


def speed_text(completion: Completion) -> str:
    """How a generation went."""
    usage = completion.usage
    parts = []
    for name, n_tokens in (("prompt", usage.prompt_tokens), ("generate", usage.completion_tokens)):
        seconds = completion.timings[name]
        speed = f" ({n_tokens / seconds:.1f} tokens/s)" if seconds > 0 else ""
        parts.append(f"{name}: {n_tokens} tokens in {seconds:.2f} s{speed}")
    return f"{'; '.join(parts)}; finish: {completion.finish_reason}"
