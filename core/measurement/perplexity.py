"""How well a model predicts a text: exp of the mean negative log-likelihood, in windows as llama.cpp's does it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ringlet.core.checks import check_count
from ringlet.core.errors import RingletError
from ringlet.core.pipeline import Pipeline
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step

LARGEST_LOGITS = 1 << 24  # numbers of logits in memory at once


@dataclass(frozen=True)
class Perplexity:
    """perplexity: exp(mean of −ln p) over the scored tokens. error: its standard error."""

    perplexity: float
    error: float
    tokens_scored: int
    windows: int
    context: int


@dataclass
class _Sum:
    """Of the negative log-likelihoods, and of their squares."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, losses: np.ndarray) -> None:
        self.n += len(losses)
        self.total += float(losses.sum())
        self.squares += float((losses * losses).sum())

    def perplexity(self) -> float:
        return math.exp(self.total / self.n)

    def error(self) -> float:
        """exp'(mean)·(standard error of the mean); 0 for a single token."""
        if self.n < 2:
            return 0.0
        mean = self.total / self.n
        variance = max(0.0, self.squares / self.n - mean * mean)
        return math.sqrt(variance / (self.n - 1)) * math.exp(mean)


def perplexity(
    pipe: Pipeline, text: str, context: int = 512, progress: Callable[[int, int, float], None] | None = None
) -> Perplexity:
    """The perplexity of a text.

    All ids of the text are split into windows of `context`, what is left over is dropped. Each window is computed from
    an empty ring; where the tokenizer begins a text with a token, that one replaces the window's first. The first half
    of a window is context alone; each token of the second half is scored given those before it.

    progress: is told windows done, windows in all, and the perplexity so far.
    Raises RingletError for a text of less than one window.
    """
    check_count("context", context, minimum=4)
    tokenizer = pipe.tokenizer
    ids = tokenizer.encode(text)
    bos = tokenizer.bos_id if tokenizer.bos_id is not None and ids[:1] == [tokenizer.bos_id] else None
    n_windows = len(ids) // context
    if n_windows == 0:
        raise RingletError(
            f"the text has {len(ids)} tokens, a window {context}: give a longer text or a smaller context"
        )
    layout = RingLayout.of(pipe.model.config, context, chunk=min(pipe.layout.chunk, context))
    sums = _Sum()
    for window in range(n_windows):
        part = ids[window * context : (window + 1) * context]
        if bos is not None:
            part = [bos, *part[1:]]
        _score_window(pipe, layout, part, sums)
        if progress is not None:
            progress(window + 1, n_windows, sums.perplexity())
    return Perplexity(sums.perplexity(), sums.error(), sums.n, n_windows, context)


def _score_window(pipe: Pipeline, layout: RingLayout, ids: list[int], sums: _Sum) -> None:
    """Adds −ln p of each token after the first half, given those before it."""
    ring, half = pipe.new_ring(layout), len(ids) // 2
    for at in range(0, half, layout.chunk):
        run_step(pipe.backend, [(ring, ids[at : min(at + layout.chunk, half)], "none")])
    at_once = max(1, min(layout.chunk, LARGEST_LOGITS // pipe.model.config.d_vocab))
    for at in range(half, len(ids) - 1, at_once):
        part = ids[at : min(at + at_once, len(ids) - 1)]
        logits = run_step(pipe.backend, [(ring, part, "all")])
        sums.add(negative_log_likelihoods(logits, ids[at + 1 : at + 1 + len(part)]))


def negative_log_likelihoods(logits: np.ndarray, targets: list[int]) -> np.ndarray:
    """−ln softmax(logits)[target] of each row, float64 (n,), from float32 (n, d_vocab)."""
    wide = logits.astype(np.float64)
    largest = wide.max(axis=1)
    log_total = np.log(np.exp(wide - largest[:, None]).sum(axis=1)) + largest
    return log_total - wide[np.arange(len(targets)), targets]
