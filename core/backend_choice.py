"""Which backend computes a model: the one the user names, or the fastest that works here."""

from __future__ import annotations

from ringlet.core.backend import Backend
from ringlet.core.config import ModelConfig
from ringlet.core.errors import PluginError, RingletError, fault_text
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.weights import ModelWeights

FASTEST_FIRST = ("cuda", "cpu", "numpy")


def make_backend(
    name: str, plugins: PluginManager, config: ModelConfig, weights: ModelWeights, threads: int | None
) -> Backend:
    """A backend for the model. "auto": the first of cuda, cpu and numpy that is registered and can be made.

    Raises RingletError for an unknown name, PluginError where the backend named cannot be made.
    """
    if name != "auto":
        return construct(name, plugins, config, weights, threads)
    registered = plugins.registry("backend")
    usable = [candidate for candidate in FASTEST_FIRST if candidate in registered]
    for candidate in usable[:-1]:
        try:
            return construct(candidate, plugins, config, weights, threads)
        except RingletError as error:
            plugins.report(f"backend {candidate} is left out: {error}")
    if not usable:
        raise PluginError(f"backend auto: none of {', '.join(FASTEST_FIRST)} is there")
    return construct(usable[-1], plugins, config, weights, threads)


def construct(
    name: str, plugins: PluginManager, config: ModelConfig, weights: ModelWeights, threads: int | None
) -> Backend:
    """One instance of the backend of that name."""
    registered = plugins.find("backend", name)
    try:
        return registered.cls(config, weights, threads)
    except RingletError:
        raise
    except Exception as error:
        raise PluginError(f"backend {name} ({registered.origin}): constructor: {fault_text(error)}") from error
