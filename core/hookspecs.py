"""The hooks that a plugin may implement, one function each."""

from __future__ import annotations

from collections.abc import Callable

import click
import pluggy

PROJECT = "ringlet"  # the entry-point group too
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Register = Callable[[type], None]


@hookspec
def register_samplers(register: Register) -> None:
    """Call register(cls) for each sampler: see `ringlet.core.sampling`."""


@hookspec
def register_backends(register: Register) -> None:
    """Call register(cls) for each subclass of `ringlet.Backend`."""


@hookspec
def register_architectures(register: Register) -> None:
    """Call register(cls) for each architecture: see `ringlet.core.loading.architecture`."""


@hookspec
def register_observers(register: Register) -> None:
    """Call register(cls) for each observer of the numpy backend's arrays: see `ringlet.core.observers`."""


@hookspec
def register_commands(cli: click.Group) -> None:
    """Add commands to the command line."""
