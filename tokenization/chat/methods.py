"""The methods that templates may call: Python's of texts, lists, tuples and dicts, but for those that change one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2.filters import FILTERS

from ringlet.tokenization.chat import text as texts
from ringlet.tokenization.chat.formatting import format_fields
from ringlet.tokenization.chat.operators import Function, guarded
from ringlet.tokenization.chat.values import CHARACTERS, printed, size_of

if TYPE_CHECKING:
    from ringlet.tokenization.chat.sandbox import ChatEnvironment

PAIRS = 1024  # of characters that are compared in one step


def _cased(name: str) -> Function:
    method = getattr(str, name)
    return lambda environment, text: texts.derived(method(text), text)


def _plain(kind: type, name: str) -> Function:
    method = getattr(kind, name)
    return lambda environment, value, *args: method(value, *args)


def _searching(name: str) -> Function:
    method = getattr(str, name)

    def search(environment: ChatEnvironment, text: str, sought: Any, *places: int) -> Any:
        _pay_for_pairs(environment, text, sought)
        return method(text, sought, *places)

    return search


def _pay_for_pairs(environment: ChatEnvironment, text: str, sought: Any) -> None:
    """Some of Python's searches compare each character of the one with each of the other."""
    environment.pay(len(text) * len(sought) // PAIRS if isinstance(sought, str) else 1)


def _stripping(name: str) -> Function:
    def strip(environment: ChatEnvironment, text: str, chars: str | None = None) -> str:
        _pay_for_pairs(environment, text, chars)
        return texts.stripped(text, chars, name)

    return strip


def _splitting(name: str) -> Function:
    def split(environment: ChatEnvironment, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
        _pay_for_pairs(environment, text, sep)
        environment.pay(text.count(sep) if sep else len(text) // 2 if maxsplit < 0 else 1)
        return texts.split(text, sep, maxsplit, name)

    return split


def _partitioning(name: str) -> Function:
    def partition(environment: ChatEnvironment, text: str, separator: str) -> tuple[str, str, str]:
        _pay_for_pairs(environment, text, separator)
        return texts.partitioned(text, separator, name)

    return partition


def _padding(name: str) -> Function:
    def pad(environment: ChatEnvironment, text: str, width: int, fill: str = " ") -> str:
        environment.pay(max(width, 0) // CHARACTERS)
        return texts.padded(text, width, fill, name)

    return pad


def _split_lines(environment: ChatEnvironment, text: str, keepends: bool = False) -> list[str]:
    environment.pay(len(text) // 4)
    return texts.split_lines(text, keepends)


def replace(environment: ChatEnvironment, text: str, old: str, new: str, count: int = -1) -> str:
    if not isinstance(old, str) or not isinstance(new, str):
        raise TypeError("replace: two texts were expected")
    times = text.count(old) if count < 0 else min(count, len(text) + 1)
    environment.pay(times * size_of(new))
    return texts.replaced(text, old, new, count)


def join_printed(environment: ChatEnvironment, values: Any, d: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        values = FILTERS["map"](environment.context, values, attribute=attribute)
    parts = [printed(value) for value in environment.iterate(values)]
    separator = printed(d)
    environment.pay(sum(map(size_of, parts)) + len(parts) * len(separator) // CHARACTERS)
    return texts.joined(parts, separator)


def _join_texts(environment: ChatEnvironment, separator: str, values: Any) -> str:
    values = environment.iterate(values)
    wrong = next((value for value in values if not isinstance(value, str)), None)
    if wrong is not None:
        raise TypeError(f"join: a text was expected, {type(wrong).__name__} found")
    return join_printed(environment, values, separator)


STRING_METHODS: dict[str, Function] = {
    **{name: _cased(name) for name in ("capitalize", "casefold", "lower", "swapcase", "title", "upper")},
    **{name: _searching(name) for name in ("count", "find", "index", "rfind", "rindex")},
    **{name: _plain(str, name) for name in ("endswith", "startswith")},
    **{
        name: _plain(str, name)
        for name in ("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isprintable")
    },
    **{name: _plain(str, name) for name in ("isspace", "istitle", "isupper")},
    **{name: _stripping(name) for name in ("lstrip", "rstrip", "strip")},
    **{name: _splitting(name) for name in ("rsplit", "split")},
    **{name: _partitioning(name) for name in ("partition", "rpartition")},
    **{name: _padding(name) for name in ("center", "ljust", "rjust", "zfill")},
    "format": lambda environment, text, *args, **kwargs: format_fields(environment, text, args, kwargs),
    "join": _join_texts,
    "removeprefix": lambda environment, text, prefix: text[len(prefix) :] if text.startswith(prefix) else text,
    "removesuffix": lambda environment, text, suffix: (
        text[: len(text) - len(suffix)] if text.endswith(suffix) else text
    ),
    "replace": replace,
    "splitlines": _split_lines,
}
DICT_METHODS: dict[str, Function] = {
    "copy": lambda environment, fields: fields,
    "get": lambda environment, fields, key, default=None: fields.get(key, default),
    "items": lambda environment, fields: list(fields.items()),
    "keys": lambda environment, fields: list(fields),
    "values": lambda environment, fields: list(fields.values()),
}
LIST_METHODS: dict[str, Function] = {
    "copy": lambda environment, items: items,
    "count": _plain(list, "count"),
    "index": _plain(list, "index"),
}
TUPLE_METHODS: dict[str, Function] = {"count": _plain(tuple, "count"), "index": _plain(tuple, "index")}
METHODS: dict[type, dict[str, Function]] = {
    kind: {name: guarded(method) for name, method in methods.items()}
    for kind, methods in ((str, STRING_METHODS), (dict, DICT_METHODS), (list, LIST_METHODS), (tuple, TUPLE_METHODS))
}
