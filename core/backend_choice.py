"""Which backend computes a model: the one the user names, or the fastest that works here."""

from __future__ import annotations

import sys

from ringlet.core.backend import Backend, Missing
from ringlet.core.backend_calls import fault, guarded
from ringlet.core.config import ModelConfig
from ringlet.core.errors import PluginError, RingletError, fault_text
from ringlet.core.plugin_manager import PluginManager, Registered
from ringlet.core.weights import ModelWeights


def backend_candidates(name: str, plugins: PluginManager, device: int | None = None) -> list[Registered]:
    """The backend of that name; for "auto" those with a rank that this machine lacks nothing for, the highest first.

    device: of the backend's devices, where the user names one; then only backends that have some. Raises RingletError
    for an unknown name, for what the machine lacks for a named backend, and for a device of a backend that has none.
    """
    if name != "auto":
        named = plugins.find("backend", name)
        lack = missing(named)
        if lack is not None:
            raise RingletError(f"backend {named.label}: {lack.text}")
        if device is not None and not named.cls.takes_device:
            raise RingletError(f"backend {named.label} has no devices to choose from: leave out --device")
        return [named]
    ranked = [registered for registered in plugins.registry("backend").values() if registered.cls.rank > 0]
    if not ranked:
        raise PluginError("backend auto: no backend has a rank; name one with --backend")
    able = []
    for registered in sorted(ranked, key=lambda registered: -registered.cls.rank):
        lack = missing(registered)
        if lack is None and (device is None or registered.cls.takes_device):
            able.append(registered)
        elif lack is not None and (lack.is_near or device is not None):
            plugins.report(f"backend {registered.label} is left out: {lack.text}")
    if not able:
        way_out = "leave out --device" if device is not None else "name one with --backend"
        raise RingletError(f"backend auto: no backend can be used here: {way_out}")
    return able


def missing(registered: Registered) -> Missing | None:
    """What the machine lacks for a backend, as it says itself."""
    return guarded(registered.label, registered.is_built_in, "missing", registered.cls.missing)


def make_backend(
    candidates: list[Registered],
    plugins: PluginManager,
    config: ModelConfig,
    weights: ModelWeights,
    threads: int | None,
    device: int | None = None,
) -> Backend:
    """The first candidate that can be made; those before it are reported.

    The fault of the last one is raised: RingletError as it is, anything else as PluginError if a plugin raises it. What
    the user chose, such as the number of threads, has been checked: it is no reason to take another.
    """
    for candidate in candidates[:-1]:
        try:
            return construct(candidate, config, weights, threads, device)
        except PluginError as error:
            plugins.report(f"{error} (left out)")
        except Exception as error:
            plugins.report(f"backend {candidate.label} is left out: {fault_text(error)}")
    return construct(candidates[-1], config, weights, threads, device)


def construct(
    registered: Registered, config: ModelConfig, weights: ModelWeights, threads: int | None, device: int | None = None
) -> Backend:
    label, is_built_in = registered.label, registered.is_built_in
    chosen = {} if device is None else {"device": device}
    made: Backend = guarded(
        label, is_built_in, "constructor", lambda: registered.cls(config, weights, threads, **chosen)
    )
    if not all(hasattr(made, name) for name in ("config", "weights", "threads")):
        raise fault(label, "constructor", "it must call super().__init__(config, weights, threads)")
    made.origin = None if registered.is_built_in else registered.origin
    return made


def tell_choice(made: Backend) -> None:
    """Say on standard error what "auto" chose, where it is not the processor that everybody has."""
    if made.place is not None and sys.stderr is not None:
        print(f"backend {made.label}: {made.place}", file=sys.stderr)
