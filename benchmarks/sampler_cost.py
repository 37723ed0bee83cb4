"""What samplers cost beside the model that they serve.

    python benchmarks/sampler_cost.py [--model MODEL.gguf] [--vocabulary 262144] [--repeats 60]

Prints median microseconds of drawing a token, from logits to its id: first of each sampler alone and after top_k=40,
one draw right after the other; then of chains as people use them. With a model the logits are its own after a text of
64 tokens, and the chains are measured where they work, too: between two of its steps, each of which pushes Python and
NumPy out of the CPU's caches. Shares are of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter_ns

import click
import numpy as np

from ringlet import Pipeline, SamplerChain
from ringlet.core.likeliest import Logits
from ringlet.core.step import run_step_for_likeliest

TEXT = 64  # tokens
ALONE = (
    *("greedy", "temperature=0.8", "temperature(0.8,range=0.4)", "top_k=40", "top_p=0.95", "min_p=0.05"),
    *("typical=0.95", "top_n_sigma=1", "epsilon=0.0003", "eta=0.0003", "xtc(probability=1)", "dry"),
    *("repetition_penalty=1.1", "frequency_penalty=0.2", "presence_penalty=0.2", "no_repeat_ngram=3"),
    *('logit_bias("12:+2.5 345:-inf")', 'bad_words(ids="12 345|7")', "mirostat", "mirostat_v2"),
)
NARROWED = "top_k=40,top_p=0.95,min_p=0.05,temperature=0.8"
CHAINS = {
    "greedy": "greedy",
    "top_p": "top_p=0.95,temperature=0.8",
    "narrowed": NARROWED,
    "usual": f"repetition_penalty=1.1,frequency_penalty=0.2,presence_penalty=0.2,{NARROWED}",
}


def microseconds(call: Callable[[], object]) -> float:
    began = perf_counter_ns()
    call()
    return (perf_counter_ns() - began) / 1000


def in_a_row(spec: str, logits: Logits, ids: np.ndarray, repeats: int) -> float:
    """Median microseconds of one draw right after the other. Half of the ids are the prompt."""
    chain = SamplerChain(spec, seed=0)
    chain.sample(logits, ids[: len(ids) // 2])
    return median(microseconds(lambda: chain.sample(logits, ids)) for _ in range(repeats))


class Model:
    """A model that goes on with a text. logits: those after it, the likeliest listed. steps: microseconds of each."""

    def __init__(self, path: Path, n_tokens: int) -> None:
        self.pipe = Pipeline.from_pretrained(path, context=TEXT + n_tokens)
        self.ring, self.steps = self.pipe.new_ring(), []
        prompt = self.pipe.tokenizer.encode("Once upon a time there was a king who had three daughters.")[: TEXT // 2]
        self.ids, self.length = np.zeros(TEXT + n_tokens, np.int32), 0
        self._go_on(prompt)
        while self.length < TEXT:
            self.draw(SamplerChain(CHAINS["narrowed"], seed=self.length))
        self.steps.clear()

    def draw(self, chain: SamplerChain) -> None:
        self._go_on([chain.sample(self.logits, self.ids[: self.length])])

    def _go_on(self, ids: list[int]) -> None:
        self.ids[self.length : self.length + len(ids)] = ids
        self.length += len(ids)
        began = perf_counter_ns()
        self.logits = run_step_for_likeliest(self.pipe.backend, [(self.ring, ids, "last")])[0]
        self.steps.append((perf_counter_ns() - began) / 1000)


def between_steps(model: Model, specs: Sequence[str], repeats: int) -> list[float]:
    """Median microseconds of a draw where each comes after a step of the model, the chains in turns."""
    chains = [SamplerChain(spec, seed=0) for spec in specs]
    times: list[list[float]] = [[] for _ in specs]
    for _ in range(repeats):
        for chain, found in zip(chains, times, strict=True):
            both = microseconds(lambda chain=chain: model.draw(chain))
            found.append(both - model.steps[-1])
    return [median(found) for found in times]


@click.command()
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="Its logits, and between its steps, too.")
@click.option("--vocabulary", type=click.IntRange(min=400), default=262_144, show_default=True, help="Logits without.")
@click.option("--repeats", type=click.IntRange(min=1), default=60, show_default=True, help="How often to measure.")
def main(model: Path | None, vocabulary: int, repeats: int) -> None:
    """Median microseconds of drawing a token."""
    specs = list(CHAINS.values())
    if model is None:
        rng = np.random.default_rng(0)
        values, ids = rng.normal(-5, 4, vocabulary).astype(np.float32), rng.integers(0, vocabulary, TEXT)
        logits = Logits.of_all(values)
    else:
        running = Model(model, repeats * len(specs))
        logits, ids = running.logits, running.ids[:TEXT].copy()
    click.echo(f"{logits.d_vocab:,} logits, a text of {TEXT} tokens, median of {repeats}, in microseconds\n")
    click.echo(f"{'sampler':32} {'alone':>8} {'after top_k=40':>16}")
    for spec in ALONE:
        alone, after = (in_a_row(chain, logits, ids, repeats) for chain in (spec, f"top_k=40,{spec}"))
        click.echo(f"{spec:32} {alone:8.0f} {after:16.0f}")
    found = [in_a_row(spec, logits, ids, repeats) for spec in specs]
    if model is None:
        lines = [f"{name:10} {time:8.0f}" for name, time in zip(CHAINS, found, strict=True)]
        click.echo(f"\n{'chain':10} {'in a row':>8}")
    else:
        between = between_steps(running, specs, repeats)
        step = median(running.steps)
        lines = [
            f"{name:10} {hot:8.0f} {hot / step:7.1%} {cold:14.0f} {cold / step:7.1%}"
            for name, hot, cold in zip(CHAINS, found, between, strict=True)
        ]
        click.echo(f"\na step of {running.pipe.model.name}: {step:.0f}")
        click.echo(f"\n{'chain':10} {'in a row':>8} {'share':>7} {'between steps':>14} {'share':>7}")
    click.echo("\n".join([*lines, "", *(f"{name}: {spec}" for name, spec in CHAINS.items())]))


if __name__ == "__main__":
    main()
