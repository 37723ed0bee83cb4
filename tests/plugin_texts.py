"""Plugins as texts, and a command line to try them with."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from ringlet.cli import main
from ringlet.core import plugin_manager

HEAD = "import numpy as np\nfrom ringlet import Architecture, Key, RingletError, hookimpl\n"
SAMPLER = """
class {cls}:
    name = "{name}"
    {line}
    def __call__(self, logits, context):
        {body}

@hookimpl
def register_samplers(register):
    register({cls})
"""
BACKEND = """
from ringlet.plugins.backends.numpy import NumpyBackend

class Bad(NumpyBackend):
    name = "bad"
    rank = 0
    {line}
    def forward(self, batch):
        logits = super().forward(batch)
        {body}

@hookimpl
def register_backends(register):
    register(Bad)
"""
ARCHITECTURE = """
from dataclasses import replace
from ringlet.plugins.architectures.llama import Llama

class Bad(Architecture):
    name = "bad"
    recipe = Llama.recipe
    hf = replace(Llama.hf, names=("bad",))
    {body}

@hookimpl
def register_architectures(register):
    register(Bad)
"""
COMMANDS = """
import click

@hookimpl
def register_commands(cli):
    {body}
"""


def sampler(body: str = "return logits", name: str = "bad", line: str = "", cls: str = "Bad") -> str:
    """A module with one sampler; the body is that of `__call__`, the line stands in the class."""
    return HEAD + SAMPLER.format(cls=cls, name=name, line=line, body=body)


def backend(body: str = "return logits", line: str = "") -> str:
    return HEAD + BACKEND.format(line=line, body=body)


def architecture(body: str) -> str:
    """A Llama of another name; the body stands in the class."""
    return HEAD + ARCHITECTURE.format(body=body)


def commands(body: str) -> str:
    return HEAD + COMMANDS.format(body=body)


def hook(name: str, body: str) -> str:
    """A module with this hook alone."""
    return f"from ringlet import hookimpl\n\n@hookimpl\ndef {name}(register): {body}\n"


def run(*arguments: str, monkeypatch, **environment: str) -> Result:
    """A command in a process that has looked for no plugins yet, as far as that can be had."""
    with monkeypatch.context() as patched:
        patched.setattr(plugin_manager, "_managers", {})
        return CliRunner().invoke(main, list(arguments), env=environment)


def assert_ends(result: Result, message: str, exit_code: int = 2) -> None:
    """In one line."""
    assert result.exit_code == exit_code, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert message in line


def assert_goes_on(result: Result, expected_ids: list[int], warning: str | None) -> None:
    """As without the plugin; what was wrong is said, if anything was."""
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["token_ids"] == expected_ids
    if warning is None:
        assert result.stderr == ""
    else:
        (line,) = result.stderr.splitlines()
        assert line.startswith("Warning: ")
        assert line.endswith("(skipped)")
        assert warning in line
