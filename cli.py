"""The command line: parse, call core, print. `ringlet.cli:main` is the click Group itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from secrets import randbelow
from typing import TYPE_CHECKING, Any

try:
    import click

    from ringlet.core.command_group import CommandState, RootGroup
    from ringlet.core.console import (
        passing_lines,
        print_chunks,
        print_json,
        print_lines,
        progress_bar,
        read_text_argument,
        read_text_file,
        remark,
        warn,
    )
    from ringlet.core.defaults import DEFAULT_SAMPLER, MAX_TOKENS
    from ringlet.core.text_tables import size_text
except ModuleNotFoundError as missing:
    if __name__ != "__main__":
        raise
    print(f"Error: {missing.name} is not installed: run  pip install -e .  in this folder first", file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)  # Ctrl-C while we are still being imported

if TYPE_CHECKING:
    from ringlet.core.completion import Completion
    from ringlet.core.pipeline import Pipeline

SHELLS = ("bash", "zsh", "fish")
SEEDS = 1 << 32  # seeds to draw from: short enough to be typed again
Command = Callable[..., Any]


@click.group("ringlet", cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ringlet", prog_name="ringlet")
def main() -> None:
    """Generate text with language models.

    \b
    Examples:
      ringlet generate "我爱你"
      ringlet generate "Once upon a time" --model org/name
      ringlet inspect model.gguf
    """


def options(*decorators: Command) -> Command:
    """Several of click's options as one decorator."""

    def apply(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


source_option = click.option(
    "--model",
    metavar="MODEL",
    help="A GGUF file, a directory, or org/name[:file.gguf] from the Hub.  [default: the embedded model]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
parse_special_option = click.option(
    "--parse-special", is_flag=True, help="Special tokens written in the text become their ids."
)
verbose_option = click.option(
    "--verbose", is_flag=True, help="Say on standard error what was chosen and how fast it went."
)
ignored_keys_option = click.option(
    "--ignore-config-key",
    "ignore_config_keys",
    multiple=True,
    metavar="KEY",
    help="Treat a configuration key as not there; may be given several times.",
)
loading_options = options(
    source_option,
    click.option("--backend", default="auto", show_default=True, help="cpu, numpy, or a plugin's; auto: the fastest."),
    click.option("--kv-dtype", default="auto", show_default=True, help="What the ring holds: f16 or f32."),
    click.option("--quantize", metavar="FORMAT", help="Quantise weights at load (not available yet)."),
    click.option("--threads", type=int, help="Threads of the backend.  [default: its choice]"),
    click.option("--no-mmap", is_flag=True, help="Read the weights into memory instead of mapping the file."),
    ignored_keys_option,
)
ring_options = options(
    click.option("--context", type=int, help="Tokens in all.  [default: the model's own, 4096 at most]"),
    click.option("--sinks", type=int, default=0, show_default=True, help="First tokens that a sliding ring keeps."),
    click.option(
        "--overflow",
        type=click.Choice(["stop", "slide"]),
        default="stop",
        show_default=True,
        help="When the ring is full: end the text, or overwrite the oldest token.",
    ),
)


def open_pipeline(state: CommandState, model: str | None, no_mmap: bool, verbose: bool, **chosen: Any) -> Pipeline:
    """The pipeline that the options ask for; says what it is, and what is odd about the options."""
    from ringlet.core.pipeline import Pipeline

    pipe = Pipeline.from_pretrained(model, mmap=not no_mmap, plugins=state.plugin_files, **chosen)
    remark(
        f"{pipe.model.name}: backend {pipe.backend.name}, ring {size_text(pipe.ring_bytes)} "
        f"({pipe.layout.context} tokens, {pipe.kv_dtype}), loaded in {pipe.load_seconds:.2f} s",
        verbose,
    )
    layout, own_context = pipe.layout, pipe.model.config.context_length
    if layout.context > own_context:
        warn(f"the context {layout.context} is beyond the model's own {own_context}, where it may write nonsense")
    if layout.sinks and layout.overflow == "stop":
        warn("--sinks does nothing without --overflow slide")
    return pipe


@main.command(
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
    from ringlet.core.generation_options import GenerationOptions

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


@main.command(epilog='\b\nExample:\n  ringlet tokenize "我爱你"')
@click.argument("text")
@source_option
@click.option("--no-special", is_flag=True, help="Without the tokens that the model wants around a text.")
@parse_special_option
@json_option
def tokenize(text: str, model: str | None, no_special: bool, parse_special: bool, as_json: bool) -> None:
    """Show the token ids of TEXT, or of standard input for "-"."""
    from ringlet.tokenization.tokenizer import Tokenizer

    text = read_text_argument(text)
    tokenizer = Tokenizer.from_pretrained(model)
    ids = tokenizer.encode(text, add_special=not no_special, parse_special=parse_special)
    if as_json:
        print_json([{"id": token_id, "piece": tokenizer.piece(token_id)} for token_id in ids])
        return
    from ringlet.tokenization.display import token_rows

    print_lines(token_rows(tokenizer, ids))


@main.command(epilog="\b\nExample:\n  ringlet inspect model.gguf --context 8192")
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
    """Show what MODEL is: sizes, weights, formats, and the memory its ring takes.  [default: the embedded model]"""
    if argument is not None and model is not None:
        raise click.UsageError("MODEL is given twice: as an argument and as --model")
    from ringlet.core.inspection import inspect_model
    from ringlet.core.inspection_text import inspection_lines
    from ringlet.core.model import load_model
    from ringlet.core.pipeline import ring_layout

    architectures = [registered.cls for registered in state.plugins.registry("architecture").values()]
    loaded = load_model(model if argument is None else argument, architectures, ignore_config_keys=ignore_config_keys)
    found = inspect_model(loaded, ring_layout(loaded.config, context, sinks, overflow))
    if as_json:
        print_json(found)
        return
    print_lines(inspection_lines(found))


@main.command()
@click.argument("file", type=click.Path())
@loading_options
@click.option("--context", type=click.IntRange(min=4), default=512, show_default=True, help="Tokens in a window.")
@json_option
@verbose_option
@click.pass_obj
def perplexity(state: CommandState, /, file: str, context: int, as_json: bool, verbose: bool, **loading: Any) -> None:
    """How well a model predicts the text in FILE ("-": standard input), in windows as llama.cpp measures it."""
    from ringlet.core.perplexity import perplexity as measure

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


@main.command(
    epilog="""\b
    Examples:
      ringlet bench --model model.gguf --depth 0,1024,4096
      ringlet bench --model model.gguf --prompt 0 --batch 1,8 --threads 2 --json
    """
)
@loading_options
@click.option("--prompt", type=int, default=512, show_default=True, help="Tokens of a prompt; 0: do not measure that.")
@click.option("--generate", type=int, default=64, show_default=True, help="Tokens to generate; 0: as above.")
@click.option("--depth", metavar="N,N…", default="0", show_default=True, help="Tokens that a ring holds already.")
@click.option("--batch", metavar="N,N…", default="1", show_default=True, help="Sequences computed together.")
@click.option("--repeat", type=int, default=5, show_default=True, help="How often to measure each test.")
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
    from ringlet.core.benchmark import Settings, run_benchmark, whole_numbers
    from ringlet.core.benchmark_text import benchmark_lines, benchmark_rows

    depths, batches = whole_numbers("--depth", depth, 0), whole_numbers("--batch", batch, 1)
    settings = Settings(prompt, generate, depths, batches, repeat)
    pipe = open_pipeline(state, verbose=False, **loading)
    with passing_lines() as tell:
        results = list(run_benchmark(pipe, settings, tell))
    if as_json:
        print_json(benchmark_rows(pipe, results, repeat))
    else:
        print_lines(benchmark_lines(results))


@main.group()
def plugins() -> None:
    """Samplers, backends and architectures, from inside and outside; commands from outside."""


@plugins.command("list")
@json_option
@click.pass_obj
def list_plugins(state: CommandState, as_json: bool) -> None:
    """List what is registered, and where it comes from."""
    from ringlet.core.plugin_listing import plugin_lines, plugin_rows

    commands = state.plugin_commands(taken=main.commands).values()
    if as_json:
        print_json(plugin_rows(state.plugins, commands))
    else:
        print_lines(plugin_lines(state.plugins, commands))


@main.command(epilog='\b\nExample, for bash:\n  eval "$(ringlet completion bash)"')
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes ringlet's commands and options in SHELL."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(found(main, {}, "ringlet", "_RINGLET_COMPLETE").source())


if __name__ == "__main__":
    main()
