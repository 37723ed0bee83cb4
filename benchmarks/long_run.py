"""A very long generation over a sliding ring: what it costs, and whether the text stays alive.

    python benchmarks/long_run.py [--model MODEL] [--tokens 1000000] [--picture long-run.svg] > progress.jsonl

Prints a line of JSON for each stretch of tokens: memory of the process (RSS); processor time a token, beside that of a
new text drawn right after it, since a busy neighbour slows both; and the perplexity of pieces of what was just drawn.
The last line holds the verdict. A piece is scored from an empty ring, its
second half given its first. The bound comes from short runs, scored alike, which end before any ring slides: noise
lies above it, a text that repeats itself below. Exit code 1 where a claim does not hold. Linux only (/proc).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean, median

import click
import numpy as np

from ringlet import Pipeline
from ringlet.core.measurement.perplexity import negative_log_likelihoods
from ringlet.core.pictures.line_chart import Panel, figure

PROMPT = "春"
STRETCHES = 100  # in a run
WARM_UP = 10  # of them
PIECES = 16  # that are scored in a stretch
SHORT_RUNS = 128
NEW_TEXT = 1000  # tokens of a new text, for its time
MEMORY_BOUND, TIME_BOUND, PERPLEXITY_BOUND = 1.01, 1.1, 1.5


@dataclass(frozen=True)
class Stretch:
    """tokens: drawn when it ended. rss_bytes: memory then. cpu_us: processor microseconds a token, all threads
    together; new_cpu_us: those of a new text. perplexity: the geometric mean of its pieces'. text: the end of it."""

    tokens: int
    rss_bytes: int
    cpu_us: float
    new_cpu_us: float
    perplexity: float
    text: str


def resident_bytes() -> int:
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def piece_perplexity(pipe: Pipeline, ids: list[int]) -> float:
    """exp of the mean of -ln p over the second half, given the first."""
    half = len(ids) // 2
    rows = pipe.logits(ids[:-1])[half - 1 :]
    return float(np.exp(negative_log_likelihoods(rows, ids[half:]).mean()))


def short_perplexity(pipe: Pipeline, length: int, sampler: str | None) -> float:
    """Of texts of `length` tokens: each seed's own."""
    texts = (pipe.generate(PROMPT, length, sampler, seed=seed, ignore_eos=True).token_ids for seed in range(SHORT_RUNS))
    return geometric_mean([piece_perplexity(pipe, ids) for ids in texts])


def processor_us(pipe: Pipeline, sampler: str | None) -> float:
    """Microseconds a token of a new text."""
    began = time.process_time()
    pipe.generate(PROMPT, NEW_TEXT, sampler, seed=0, ignore_eos=True)
    return 1e6 * (time.process_time() - began) / NEW_TEXT


def stretches(
    pipe: Pipeline, scorer: Pipeline, n_tokens: int, length: int, sampler: str | None, seed: int
) -> Iterator[Stretch]:
    """What each stretch of the generation was like. The pieces, of `length` tokens, end where it does."""
    size = max(n_tokens // STRETCHES, PIECES * length)
    held: deque[int] = deque(maxlen=PIECES * length)
    began, drawn = time.process_time(), 0
    for chunk in pipe.stream(PROMPT, n_tokens, sampler, seed, ignore_eos=True):
        held.extend(chunk.token_ids)
        drawn += len(chunk.token_ids)
        if drawn % size == 0:
            seconds = time.process_time() - began
            ids = list(held)
            pieces = [ids[at : at + length] for at in range(0, len(ids), length)]
            found = geometric_mean([piece_perplexity(scorer, piece) for piece in pieces])
            text = pipe.tokenizer.decode(ids[-length // 2 :], skip_special=False)
            us, new_us = 1e6 * seconds / size, processor_us(scorer, sampler)
            yield Stretch(drawn, resident_bytes(), us, new_us, found, text)
            began = time.process_time()


def verdict(found: list[Stretch], short: float) -> dict[str, float | bool]:
    """How the stretches after the warm-up differ, and whether that is within the bounds."""
    kept = found[WARM_UP:]
    tenth = max(1, len(kept) // 10)
    memory = max(each.rss_bytes for each in kept) / kept[0].rss_bytes
    slowness = [each.cpu_us / each.new_cpu_us for each in kept]
    slower = median(slowness[-tenth:]) / median(slowness[:tenth])
    least, most = (limit(each.perplexity for each in kept) / short for limit in (min, max))
    return {
        "memory": memory,
        "memory_flat": memory <= MEMORY_BOUND,
        "time": slower,
        "time_flat": slower <= TIME_BOUND,
        "short_perplexity": short,
        "least_perplexity": least,
        "most_perplexity": most,
        "alive": least >= 1 / PERPLEXITY_BOUND and most <= PERPLEXITY_BOUND,
    }


def picture(found: list[Stretch], short: float, title: str) -> str:
    """SVG: memory, time and perplexity over the tokens drawn."""
    x = "thousand tokens drawn"
    thousands = [each.tokens / 1000 for each in found]
    panels = [
        Panel("Memory", "MiB resident", x, {"RSS": pairs(thousands, [each.rss_bytes / 2**20 for each in found])}),
        Panel(
            "Time",
            "µs of processor a token",
            x,
            {
                "long run": pairs(thousands, [each.cpu_us for each in found]),
                "new texts": pairs(thousands, [each.new_cpu_us for each in found]),
            },
        ),
        Panel(
            "The text",
            "perplexity of pieces of it",
            x,
            {
                "long run": pairs(thousands, [each.perplexity for each in found]),
                "short runs": [(0, short), (thousands[-1], short)],
            },
        ),
    ]
    return figure(panels, len(panels), title)


def pairs(xs: list[float], ys: list[float]) -> list[tuple[float, float]]:
    return list(zip(xs, ys, strict=True))


@click.command()
@click.option("--model", help="As for generate; the embedded model without it.")
@click.option("--tokens", default=1_000_000, show_default=True, help="To draw.")
@click.option("--context", default=128, show_default=True, help="Slots of the ring, and tokens of a piece.")
@click.option("--sinks", default=4, show_default=True)
@click.option("--kv-dtype", default="auto", show_default=True)
@click.option("--sampler", help="The usual one without it.")
@click.option("--seed", default=1, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option(
    "--picture", "picture_path", type=click.Path(dir_okay=False, path_type=Path), help="An SVG file to write."
)
def main(
    model: str | None,
    tokens: int,
    context: int,
    sinks: int,
    kv_dtype: str,
    sampler: str | None,
    seed: int,
    threads: int,
    picture_path: Path | None,
) -> None:
    """Draw TOKENS tokens over a sliding ring, and say whether memory, time and text stayed what they were."""
    options = {"context": context, "sinks": sinks, "overflow": "slide", "kv_dtype": kv_dtype, "threads": threads}
    pipe, scorer = (Pipeline.from_pretrained(model, **options) for _ in range(2))
    short = short_perplexity(scorer, context - 8, sampler)
    found = []
    for stretch in stretches(pipe, scorer, tokens, context - 8, sampler, seed):
        found.append(stretch)
        click.echo(json.dumps(asdict(stretch), ensure_ascii=False))
    if len(found) <= WARM_UP:
        raise click.ClickException(f"{tokens} tokens are too few to tell anything")
    told = verdict(found, short)
    click.echo(json.dumps(told))
    if picture_path is not None:
        title = f"{found[-1].tokens:,} tokens over a ring of {context} slots: {pipe.model.name}"
        picture_path.write_text(picture(found, short, title), encoding="utf-8")
    sys.exit(0 if told["memory_flat"] and told["time_flat"] and told["alive"] else 1)


if __name__ == "__main__":
    main()
