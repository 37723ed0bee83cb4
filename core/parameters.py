"""The parameters of a plugin's class, read from its constructor, so that text can set them.

``typing.Annotated[int, Parameter(help="…", minimum=1)]`` adds help and a range to a plain annotation;
``typing.Literal["a", "b"]`` is a text of which there are only these.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any

from ringlet.core.errors import PluginError, RingletError

TYPES: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True)
class Parameter:
    """Help and range of a parameter: minimum and maximum are included, `above` is not."""

    help: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None


@dataclass(frozen=True)
class ParameterOf:
    """One parameter of a class's constructor, in order."""

    name: str
    type: type  # int, float, bool or str
    optional: bool  # None is possible, written "none"
    required: bool
    default: Any
    help: str
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()  # all texts that are possible, where not every one is

    def convert(self, value: object) -> Any:
        """The value, or its text, as the parameter's type and within its range. Raises RingletError."""
        if self.optional and (value is None or value == "none"):
            return None
        converted = _converted(self.type, value)
        if converted is None or (self.choices and converted not in self.choices):
            raise RingletError(f"{self.name} is {_shown(value)}: {self._kind} is needed")
        if self.type in (int, float) and not self._in_range(converted):
            raise RingletError(f"{self.name} is {converted}: {self.accepts} is needed")
        return converted

    def _in_range(self, value: float) -> bool:
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        return low <= value <= high and (self.above is None or value > self.above)

    @property
    def _kind(self) -> str:
        if not self.choices:
            return TYPES[self.type]
        *others, last = self.choices
        return f"{', '.join(others)} or {last}" if others else last

    @property
    def accepts(self) -> str:
        """What may be given: "a number from 0 to 1", "a whole number, 0 or more", "left or right, or none"."""
        text = self._kind
        if self.above is not None:
            text += f" above {self.above:g}" + (f" up to {self.maximum:g}" if self.maximum is not None else "")
        elif self.minimum is not None and self.maximum is not None:
            text += f" from {self.minimum:g} to {self.maximum:g}"
        elif self.minimum is not None:
            text += f", {self.minimum:g} or more"
        elif self.maximum is not None:
            text += f", {self.maximum:g} or less"
        return f"{text}, or none" if self.optional else text


@cache
def parameters_of(cls: type) -> tuple[ParameterOf, ...]:
    """The constructor's parameters. Raises PluginError for one that text cannot set."""
    if cls.__init__ is object.__init__:  # type: ignore[misc]
        return ()
    try:
        hints = typing.get_type_hints(cls.__init__, include_extras=True)  # type: ignore[misc]
    except Exception as error:
        raise PluginError(f"{cls.__qualname__}: an annotation of __init__ cannot be read: {error}") from error
    found = []
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:  # type: ignore[misc]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        found.append(_parameter(cls, parameter, hints.get(parameter.name)))
    return tuple(found)


def _parameter(cls: type, parameter: inspect.Parameter, hint: Any) -> ParameterOf:
    extra = Parameter()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *notes = typing.get_args(hint)
        extra = next((note for note in notes if isinstance(note, Parameter)), extra)
    required = parameter.default is parameter.empty
    if hint is None:
        hint = str if required or parameter.default is None else type(parameter.default)
    plain, optional = _without_none(hint)
    choices: tuple[Any, ...] = ()
    if typing.get_origin(plain) is typing.Literal and all(isinstance(choice, str) for choice in typing.get_args(plain)):
        plain, choices = str, typing.get_args(plain)
    if plain not in TYPES:
        raise PluginError(f"{cls.__qualname__}: parameter {parameter.name} is {hint}: use int, float, bool or str")
    default = None if required else parameter.default
    optional = optional or (not required and default is None)
    return ParameterOf(
        parameter.name,
        plain,
        optional,
        required,
        default,
        extra.help,
        extra.minimum,
        extra.maximum,
        extra.above,
        choices,
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    """`int | None` and `Optional[int]` as (int, True), `int` as (int, False)."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False


def _converted(kind: type, value: object) -> Any:
    """None where the value is not of that kind."""
    if kind is str:
        return value if isinstance(value, str) else None
    if kind is bool:
        return value if isinstance(value, bool) else BOOLEANS.get(str(value).lower())
    if isinstance(value, bool):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
        if kind is int:
            return int(value) if not isinstance(value, float) or number.is_integer() else None  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)
