"""The filters and tests of chat templates: Jinja's, but for those that make HTML or look into objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jinja2 import pass_context
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.tests import TESTS
from jinja2.utils import _PassArg

from ringlet.tokenization.chat import text as texts
from ringlet.tokenization.chat.formatting import format_percent
from ringlet.tokenization.chat.methods import STRING_METHODS, join_printed, replace
from ringlet.tokenization.chat.operators import Function, guarded
from ringlet.tokenization.chat.values import CHARACTERS, facts_of, printed, size_of

if TYPE_CHECKING:
    from ringlet.tokenization.chat.sandbox import ChatEnvironment

MOST_DIGITS = 300  # that `round` and `int` heed
WIDEST_INDENT = 64  # blanks for a level of JSON


def _of_text(method: Function) -> Function:
    """A filter that is the method of whatever is printed for the value."""
    return lambda environment, value, *args, **kwargs: method(environment, printed(value), *args, **kwargs)


def _jinja(name: str) -> Function:
    """A filter of Jinja's, on values that are paid for."""
    function = FILTERS[name]
    wants = _PassArg.from_obj(function)

    def run(environment: ChatEnvironment, value: Any, *args: Any, **kwargs: Any) -> Any:
        context = environment.context
        first: dict[Any, Any] = {
            _PassArg.context: context,
            _PassArg.eval_context: context.eval_ctx,
            _PassArg.environment: environment,
        }
        if isinstance(value, (str, range)):  # some go through it one by one
            environment.pay(len(value))
        return function(*([first[wants]] if wants else []), value, *args, **kwargs)

    return run


def _replace_printed(environment: ChatEnvironment, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    return replace(environment, printed(value), printed(old), printed(new), -1 if count is None else count)


def _indent(environment: ChatEnvironment, value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    if not isinstance(value, str):
        raise TypeError(f"indent: a text was expected, {type(value).__name__} found")
    lines = 1 + value.count("\n")
    environment.pay(lines * (len(width) if isinstance(width, str) else max(width, 0)) // CHARACTERS + len(value) // 4)
    return texts.indented(value, width if isinstance(width, str) else " " * width, first, blank)


def _format(environment: ChatEnvironment, value: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise TypeError("format takes either values or named values")
    return format_percent(printed(value), kwargs or args)


def _to_json(
    environment: ChatEnvironment,
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: Jinja's own escapes HTML."""
    blanks = indent if isinstance(indent, int) else len(indent or "")
    marks = sum(len(mark) for mark in separators or ())
    if blanks > WIDEST_INDENT or marks > WIDEST_INDENT:
        raise ValueError(f"JSON is indented by {WIDEST_INDENT} blanks at most, with separators no longer than that")
    facts = facts_of(value)
    environment.pay(facts.size * (1 + (blanks * facts.depth + marks) // CHARACTERS))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _round(environment: ChatEnvironment, value: Any, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > MOST_DIGITS:
        raise ValueError(f"round: the precision is {precision}, {MOST_DIGITS} at most is possible")
    return FILTERS["round"](value, precision, method)


def _int(environment: ChatEnvironment, value: Any, default: Any = 0, base: int = 10) -> Any:
    return default if isinstance(value, str) and len(value) > MOST_DIGITS else FILTERS["int"](value, default, base)


def _sum(environment: ChatEnvironment, values: Any, attribute: Any = None, start: Any = 0) -> Any:
    if not isinstance(start, (int, float)):
        raise TypeError("sum adds numbers only")
    return FILTERS["sum"](environment, environment.iterate(values), attribute, start)


def _in_rows(name: str) -> Function:
    native = _jinja(name)

    def run(environment: ChatEnvironment, value: Any, count: int, fill_with: Any = None) -> Any:
        environment.pay(max(count, 0) * (1 + size_of(fill_with)))
        return native(environment, value, count, fill_with)

    return run


JINJA_FILTERS = (
    "abs", "d", "default", "dictsort", "first", "float", "groupby", "items", "last", "list", "map", "max", "min",
    "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "truncate", "unique", "wordcount",
)  # fmt: skip
OUR_FILTERS: dict[str, Function] = {
    **{name: _of_text(STRING_METHODS[name]) for name in ("capitalize", "lower", "upper")},
    **{name: lambda environment, value: len(value) for name in ("count", "length")},
    **{name: lambda environment, value: printed(value) for name in ("safe", "string")},
    **{name: _in_rows(name) for name in ("batch", "slice")},
    "center": lambda environment, value, width=80: STRING_METHODS["center"](environment, printed(value), width),
    "format": _format,
    "indent": _indent,
    "int": _int,
    "join": join_printed,
    "replace": _replace_printed,
    "round": _round,
    "sum": _sum,
    "title": lambda environment, value: texts.derived(FILTERS["title"](printed(value)), printed(value)),
    "tojson": _to_json,
    "trim": _of_text(STRING_METHODS["strip"]),
}


def filters() -> dict[str, Function]:
    """By name; each is a function of (context, value, …), which Jinja does not call before there is a context."""

    def with_context(function: Function) -> Function:
        paid = guarded(function)

        @pass_context
        def run(context: Context, value: Any, /, *args: Any, **kwargs: Any) -> Any:
            return paid(context.environment, value, *args, **kwargs)

        return run

    named = {**{name: _jinja(name) for name in JINJA_FILTERS}, **OUR_FILTERS}
    return {name: with_context(function) for name, function in named.items()}


def tests() -> dict[str, Function]:
    def with_context(function: Function) -> Function:
        @pass_context
        def run(context: Context, value: Any, /, *args: Any) -> bool:
            context.environment.pay(sum(map(size_of, (value, *args))))  # type: ignore[attr-defined]
            return function(value, *args)

        return run

    named: dict[str, Any] = TESTS
    return {name: with_context(test) for name, test in named.items() if name not in ("callable", "filter", "test")}
