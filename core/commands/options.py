"""Options that several commands share, and the pipeline that they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import remark, warn
from ringlet.core.terminal.text_tables import size_text

if TYPE_CHECKING:
    from ringlet.core.pipeline import Pipeline

Command = Callable[..., Any]


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
    click.option("--backend", default="auto", show_default=True, help="cuda, cpu, numpy, a plugin's; auto: the best."),
    click.option("--kv-dtype", default="auto", show_default=True, help="What the ring holds: f16, f32 or q8."),
    click.option("--quantize", metavar="FORMAT", help="Quantise F32, F16 and BF16: q8_0, q4_0, q4_1, q4_k or q6_k."),
    click.option("--threads", type=int, help="Threads of the backend.  [default: its choice]"),
    click.option("--device", type=int, metavar="N", help="The GPU of that number.  [default: the first]"),
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
    from ringlet.core.observers import Observable
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
    if not isinstance(pipe.backend, Observable):
        for observer in pipe.plugins.registry("observer").values():
            if observer.explicit:
                told = f"backend {pipe.backend.name} tells of no arrays, numpy does"
                warn(f"observer {observer.label} sees nothing: {told}")
    return pipe
