"""`"…{}…".format(…)` and `"…%s…" % …`, piece by piece: what stands between the pieces keeps its origin."""

from __future__ import annotations

import re
from _string import formatter_field_name_split  # what `string.Formatter` itself uses
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any

from ringlet.tokenization.chat.text import all_from, highest_origin, joined
from ringlet.tokenization.chat.values import facts_of, printed

if TYPE_CHECKING:
    from ringlet.tokenization.chat.sandbox import ChatEnvironment

WIDEST = 1000  # characters to which a value is padded
PERCENT = re.compile(r"%(?:\((?P<name>[^()]*)\))?(?P<flags>[#0 +-]*)(?P<sizes>[\d.*]*)[hlL]?(?P<kind>.?)", re.DOTALL)
NUMBER = re.compile(r"\d+")


def format_fields(
    environment: ChatEnvironment, text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], depth: int = 2
) -> str:
    """As `str.format`; fields are looked up as the template itself would. depth: how deep fields may be in fields."""
    if depth < 0:
        raise ValueError("fields are nested too deep")
    origin = highest_origin(text)
    numbers: Iterator[int] = iter(range(len(text)))
    parts = []
    for literal, name, spec, conversion in Formatter().parse(str.__str__(text)):
        parts.append(all_from(literal, origin))
        if name is None:
            continue
        name = name if name and name[0] not in ".[" else f"{next(numbers)}{name}"
        first, rest = formatter_field_name_split(name)
        value = args[first] if isinstance(first, int) else kwargs[first]
        for is_attribute, key in rest:
            value = environment.getattr(value, key) if is_attribute else environment.getitem(value, key)
        spec = str.__str__(format_fields(environment, spec or "", args, kwargs, depth - 1))
        parts.append(_converted(value, conversion, spec))
    return joined(parts)


def _converted(value: Any, conversion: str | None, spec: str) -> str:
    _check_sizes(spec)
    origin = facts_of(value).origin
    if conversion in ("r", "a"):
        value = all_from(repr(value) if conversion == "r" else ascii(value), origin)
    elif conversion == "s" or not isinstance(value, (int, float, str)):
        value = printed(value)
    return value if isinstance(value, str) and not spec else all_from(format(value, spec), origin)


def format_percent(text: str, values: Any) -> str:
    """As `text % values`."""
    origin, parts, at = highest_origin(text), [], 0
    left = list(values) if isinstance(values, tuple) else [values]
    for found in PERCENT.finditer(text):
        if "*" in found["sizes"]:
            raise ValueError("a width of * is not possible")
        _check_sizes(found["sizes"])
        parts.append(text[at : found.start()])
        at = found.end()
        if found["kind"] == "%":
            parts.append(all_from(f"%{found['flags']}{found['sizes']}%" % (), origin))
            continue
        if found["name"] is None and not left:
            raise TypeError("not enough arguments for format string")
        value = values[found["name"]] if found["name"] is not None else left.pop(0)
        piece = f"%{found['flags']}{found['sizes']}{found['kind']}"
        value = printed(value) if found["kind"] == "s" else value
        parts.append(value if piece == "%s" else all_from(piece % (value,), max(origin, facts_of(value).origin)))
    if left and (isinstance(values, (str, tuple)) or not hasattr(values, "__getitem__")):  # as Python has it
        raise TypeError("not all arguments converted during string formatting")
    return joined([*parts, text[at:]])


def _check_sizes(spec: str) -> None:
    """Raises ValueError for a width or a precision that is out of proportion."""
    if any(len(number) > 4 or int(number) > WIDEST for number in NUMBER.findall(spec)):
        raise ValueError(f"a width or precision above {WIDEST} is not possible")
