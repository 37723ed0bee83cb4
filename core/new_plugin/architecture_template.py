"""A new architecture's package. Words after a $ are filled in: see `writer`."""

from __future__ import annotations

SUMMARY = "A model family for Ringlet: $name"
EXAMPLE = 'ringlet generate "Once upon a time" --model path/to/a/model'

MODULE = '''\
"""$summary.

It begins as Llama's tables under another name. Write down what is different.
"""

from dataclasses import replace

from ringlet import Architecture, hookimpl
from ringlet.plugins.architectures.llama import Llama


class $cls(Architecture):
    """Models that call themselves "$name", in config.json's model_type and in GGUF files.

    Say here how they differ from a Llama, and where that is written.
    """

    name = "$name"
    recipe = Llama.recipe
    hf = replace(Llama.hf, names=("$name",))
    gguf = replace(Llama.gguf, names=("$name",))


@hookimpl
def register_architectures(register):
    register($cls)
'''

TESTS = '''\
"""$name: what every architecture has to do, on a model made up from its tables.

A real model says more: run `ringlet plugins check $name --model FOLDER`, and compare
`Pipeline.from_pretrained(FOLDER).logits(ids)` with the logits of the family's own code.
"""

import pytest
from ringlet.core.plugin_manager import load_plugins


@pytest.mark.ringlet("$name")
def test_conformance(ringlet_check):
    ringlet_check()


def test_it_is_found_by_what_its_models_call_themselves():
    family = load_plugins().find("architecture", "$name").cls
    assert family.hf.names == ("$name",)
    assert family.gguf.names == ("$name",)
'''
