"""Why √d_k: how far a model's scores spread, and how sharp α is, with the scale and without it.

The dot product of d_k terms of unit variance has variance d_k (Vaswani et al. 2017, section 3.2.1, footnote 4); without
the division softmax comes close to one-hot, where its gradients vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ringlet.core.errors import RingletError
from ringlet.core.explanation.trace import Trace, plain

USUAL_TEXT = "床前明月光，疑是地上霜。举头望明月，低头思故乡。"
N_BINS = 13  # of the scores' histogram; odd, so that one stands in the middle


@dataclass(frozen=True)
class LayerSpread:
    """Of all heads and queries that see two keys or more.

    spread_raw, spread: the standard deviation of QKᵀ and of S in a row of scores (softmax does not see a row's mean).
    entropy, entropy_raw: of α in nats, with the scale and without; entropy_even: if α were the same for all keys.
    largest, largest_raw: the mean of a row's largest α.
    """

    layer: int
    spread_raw: float
    spread: float
    entropy: float
    entropy_raw: float
    entropy_even: float
    largest: float
    largest_raw: float


@dataclass(frozen=True)
class Histogram:
    """Shares, which sum to 1, of what falls between two edges; there is one edge more than there are shares.

    scaled: with the scale. raw: without.
    """

    edges: np.ndarray
    scaled: np.ndarray
    raw: np.ndarray


@dataclass(frozen=True)
class SoftmaxStudy:
    """scores: their histogram, each less its row's mean. largest: that of the largest α of a row. In all layers."""

    model: str
    text: str
    n_tokens: int
    d_k: int
    score_scale: float
    score_soft_cap: float | None
    layers: tuple[LayerSpread, ...]
    scores: Histogram
    largest: Histogram

    def to_dict(self) -> dict[str, Any]:
        """As plain values, ready for JSON."""
        found: dict[str, Any] = plain(self)
        return found


@dataclass(frozen=True)
class Row:
    """One query's scores in one head, of the keys that it sees: without the scale, with it, and α of both."""

    raw: np.ndarray
    scaled: np.ndarray
    alpha_raw: np.ndarray
    alpha: np.ndarray


def study_softmax(trace: Trace) -> SoftmaxStudy:
    """Measured on all queries of a trace. Raises RingletError where none sees two keys."""
    config = trace.config
    rows = [
        [row for step in trace.steps for row in rows_of(step.layers[index], config.score_soft_cap)]
        for index in range(config.n_layers)
    ]
    if not all(rows):
        raise RingletError("the text is a single token, whose α is 1 in any case: give a longer one")
    everything = [row for layer in rows for row in layer]
    return SoftmaxStudy(
        model=trace.model,
        text=trace.text,
        n_tokens=len(trace.token_ids),
        d_k=config.d_k,
        score_scale=config.score_scale,
        score_soft_cap=config.score_soft_cap,
        layers=tuple(spread_of(index, found) for index, found in enumerate(rows)),
        scores=score_histogram(everything),
        largest=largest_histogram(everything),
    )


def rows_of(layer: Any, cap: float | None) -> list[Row]:
    """The rows of a LayerTrace in which there is something to choose."""
    found = []
    for head, query in np.ndindex(layer.S.shape[:2]):
        seen = np.isfinite(layer.S[head, query])
        if seen.sum() >= 2:
            raw = layer.S_raw[head, query, seen].astype(np.float64)
            scaled = layer.S[head, query, seen].astype(np.float64)
            capped = raw if cap is None else cap * np.tanh(raw / cap)
            found.append(Row(raw, scaled, softmax(capped), softmax(scaled)))
    return found


def softmax(S: np.ndarray) -> np.ndarray:
    e: np.ndarray = np.exp(S - S.max())
    return e / e.sum()


def entropy(alpha: np.ndarray) -> float:
    """H = −Σ αᵢ·ln αᵢ, in nats (Shannon 1948); e^H is how many tokens such a distribution is worth."""
    positive = alpha[alpha > 0]
    return float(-(positive * np.log(positive)).sum())


def spread_of(layer: int, rows: list[Row]) -> LayerSpread:
    return LayerSpread(
        layer=layer,
        spread_raw=root_mean_square([row.raw.std() for row in rows]),
        spread=root_mean_square([row.scaled.std() for row in rows]),
        entropy=mean([entropy(row.alpha) for row in rows]),
        entropy_raw=mean([entropy(row.alpha_raw) for row in rows]),
        entropy_even=mean([np.log(len(row.alpha)) for row in rows]),
        largest=mean([row.alpha.max() for row in rows]),
        largest_raw=mean([row.alpha_raw.max() for row in rows]),
    )


def mean(values: list[float]) -> float:
    return float(np.mean(values))


def root_mean_square(values: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def score_histogram(rows: list[Row]) -> Histogram:
    """Over three standard deviations of the unscaled scores to each side; what lies further counts at the ends."""
    raw = np.concatenate([row.raw - row.raw.mean() for row in rows])
    scaled = np.concatenate([row.scaled - row.scaled.mean() for row in rows])
    reach = 3 * max(float(raw.std()), 1e-6)
    edges = np.linspace(-reach, reach, N_BINS + 1)
    return Histogram(edges, shares(scaled, edges), shares(raw, edges))


def largest_histogram(rows: list[Row]) -> Histogram:
    edges = np.linspace(0, 1, 11)
    return Histogram(
        edges,
        shares(np.array([row.alpha.max() for row in rows]), edges),
        shares(np.array([row.alpha_raw.max() for row in rows]), edges),
    )


def shares(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    result: np.ndarray = counts / counts.sum()
    return result
