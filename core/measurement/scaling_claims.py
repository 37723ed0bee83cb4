"""What the theory says of costs over the length of a text, held against measured points.

With the cache a token's cost is linear in the length n, everything at once is quadratic when n is large, and a ring
bounds it. Real models add what attention's formulas leave out: each token also goes through all weights, however
short the text is, and for small models that is most of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CACHE, AGAIN, RING = "cache", "again", "ring"
CLOSE = 0.15  # measured points may stray so far from a formula that holds
QUADRATIC = 0.5  # of the cost at the longest text has to be the n² part for the claim to hold


@dataclass(frozen=True)
class ScalingPoint:
    """The last token of a text of `tokens`, by way of computing: "cache", "again", and "ring" where it can slide.

    milliseconds: measured. multiplications: multiply-adds. kv_bytes: of K and V of the text; nothing is kept for
    "again".
    """

    tokens: int
    milliseconds: dict[str, float]
    multiplications: dict[str, int]
    kv_bytes: dict[str, int]


@dataclass(frozen=True)
class Claim:
    """What the theory says of a cost, whether these measurements show it, and what they say."""

    claim: str
    holds: bool
    says: str


def claims_of(points: Sequence[ScalingPoint], ring_slots: int | None) -> tuple[Claim, ...]:
    """The three claims, in the theory's order; the last only where there is a ring."""
    claims = [linear_with_the_cache(points), quadratic_without(points)]
    if ring_slots is not None:
        claims.append(flat_with_a_ring(points, ring_slots))
    return tuple(claims)


def linear_with_the_cache(points: Sequence[ScalingPoint]) -> Claim:
    n, t = milliseconds(points, CACHE)
    (fixed, per_key), stray = fitted(n, t, (0, 1))
    longest, share = int(n[-1]), per_key * n[-1] / (fixed + per_key * n[-1])
    says = f"{short(fixed)} ms + {short(1000 * per_key)} µs for each token before it, within {stray:.0%}"
    if stray > CLOSE:
        return Claim(
            "with the cache a token's time is linear in n", False, f"the points stray up to {stray:.0%} from {says}"
        )
    if share < CLOSE:
        says += f"; at n = {longest:,} the weights still take {1 - share:.0%} of the time, so it looks flat"
    else:
        says += f"; at n = {longest:,} that is {share:.0%} of the time"
    return Claim("with the cache a token's time is linear in n", True, says)


def quadratic_without(points: Sequence[ScalingPoint]) -> Claim:
    n, t = milliseconds(points, AGAIN)
    (linear, square), _ = fitted(n, t, (1, 2))
    longest = n[-1]
    share = square * longest / (linear + square * longest)
    claim = "everything computed again is quadratic in n when n is large"
    says = f"{short(1000 * linear)} µs · n + {short(1e6 * square)} ns · n²"
    says += f"; at n = {int(longest):,} the n² part is {share:.0%}"
    if share < QUADRATIC:
        says += " of it, and the rest are the weights, through which each token goes once"
        if square > 0:
            says += f"; n² takes over at about n = {linear / square:,.0f}"
    return Claim(claim, bool(share >= QUADRATIC), says)


def flat_with_a_ring(points: Sequence[ScalingPoint], slots: int) -> Claim:
    """From where the ring is full."""
    full = [point for point in points if point.tokens >= slots]
    _, t = milliseconds(full, RING)
    growth = float(t.max() / t.min()) - 1
    claim = f"with a ring of {slots:,} slots a token's time is flat once it is full"
    says = (
        f"from n = {full[0].tokens:,} to {full[-1].tokens:,} it lies between {short(t.min())} and {short(t.max())} ms"
    )
    return Claim(claim, bool(growth <= 2 * CLOSE), says)


def short(value: float) -> str:
    """Three digits or so."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def milliseconds(points: Sequence[ScalingPoint], way: str) -> tuple[np.ndarray, np.ndarray]:
    return np.array([float(point.tokens) for point in points]), np.array([point.milliseconds[way] for point in points])


def fitted(n: np.ndarray, t: np.ndarray, powers: tuple[int, int]) -> tuple[tuple[float, float], float]:
    """Factors ≥ 0 of t ≈ a·n^p + b·n^q by least squares of the relative error, and the largest relative error."""
    basis = np.stack([n**power / t for power in powers], axis=1)
    one = np.ones(len(n))
    best, least = (0.0, 0.0), np.inf
    for kept in ((0, 1), (0,), (1,)):  # one factor alone where the other would be negative
        factors = np.zeros(2)
        factors[list(kept)] = np.linalg.lstsq(basis[:, kept], one, rcond=None)[0]
        error = float(np.square(basis @ factors - one).sum())
        if (factors >= 0).all() and error < least:
            best, least = (float(factors[0]), float(factors[1])), error
    return best, float(np.abs(basis @ np.array(best) - one).max())
