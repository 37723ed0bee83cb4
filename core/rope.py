"""Frequencies of rotary position embeddings: the plain ones, and each scaling that does not depend on the length.

All in float64; a frequency is in radians per position, one for each pair of parts.
"""

from __future__ import annotations

import math

import numpy as np

Frequencies = np.ndarray  # float64 (width/2,)


def plain(width: int, base: float) -> Frequencies:
    """base^(-2i/width) (Su et al. 2021, RoFormer, section 3.2.2)."""
    return base ** (-np.arange(0, width, 2, dtype=np.float64) / width)


def linear(frequencies: Frequencies, factor: float) -> Frequencies:
    """Positions divided by `factor` (Chen et al. 2023, Positional Interpolation, eq. 4)."""
    return frequencies / factor


def llama3(
    frequencies: Frequencies, factor: float, low_factor: float, high_factor: float, original_context: int
) -> Frequencies:
    """Llama 3.1: waves longer than original_context/low_factor are slowed by `factor`, those shorter than
    original_context/high_factor stay, those between are mixed."""
    turns = original_context * frequencies / (2 * math.pi)  # whole waves in the original context
    kept = np.clip((turns - low_factor) / (high_factor - low_factor), 0, 1)
    return (1 - kept) * frequencies / factor + kept * frequencies


def yarn(
    width: int,
    base: float,
    factor: float,
    original_context: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    whole_pairs: bool = True,
) -> Frequencies:
    """YaRN (Peng et al. 2023, section 3.2): pairs that turn more than beta_fast times in the original context stay,
    those that turn less than beta_slow times are slowed by `factor`, and a ramp over the pairs lies between.

    whole_pairs: whether the ramp's ends are rounded outwards to whole pairs.
    """

    def pair_that_turns(times: float) -> float:
        return width * math.log(original_context / (times * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair_that_turns(beta_fast), pair_that_turns(beta_slow)
    if whole_pairs:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    if first == last:
        last += 0.001  # as the reference does: a step instead of a ramp
    slowed = np.clip((np.arange(width // 2) - first) / (last - first), 0, 1)
    frequencies = plain(width, base)
    return frequencies / factor * slowed + frequencies * (1 - slowed)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """YaRN's attention factor √(1/t) = 0.1·ln(factor) + 1 (section 3.3, eq. 22)."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
