"""Samplers that are given as objects, beside the text of a chain: `[ "top_k=40", TopA(0.3) ]`.

An object need not be registered: a class with ``__call__(logits, context)`` or ``pick(logits, context)``, an instance
of one, or a function of (logits, context). What is given is never called: a chain begins with a deep copy of it, made
of how it was when it was given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Protocol

from ringlet.core.errors import PluginError, RingletError, fault_text
from ringlet.core.parameters import parameters_of
from ringlet.core.plugin_manager import PluginManager, Registered
from ringlet.core.registration import defines
from ringlet.core.sampler_spec import SamplerStep


class Picker(Protocol):
    """What draws the token itself."""

    def pick(self, logits: Any, context: Any, /) -> Any: ...


Sampler = Callable[[Any, Any], Any] | Picker | type[Any]
SamplerSpec = str | Sampler | Sequence[str | Sampler]


def step_of(given: Any, plugins: PluginManager) -> SamplerStep:
    """The step of a chain that an object is. Raises RingletError for one that is no sampler or cannot be copied."""
    cls = given if isinstance(given, type) else type(given)
    if not defines(cls, "__call__") and not defines(cls, "pick"):
        if isinstance(given, type):
            raise RingletError(f"sampler {cls.__qualname__} has neither __call__(logits, context) nor pick(…)")
        raise RingletError(
            f'sampler is {_short(given)}: a text such as "top_k=40,temperature=0.8" is needed, '
            "an object with __call__(logits, context) or pick(logits, context), or a list of such"
        )
    registered = _registered(given, cls, plugins)
    if isinstance(given, type):
        _check_needs_nothing(cls)
        return SamplerStep(registered, {})
    if registered.is_built_in:
        _check_ranges(given, registered)
    return SamplerStep(registered, {}, _copied(given, registered))


def _registered(given: Any, cls: type, plugins: PluginManager) -> Registered:
    """As the plugins have it; one that they do not have goes by its own name and its module's."""
    known = next((found for found in plugins.registry("sampler").values() if found.cls is cls), None)
    if known is not None:
        return known
    named = given if hasattr(given, "__name__") else cls  # a function and a class have one
    return Registered(cls, "sampler", named.__name__, getattr(named, "__module__", None) or "an object", None)


def _check_needs_nothing(cls: type) -> None:
    """A class is made anew for each sequence, without arguments."""
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        raise RingletError(f"sampler {cls.__qualname__}: {error}: give an object, {cls.__qualname__}(…)") from None
    except ValueError:  # a class that does not tell
        pass


def _check_ranges(given: Any, registered: Registered) -> None:
    """Ringlet's own count on their text's checks; here they are made of the numbers that the object keeps."""
    for parameter in parameters_of(registered.cls):
        if parameter.type in (int, float) and hasattr(given, parameter.name):
            try:
                parameter.convert(getattr(given, parameter.name))
            except RingletError as error:
                raise RingletError(f"sampler {registered.name}: {error}") from None


def _copied(given: Any, registered: Registered) -> Any:
    try:
        return deepcopy(given)
    except Exception as error:
        way_out = "give its class a __deepcopy__ that says what each sequence may share"
        raise PluginError(f"sampler {registered.label}: deepcopy: {fault_text(error)}: {way_out}") from error


def _short(given: Any) -> str:
    return repr(given) if isinstance(given, (int, float, bool, type(None))) else f"of type {type(given).__name__}"
