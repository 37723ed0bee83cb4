"""Ringlet beside llama.cpp and transformers: the same file, tokens and threads, in one run in which they take turns.

    pip install -e ".[bench]"
    python benchmarks/compare.py MODEL.gguf --depth 0,1024,4096 --markdown docs/performance.md --svg docs/charts

llama.cpp runs with flash attention and without; the faster of the two counts. It should be built for this machine
(llama-cpp-python does so from source, with CMAKE_ARGS="-DGGML_NATIVE=on"); what it was built for is told. An engine
that is not installed is left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import click
from comparison.charts import write_charts
from comparison.engine import Engine
from comparison.machine import machine_facts
from comparison.processes import peak_memory, start_times
from comparison.report import Report, as_data, as_markdown, put_into_page
from comparison.ringlet_engine import RingletEngine
from comparison.rounds import LLAMA, compare

from ringlet.core.errors import RingletError
from ringlet.core.measurement.benchmark import Settings, whole_numbers
from ringlet.core.terminal.console import passing_lines
from ringlet.plugins.backends.cpu.team import usable_cores


def chosen_engines(with_transformers: bool) -> list[Engine]:
    """Ringlet and those that are installed."""
    engines: list[Engine] = [RingletEngine()]
    if is_installed("llama_cpp"):
        from comparison.llama_engine import LlamaCpp

        engines += [LlamaCpp(flash_attention=True), LlamaCpp(flash_attention=False)]
    if with_transformers and is_installed("transformers"):
        from comparison.transformers_engine import Transformers

        engines.append(Transformers())
    return engines


def is_installed(module: str) -> bool:
    found = importlib.util.find_spec(module) is not None
    if not found:
        click.echo(f'{module} is not installed and left out: pip install -e ".[bench]"', err=True)
    return found


def measure(model: Path, settings: Settings, threads: int, engines: list[Engine], start: bool) -> Report:
    """Measure whole processes, then load the engines and let them take turns."""
    names = [RingletEngine.name, *([LLAMA] if any(engine.name.startswith(LLAMA) for engine in engines) else [])]
    facts, starts, peaks = machine_facts(threads), {}, {}
    with passing_lines() as tell:
        if start:
            tell("starting processes")
            starts = start_times(model, threads, settings.repeat, names)
            peaks = peak_memory(model, threads, settings.prompt, settings.generate, names)
        for engine in engines:
            tell(f"loading {engine.name}")
            engine.load(model, threads, max(settings.depths) + settings.longest)
        d_vocab = next(engine.pipe.model.config.d_vocab for engine in engines if isinstance(engine, RingletEngine))
        comparisons = compare(engines, settings, d_vocab, tell)
    if LLAMA in names:
        from comparison.llama_engine import system_info

        facts["llama.cpp was built for"] = system_info()
    return Report(model.stem, settings.repeat, facts, comparisons, starts, peaks)


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path))
@click.option("--threads", type=click.IntRange(min=1), help="Of every engine.  [default: the physical cores]")
@click.option("--prompt", type=int, default=512, show_default=True, help="Tokens of a prompt; 0: do not measure that.")
@click.option("--generate", type=int, default=64, show_default=True, help="Tokens to generate; 0: as above.")
@click.option("--depth", metavar="N,N…", default="0", show_default=True, help="Tokens that a sequence holds already.")
@click.option("--batch", metavar="N,N…", default="1", show_default=True, help="Sequences computed together.")
@click.option("--repeat", type=int, default=5, show_default=True, help="Rounds.")
@click.option("--no-transformers", is_flag=True, help="Leave transformers out, which is slow.")
@click.option("--start", is_flag=True, help="Measure whole processes too: time to the first token, memory at most.")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), help="Write the tables into this page.")
@click.option("--svg", type=click.Path(file_okay=False, path_type=Path), help="Write charts into this folder.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all into this file.")
def main(
    model: Path,
    threads: int | None,
    prompt: int,
    generate: int,
    depth: str,
    batch: str,
    repeat: int,
    no_transformers: bool,
    start: bool,
    markdown: Path | None,
    svg: Path | None,
    json_file: Path | None,
) -> None:
    """How fast Ringlet, llama.cpp and transformers run MODEL, a GGUF file, on this machine."""
    try:
        depths, batches = whole_numbers("--depth", depth, 0), whole_numbers("--batch", batch, 1)
        settings = Settings(prompt, generate, depths, batches, repeat)
        report = measure(model, settings, threads or usable_cores(), chosen_engines(not no_transformers), start)
        charts = write_charts(report, svg) if svg else []
        if json_file:
            json_file.write_text(json.dumps(as_data(report), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        if markdown:
            links = [Path(os.path.relpath(chart, markdown.parent)).as_posix() for chart in charts]
            put_into_page(markdown, model.stem, as_markdown(report, links))
        else:
            click.echo(as_markdown(report))
    except RingletError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
