"""Which checks belong to what a plugin has registered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringlet.core.errors import RingletError
from ringlet.core.plugin_manager import PluginManager, Registered, load_plugins, unknown_name
from ringlet.core.plugin_sources import all_resolved
from ringlet.core.sampler_spec import SamplerStep, parse_sampler_spec
from ringlet.testing.checks import Check

KINDS = ("sampler", "backend", "architecture")  # that have a suite


@dataclass(frozen=True)
class Subject:
    """What is checked: a registered class, and for a sampler the values of its parameters."""

    registered: Registered
    step: SamplerStep | None = None

    @property
    def label(self) -> str:
        return f"{self.registered.kind} {self.registered.label}"


def checks_of(name: str, plugins: Iterable[str | Path] = (), model: str | None = None) -> list[Check]:
    """The checks of everything that is called so.

    name: of a sampler, backend or architecture, or a sampler with its parameters as in a chain, "calm(target=3)".
    plugins: files that bring it. model: one that an architecture can read: a directory, a GGUF file, a name of the Hub.
    Raises RingletError where nothing is called so, PluginError where a plugin fails.
    """
    manager = load_plugins(plugins)
    return [check for subject in named(name, manager) for check in checks_for(subject, manager, model)]


def named(name: str, plugins: PluginManager) -> list[Subject]:
    """Everything of this name; a name with parameters is a sampler."""
    if not {"(", "="} & set(name):
        found = [plugins.registry(kind)[name] for kind in KINDS if name in plugins.registry(kind)]
        if not found:
            known = {known for kind in KINDS for known in plugins.registry(kind)}
            raise RingletError(unknown_name("sampler, backend or architecture", name, known, plugins.faults))
        return [_subject(registered, name, plugins) for registered in found]
    steps = parse_sampler_spec(name, plugins)
    if len(steps) != 1:
        raise RingletError(f"{name!r} names {len(steps)} samplers: check one at a time")
    return [Subject(steps[0].sampler, steps[0])]


def from_files(plugins: PluginManager, files: Sequence[str | Path]) -> list[Subject]:
    """Everything that these plugin files have registered. Raises RingletError where that is nothing."""
    origins = set(map(str, all_resolved(files)))
    found = [one for kind in KINDS for one in plugins.registry(kind).values() if one.origin in origins]
    if not found:
        raise RingletError(f"{', '.join(map(str, files))}: no sampler, backend or architecture to check")
    return [_subject(registered, registered.name, plugins) for registered in found]


def _subject(registered: Registered, name: str, plugins: PluginManager) -> Subject:
    if registered.kind != "sampler":
        return Subject(registered)
    return Subject(registered, parse_sampler_spec(name, plugins)[0])


def checks_for(subject: Subject, plugins: PluginManager, model: str | None = None) -> Iterator[Check]:
    """The suite of the subject's kind."""
    if subject.step is not None:
        from ringlet.testing.samplers.suite import sampler_checks
        from ringlet.tokenization.tokenizer import Tokenizer

        return sampler_checks(subject.step, Tokenizer.from_pretrained(None))
    reference = plugins.find("backend", "numpy").cls
    if subject.registered.kind == "backend":
        from ringlet.testing.backends.suite import backend_checks

        return backend_checks(subject.registered, reference)
    from ringlet.testing.architectures import architecture_checks

    return architecture_checks(subject.registered.cls, reference, model)
