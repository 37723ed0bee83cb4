"""The operators of chat templates, and how every operation pays.

Each is paid for: what it reads and might make before it runs, what it has made after it (`guarded`). A text that none
of `text`'s operations made counts as written by the least trusted of those who wrote its arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringlet.tokenization.chat import text as texts
from ringlet.tokenization.chat.formatting import format_percent
from ringlet.tokenization.chat.values import facts_of, kept, size_of

if TYPE_CHECKING:
    from ringlet.tokenization.chat.sandbox import ChatEnvironment

Function = Callable[..., Any]
LARGEST_BITS = 4096  # of a whole number


def guarded(function: Function) -> Function:
    """A function of (environment, value, …) with its payments, and with its result as a value of ours."""

    def run(environment: ChatEnvironment, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        given = [value, *args, *kwargs.values()]
        environment.pay(sum(map(size_of, given)))
        result = function(environment, value, *args, **kwargs)
        if type(result) is str:
            result = texts.all_from(result, max(facts_of(one).origin for one in given))
        elif hasattr(result, "__next__"):
            result = list(result)
        result = kept(result)
        environment.pay(size_of(result))
        return result

    return run


def binary(environment: ChatEnvironment, sign: str, left: Any, right: Any) -> Any:
    """left + right, and so on, for any of Jinja's signs."""
    environment.pay(size_of(left) + size_of(right))
    result: Any
    if sign == "+" and isinstance(left, str) and isinstance(right, str):
        return texts.joined([left, right])
    if sign == "%" and isinstance(left, str):
        result = format_percent(left, right)
    elif sign == "*" and any(isinstance(side, (str, list, tuple)) for side in (left, right)):
        result = _repeated(environment, left, right) if isinstance(right, int) else _repeated(environment, right, left)
    elif sign == "**":
        result = _power(left, right)
    else:
        result = environment.binop_table[sign](left, right)
    if isinstance(result, int) and result.bit_length() > LARGEST_BITS:
        raise OverflowError(f"a whole number of more than {LARGEST_BITS} bits")
    result = kept(result)
    environment.pay(size_of(result))
    return result


def _repeated(environment: ChatEnvironment, value: Any, times: Any) -> Any:
    if not isinstance(times, int):
        raise TypeError(f"cannot multiply a {type(value).__name__} by a {type(times).__name__}")
    environment.pay(size_of(value) * max(times, 0))
    return texts.repeated(value, times) if isinstance(value, str) else value * times


def _power(base: Any, exponent: Any) -> Any:
    grows = isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1
    if grows and abs(exponent) * base.bit_length() > 2 * LARGEST_BITS:
        raise OverflowError(f"a whole number of more than {LARGEST_BITS} bits")
    return operator.pow(base, exponent)
