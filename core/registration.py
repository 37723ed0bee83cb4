"""What a class must be to be registered, by kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ringlet.core.errors import PluginError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def check_class(kind: str, cls: object) -> str:
    """The name under which the class is to be registered. Raises PluginError where it cannot be."""
    if not isinstance(cls, type):
        raise PluginError(f"register() takes a class, not {type(cls).__name__} {cls!r}")
    name = getattr(cls, "name", None)
    if not isinstance(name, str):
        raise PluginError(f'{cls.__qualname__} has no name: write name = "…" in the class')
    if not NAME.fullmatch(name):
        raise PluginError(f"{cls.__qualname__}: the name {name!r} is not made of letters, digits, _, - and .")
    check = CHECKS.get(kind)
    if check is not None:
        check(cls)
    return name


def claims_of(kind: str, cls: Any) -> list[str]:
    """What no other class of the kind may claim too: its name; of an architecture also the models that it reads."""
    claims = [f"name {cls.name!r}"]
    if kind == "architecture":
        for table, key in ((cls.hf, "model_type"), (cls.gguf, "general.architecture")):
            claims += [f"{key} {name!r}" for name in (table.names if table else ())]
    return claims


def check_command(name: object, command: object) -> None:
    """Raises PluginError for what is no command that the command line could list and call."""
    import click

    if not isinstance(command, click.Command):
        raise PluginError(f"the command {name!r} is of type {type(command).__name__}, not a click.Command")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise PluginError(f"the command's name {name!r} is not made of letters, digits, _, - and .")
    command.get_short_help_str()  # what --help shows beside it


def defines(cls: type, method: str) -> bool:
    """Whether instances have the method. (hasattr would find `type.__call__` on any class.)"""
    return any(callable(base.__dict__.get(method)) for base in cls.__mro__)


def _check_sampler(cls: type) -> None:
    from ringlet.core.parameters import parameters_of

    if not defines(cls, "__call__") and not defines(cls, "pick"):
        raise PluginError(f"{cls.__qualname__} has neither __call__(logits, context) nor pick(logits, context)")
    parameters_of(cls)


def _check_backend(cls: Any) -> None:
    from ringlet.core.backend import Backend
    from ringlet.core.checks import is_whole

    if not issubclass(cls, Backend):
        raise PluginError(f"{cls.__qualname__} is no subclass of ringlet.Backend")
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise PluginError(f"{cls.__qualname__} lacks {', '.join(missing)}")
    if not isinstance(cls.kv_dtypes, (tuple, list)) or cls.kv_dtype not in cls.kv_dtypes:
        raise PluginError(f"{cls.__qualname__}: kv_dtype is {cls.kv_dtype!r}, which is not in kv_dtypes")
    for name in ("rank", "most_threads"):
        if not is_whole(getattr(cls, name)):
            raise PluginError(f"{cls.__qualname__}: {name} is {getattr(cls, name)!r}: a whole number is needed")


def _check_architecture(cls: type) -> None:
    from ringlet.core.loading.architecture import Architecture

    if not issubclass(cls, Architecture):
        raise PluginError(f"{cls.__qualname__} is no subclass of ringlet.Architecture")
    for table in (cls.hf, cls.gguf):
        names = table.names if table else ("",)
        if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
            raise PluginError(f"{cls.__qualname__}: names is {names!r}: a tuple of texts is needed")
    _check_recipe(cls)


def _check_recipe(cls: Any) -> None:
    """The values of its fields; that there are fields of these names was checked when the class was made."""
    for name, value in cls.recipe.items():
        choices = _recipe_choices().get(name)
        if choices is not None and value not in choices:
            known = ", ".join(map(str, choices))
            raise PluginError(f"{cls.__qualname__}: recipe: {name} is {value!r}: choose from {known}")


@cache
def _recipe_choices() -> dict[str, tuple[Any, ...]]:
    """The values that some of the recipe's fields may have."""
    from ringlet.core.config import ModelConfig

    hints = get_type_hints(ModelConfig)
    choices = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
    return choices | {name: (True, False) for name, hint in hints.items() if hint is bool}


def _check_observer(cls: type) -> None:
    if not defines(cls, "__call__"):
        raise PluginError(f"{cls.__qualname__} has no __call__(name, array, layer)")


CHECKS: dict[str, Callable[[type], None]] = {
    "sampler": _check_sampler,
    "backend": _check_backend,
    "architecture": _check_architecture,
    "observer": _check_observer,
}
