"""Which backend computes a model: the one the user names, or the fastest that works here."""

from __future__ import annotations

from ringlet.core.backend import Backend
from ringlet.core.backend_calls import fault, guarded
from ringlet.core.config import ModelConfig
from ringlet.core.errors import PluginError, fault_text
from ringlet.core.plugin_manager import PluginManager, Registered
from ringlet.core.weights import ModelWeights


def backend_candidates(name: str, plugins: PluginManager) -> list[Registered]:
    """The backend of that name; for "auto" those with a rank, the highest first.

    Raises RingletError for an unknown name.
    """
    if name != "auto":
        return [plugins.find("backend", name)]
    ranked = [registered for registered in plugins.registry("backend").values() if registered.cls.rank > 0]
    if not ranked:
        raise PluginError("backend auto: no backend has a rank; name one with --backend")
    return sorted(ranked, key=lambda registered: -registered.cls.rank)


def make_backend(
    candidates: list[Registered],
    plugins: PluginManager,
    config: ModelConfig,
    weights: ModelWeights,
    threads: int | None,
) -> Backend:
    """The first candidate that can be made; those before it are reported.

    The fault of the last one is raised: RingletError as it is, anything else as PluginError if a plugin raises it. What
    the user chose, such as the number of threads, has been checked: it is no reason to take another.
    """
    for candidate in candidates[:-1]:
        try:
            return construct(candidate, config, weights, threads)
        except PluginError as error:
            plugins.report(f"{error} (left out)")
        except Exception as error:
            plugins.report(f"backend {candidate.label} is left out: {fault_text(error)}")
    return construct(candidates[-1], config, weights, threads)


def construct(registered: Registered, config: ModelConfig, weights: ModelWeights, threads: int | None) -> Backend:
    label, is_built_in = registered.label, registered.is_built_in
    made: Backend = guarded(label, is_built_in, "constructor", lambda: registered.cls(config, weights, threads))
    if not all(hasattr(made, name) for name in ("config", "weights", "threads")):
        raise fault(label, "constructor", "it must call super().__init__(config, weights, threads)")
    made.origin = None if registered.is_built_in else registered.origin
    return made
