"""`generate`: complete a prompt."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Any

import click

from ringlet.core.commands.chat import chat_format, template_options
from ringlet.core.commands.options import (
    command,
    json_option,
    loading_options,
    open_pipeline,
    option,
    parse_special_option,
    ring_options,
    verbose_option,
)
from ringlet.core.defaults import DEFAULT_SAMPLER, MAX_TOKENS, SAMPLE
from ringlet.core.errors import RingletError
from ringlet.core.terminal.command import OUTPUT, RING, SAMPLING, TEXT
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import print_chunks, print_json, read_text_argument, remark, warn
from ringlet.core.terminal.files import check_writable
from ringlet.core.terminal.speed_text import speed_text

if TYPE_CHECKING:
    from ringlet.core.pipeline import Pipeline

SEEDS = 1 << 32  # seeds to draw from: short enough to be typed again


@command(
    short_help="Complete a text.",
    epilog="""\b
    Examples:
      ringlet generate "《静夜思》" --seed 7
      ringlet generate < prompt.txt
      ringlet generate -- "- a text that begins with a dash"
      ringlet generate "def fib(n):" --model model.gguf --sampler "min_p=0.1,temperature=1.2"
      ringlet generate "Hello" --sampler temperature=0 --max-tokens 32 --json
      ringlet generate "《春望》" --strategy "beam_search(beams=8)" --n 3
      ringlet generate "Who was Li Bai?" --chat --model model.gguf
      ringlet generate "Alice, as JSON: " --model model.gguf --json-schema person.json
    """,
)
@click.argument("prompt", required=False)
@loading_options
@option(
    TEXT,
    "--max-tokens",
    type=int,
    metavar="N",
    default=MAX_TOKENS,
    show_default=True,
    help="Tokens to generate at most.",
)
@option(TEXT, "--stop", multiple=True, metavar="TEXT", help="End before this text; may be given several times.")
@option(TEXT, "--ignore-eos", is_flag=True, help="Go on after the model's end token.")
@option(TEXT, "--chat", is_flag=True, help="PROMPT is a message, put into the model's chat template.")
@template_options
@parse_special_option
@option(
    SAMPLING,
    "--sampler",
    metavar="SPEC",
    help="A chain of samplers, left to right: name, name=value or name(parameter=value), with commas between, "
    'as in "min_p=0.1,temperature(temperature=1.2)". See: ringlet plugins list.  '
    f"[default: {DEFAULT_SAMPLER}]",
)
@option(
    SAMPLING,
    "--strategy",
    metavar="SPEC",
    default=SAMPLE,
    show_default=True,
    help='How tokens are chosen: sample, "beam_search(beams=4)" or "contrastive_search(top_k=4)".',
)
@option(
    SAMPLING, "--seed", type=int, metavar="N", help="The same seed gives the same text.  [default: another each time]"
)
@option(SAMPLING, "--n", type=int, metavar="N", default=1, show_default=True, help="Completions.")
@option(SAMPLING, "--best-of", type=int, metavar="N", help="Draw N completions and give the likeliest.")
@option(SAMPLING, "--json-schema", metavar="FILE", help="The completion is JSON that obeys this schema.")
@option(SAMPLING, "--regex", metavar="PATTERN", help="The completion matches this regular expression.")
@option(SAMPLING, "--grammar", metavar="FILE", help="The completion obeys this Lark grammar.")
@ring_options
@option(
    RING, "--prompt-cache", metavar="FILE", help="Begin with the ring in FILE, and keep it there for the next time."
)
@json_option
@option(OUTPUT, "--logprobs", type=int, metavar="N", help="With --json: log-probabilities, and the N likeliest tokens.")
@verbose_option
@click.pass_obj
def generate(
    state: CommandState,
    /,
    prompt: str | None,
    sampler: str | None,
    strategy: str,
    json_schema: str | None,
    regex: str | None,
    grammar: str | None,
    n: int,
    best_of: int | None,
    logprobs: int | None,
    chat: bool,
    system: str | None,
    template: str | None,
    prompt_cache: str | None,
    seed: int | None,
    max_tokens: int,
    stop: tuple[str, ...],
    ignore_eos: bool,
    parse_special: bool,
    as_json: bool,
    verbose: bool,
    **loading: Any,
) -> None:
    """Complete PROMPT, or standard input for "-" and where there is none."""
    from ringlet.core.checks import check_text
    from ringlet.core.completion import Completion
    from ringlet.core.generation.options import GenerationOptions

    text = read_text_argument(prompt)
    seed = randbelow(SEEDS) if seed is None else seed
    check_text(text)  # this and the options before a model is loaded, perhaps downloaded
    sampler = constrained(sampler, strategy, json_schema=json_schema, regex=regex, grammar=grammar)
    if logprobs is not None and not as_json:
        raise RingletError("--logprobs is shown by --json: give both")
    chosen = (max_tokens, sampler, seed, stop, ignore_eos)
    more: dict[str, Any] = {"logprobs": logprobs, "strategy": strategy}
    checked = GenerationOptions.checked(state.plugins, *chosen, n, best_of=best_of, **more)
    check_chat_options(chat, system, template, parse_special)
    if prompt_cache is not None:
        check_writable(prompt_cache)
        if checked.strategy.needs_hidden:
            raise RingletError(f"--prompt-cache: the strategy {strategy} computes a prompt anew: leave one of them out")
    pipe = open_pipeline(state, verbose=verbose, **loading)
    if chat:
        ids = chat_format(pipe.tokenizer, template).encode(first_messages(text, system))
    else:
        ids = pipe.tokenizer.encode(text, parse_special=parse_special)
    known = prompt_of_cache(pipe, prompt_cache)
    n_known = pipe.idle_ring.n_known(ids)
    if max_tokens and pipe.layout.overflow == "stop" and len(ids) == pipe.layout.context:
        warn(f"the prompt fills the context of {len(ids)} tokens: choose a larger --context, or --overflow slide")
    if n == 1 and best_of is None:
        with closing(pipe.stream(ids, *chosen, **more)) as stream:
            completions = [Completion.of_chunks(list(stream) if as_json else print_chunks(stream))]
    else:
        found = pipe.generate(ids, *chosen, n=n, best_of=best_of, **more)
        completions = found if isinstance(found, list) else [found]
        if not as_json:
            click.echo("\n\n".join(completion.text for completion in completions))
    if prompt_cache is not None and known != ids:
        pipe.save_session(prompt_cache)
    if as_json:
        run = {"model": pipe.model.name, "seed": seed}
        values = [run | completion.to_dict() for completion in completions]
        print_json(values if n > 1 else values[0])
    remark(f"seed: {seed}; {speed_text(completions, n_known)}", verbose)


def check_chat_options(chat: bool, system: str | None, template: str | None, parse_special: bool) -> None:
    """Raises RingletError where they contradict each other."""
    for name, value in (("--system", system), ("--template", template)):
        if value is not None and not chat:
            raise RingletError(f"{name} is for a conversation: give --chat with it")
    if chat and parse_special:
        raise RingletError("--parse-special: with --chat the template writes the special tokens: leave one of them out")


def first_messages(text: str, system: str | None) -> list[dict[str, str]]:
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": text}]


def prompt_of_cache(pipe: Pipeline, path: str | None) -> list[int] | None:
    """The pipeline has the ring of the file, if there is one; the ids of the prompt that it began with."""
    if path is None or not Path(path).expanduser().exists():
        return None
    session = pipe.load_session(path)
    return session.token_ids[: session.prompt_length]


def constrained(sampler: str | None, strategy: str, **constraints: str | None) -> str | None:
    """The chain of samplers with a constraint before it, where one is given. Raises RingletError for two."""
    given = [(name, value) for name, value in constraints.items() if value is not None]
    if not given:
        return sampler
    if len(given) > 1:
        options = [f"--{name.replace('_', '-')}" for name, _ in given]
        raise RingletError(f"{' and '.join(options)}: give one of them")
    from ringlet.core.generation.strategies import parse_strategy

    ((name, value),) = given
    chain = parse_strategy(strategy).usual_sampler if sampler is None else sampler
    return f"{name}({value!r})" + (f",{chain}" if chain.strip() else "")
