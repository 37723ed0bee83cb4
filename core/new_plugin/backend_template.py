"""A new backend's package. Words after a $ are filled in: see `writer`."""

from __future__ import annotations

SUMMARY = "A backend for Ringlet: $name"
EXAMPLE = 'ringlet generate "我爱你" --backend $name'

MODULE = '''\
"""$summary.

It begins as Ringlet's readable reference. Replace its parts one by one, and keep the tests green.
"""

import numpy as np
from ringlet import Matrix, hookimpl
from ringlet.plugins.backends.numpy import NumpyBackend


class $cls(NumpyBackend):
    """The reference, with a product of its own.

    Say here what yours needs, and what it does faster.
    """

    name = "$name"
    rank = 0  # only by its name; above 20, `--backend auto` takes it before `cpu`

    def project(self, x: np.ndarray, W: Matrix, bias: np.ndarray | None) -> np.ndarray:
        """x·W + b, float32 (n, inputs) to (n, outputs): most of a step's time is spent here."""
        y = np.dot(x, self.unpacked(W))
        return y if bias is None else np.add(y, bias, out=y)


@hookimpl
def register_backends(register):
    register($cls)
'''

TESTS = '''\
"""$name: a whole model, and what every backend has to do."""

import numpy as np
import pytest
from ringlet import Pipeline


@pytest.mark.ringlet("$name")
def test_conformance(ringlet_check):
    ringlet_check()


def test_the_embedded_model_gives_the_reference_s_logits():
    mine = Pipeline.from_pretrained(backend="$name", kv_dtype="f32")
    reference = Pipeline.from_pretrained(backend="numpy", kv_dtype="f32")
    ids = reference.tokenizer.encode("床前明月光")
    expected = reference.logits(ids)
    assert np.abs(mine.logits(ids) - expected).max() <= 1e-4 * np.abs(expected).max()
'''
