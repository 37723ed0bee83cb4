"""A new sampler's package. Words after a $ are filled in: see `writer`."""

from __future__ import annotations

SUMMARY = "A sampler for Ringlet: $name"
EXAMPLE = 'ringlet generate "《春望》" --sampler "$name=5,temperature=0.8"'

MODULE = '''\
"""$summary."""

from typing import Annotated

import numpy as np
from ringlet import Parameter, SamplerContext, hookimpl


class $cls:
    """Keeps the tokens whose logit is at most `margin` below the largest: l >= max(l) - margin.

    Say here what yours does, with its formula and where it comes from.
    """

    name = "$name"

    def __init__(
        self,
        margin: Annotated[float, Parameter("how far below the largest", minimum=0)] = 5.0,
    ) -> None:
        self.margin = margin

    def __call__(self, logits: np.ndarray, context: SamplerContext) -> np.ndarray:
        """float32 (d_vocab,) to the same; what is removed is -inf."""
        logits[logits < logits.max() - self.margin] = -np.inf
        return logits


@hookimpl
def register_samplers(register):
    register($cls)
'''

TESTS = '''\
"""$name: what it keeps, and what every sampler has to do."""

import numpy as np
import pytest
from ringlet import RingletError, SamplerChain


@pytest.mark.ringlet("$name")
def test_conformance(ringlet_check):
    ringlet_check()


def test_tokens_near_the_likeliest_are_kept():
    left = SamplerChain("$name(margin=2)").process([1.0, 3.0, 0.5, -7.0])
    assert left.tolist() == [1.0, 3.0, -np.inf, -np.inf]


def test_a_margin_below_zero_is_refused():
    with pytest.raises(RingletError, match="margin is -1"):
        SamplerChain("$name(margin=-1)")
'''
