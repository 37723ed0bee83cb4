"""Options that several commands share, and the pipeline that they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ringlet.core.terminal.command import MODEL, OUTPUT, RING, TEXT, Command, Option
from ringlet.core.terminal.command_group import CommandState
from ringlet.core.terminal.console import remark, warn
from ringlet.core.terminal.text_tables import size_text

if TYPE_CHECKING:
    from ringlet.core.pipeline import Pipeline

Decorator = Callable[..., Any]
MODEL_VARIABLE = "RINGLET_MODEL"


def command(**settings: Any) -> Decorator:
    """click's, for a command of ours."""
    return click.command(cls=Command, **settings)


def option(group: str, *names: str, **settings: Any) -> Decorator:
    """click's, for an option that the help tells below a heading, one of `terminal.command`."""
    return click.option(*names, cls=Option, group=group, **settings)


def options(*decorators: Decorator) -> Decorator:
    """Several of click's options as one decorator."""

    def apply(command: Decorator) -> Decorator:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


source_option = option(
    MODEL,
    "--model",
    metavar="MODEL",
    envvar=MODEL_VARIABLE,
    show_envvar=True,
    show_default="the embedded model",
    help="A GGUF file, a directory, or org/name[:file.gguf] from the Hub.",
)
json_option = option(OUTPUT, "--json", "as_json", is_flag=True, help="Print one JSON value.")
parse_special_option = option(
    TEXT, "--parse-special", is_flag=True, help="Special tokens written in the text become their ids."
)
verbose_option = option(
    OUTPUT, "--verbose", is_flag=True, help="Say on standard error what was chosen and how fast it went."
)
ignored_keys_option = option(
    MODEL,
    "--ignore-config-key",
    "ignore_config_keys",
    multiple=True,
    metavar="KEY",
    help="Treat a configuration key as not there; may be given several times.",
)
loading_options = options(
    source_option,
    option(
        MODEL,
        "--backend",
        metavar="NAME",
        default="auto",
        show_default=True,
        help="cuda, cpu, numpy, or a plugin's; auto: the fastest that works here.",
    ),
    option(
        MODEL,
        "--kv-dtype",
        metavar="TYPE",
        default="auto",
        show_default=True,
        help="What the ring holds: f32, f16 or q8; auto: the backend's choice.",
    ),
    option(
        MODEL,
        "--quantize",
        metavar="FORMAT",
        help="Quantise weights in F32, F16 and BF16: q8_0, q6_k, q4_k, q4_1 or q4_0.",
    ),
    option(MODEL, "--threads", type=int, metavar="N", help="Threads of the backend.  [default: its choice]"),
    option(MODEL, "--device", type=int, metavar="N", help="The GPU of that number.  [default: the first]"),
    option(MODEL, "--no-mmap", is_flag=True, help="Read the weights into memory instead of mapping the file."),
    ignored_keys_option,
)
ring_options = options(
    option(RING, "--context", type=int, metavar="N", help="Tokens in all.  [default: the model's own, 4096 at most]"),
    option(
        RING,
        "--overflow",
        type=click.Choice(["stop", "slide"]),
        default="stop",
        show_default=True,
        help="When the ring is full: end the text, or overwrite the oldest token.",
    ),
    option(
        RING,
        "--sinks",
        type=int,
        metavar="N",
        default=0,
        show_default=True,
        help="First tokens that a sliding ring keeps.",
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
