"""The environment that chat templates run in: Jinja compiles the control flow, and every operation is one of ours.

A template comes from a stranger. It may call only what is listed here, in `methods` and in `filters`; it sees no
object of Python's but plain data; and each operation first pays, in steps, for what it reads and makes. A template that
loops without end or grows without bound has paid all its steps after a second or so, and is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from jinja2 import Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, TemplateReference
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace

from ringlet.tokenization.chat.filters import filters, tests
from ringlet.tokenization.chat.methods import METHODS
from ringlet.tokenization.chat.operators import binary
from ringlet.tokenization.chat.rewriting import rewrite
from ringlet.tokenization.chat.text import joined
from ringlet.tokenization.chat.values import Fields, kept, printed, size_of

DEEPEST_CALL = 100  # macros in macros
LONGEST_RANGE = 100_000  # as in jinja2's sandbox
LONGEST_DATE_FORMAT = 200  # characters
LOOP_NAMES = (
    "index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0", "previtem", "nextitem",
    "cycle", "changed",
)  # fmt: skip


class OutOfSteps(Exception):  # noqa: N818 - the way to stop a template, not a fault of ours
    """The template has used all its steps."""


class Refused(Exception):  # noqa: N818
    """The template itself raises an exception, because it does not like the messages."""


class Operation:
    """What a template may call: a function of ours."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run


class Step(Operation):
    """What only the rewritten template calls; it pays for itself."""

    __slots__ = ()


class GenerationTag(Extension):
    """{% generation %}…{% endgeneration %} marks an answer for training; it renders what is inside."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class ChatNamespace(Namespace):
    """Jinja's namespace(…), without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that namespace(self=1) works
        self, args = args[0], args[1:]
        Namespace.__init__(self)
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace has no name that begins with an underscore, such as {name!r}")
        super().__setitem__(name, kept(value))


class ChatEnvironment(SandboxedEnvironment):
    """One template's. It renders one conversation at a time.

    steps: what is left to pay with. context: the conversation's. Whoever renders sets both.
    """

    intercepted_binops = frozenset(SandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, LoopControlExtension],
            optimized=False,  # nothing is computed before there are steps to pay with
            cache_size=0,
        )
        self.steps = 0
        self.context: Any = None
        self._depth = 0
        vars(self).update(filters=filters(), tests=tests())
        named: dict[str, Callable[..., Any]] = {
            "range": self._range,
            "dict": self._dict,
            "namespace": ChatNamespace,
            "cycler": Cycler,
            "joiner": Joiner,
            "raise_exception": self._raise_exception,
            "strftime_now": self._strftime_now,
        }
        self.globals = {name: Operation(function) for name, function in named.items()}
        # What `rewriting` calls.
        self.tick = Step(self.pay)
        self.kept = Step(self._kept)
        self.printed = Step(self._printed)
        self.concatenated = Step(lambda *parts: self.concat(map(printed, parts)))
        self.weighed = Step(self._weighed)
        self.sliced = Step(self._sliced)
        self.iterated = Step(self.iterate)

    def pay(self, steps: int) -> None:
        """Raises OutOfSteps where there are not as many left."""
        self.steps -= steps
        if self.steps < 0:
            raise OutOfSteps

    def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
        return super()._generate(rewrite(source), *arguments, **options)

    # --- what the compiled template calls ----------------------------------------------------------------------------

    def concat(self, parts: Iterable[str]) -> str:
        parts = list(parts)
        self.pay(sum(map(size_of, parts)))
        return joined(parts)

    def _printed(self, value: Any) -> str:
        self.pay(size_of(value))
        return printed(value)

    def _kept(self, value: Any) -> Any:
        result = kept(value)
        self.pay(size_of(result))
        return result

    def _weighed(self, value: Any) -> Any:
        self.pay(size_of(value))
        return value

    def _sliced(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        self.pay(size_of(value))
        return kept(value[start:stop:step])

    def iterate(self, values: Any, each: int = 1) -> list[Any]:
        """What a loop goes through; it pays so many steps for each. Iterating itself is paid in the loop's body."""
        self.pay(each * len(values) if isinstance(values, (str, list, tuple, dict, range)) else 1)
        return list(values)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return binary(self, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        self.pay(1)
        if isinstance(obj, Undefined):
            obj._fail_with_undefined_error()
        found = self._member(obj, attribute)
        if found is None and isinstance(obj, dict):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return self.undefined(obj=obj, name=attribute) if found is None else found[0]

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.pay(size_of(argument))
        try:
            return obj[argument]
        except (TypeError, LookupError):
            pass
        found = self._member(obj, argument) if isinstance(argument, str) else None
        return self.undefined(obj=obj, name=argument) if found is None else found[0]

    def _member(self, obj: Any, name: str) -> tuple[Any] | None:
        """What Python would call an attribute, as a tuple of one; None where there is none."""
        kind = next((kind for kind in (str, dict, list, tuple) if isinstance(obj, kind)), None)
        if kind is not None:
            if method := METHODS[kind].get(name):
                return (Operation(lambda *args, **kwargs: method(self, obj, *args, **kwargs)),)
            if name in getattr(obj, "_fields", ()):  # groupby gives named tuples
                return (getattr(obj, name),)
            return (self.unsafe_undefined(obj, name),) if hasattr(kind, name) else None
        if isinstance(obj, TemplateReference):
            return (obj[name],) if name in self.context.blocks else None
        allowed = (
            not name.startswith("_")
            if isinstance(obj, Namespace)
            else (isinstance(obj, LoopContext) and name in LOOP_NAMES)
            or (isinstance(obj, Cycler) and name in ("current", "next", "reset"))
            or (isinstance(obj, Macro) and name in ("name", "arguments", "catch_kwargs", "catch_varargs", "caller"))
        )
        if not allowed:
            return None
        try:
            value = getattr(obj, name)
        except AttributeError:
            return None
        is_function = isinstance(obj, (LoopContext, Cycler)) and callable(value) and not isinstance(value, Undefined)
        return (Operation(value) if is_function else value,)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        if type(obj) is Step:
            return obj.run(*args)
        variables = {name: kwargs.pop(name) for name in ("_loop_vars", "_block_vars") if name in kwargs}  # Jinja's own
        args, kwargs = tuple(map(kept, args)), {name: kept(value) for name, value in kwargs.items()}
        self.pay(1 + sum(map(size_of, (*args, *kwargs.values()))))
        if type(obj) is Operation:
            return kept(obj.run(*args, **kwargs))
        if isinstance(obj, LoopContext):
            args = tuple(map(self.iterate, args))
        elif not isinstance(obj, (BlockReference, Joiner, Macro, Undefined)):
            raise TypeError(f"a {type(obj).__name__} cannot be called")
        if self._depth >= DEEPEST_CALL:
            raise RecursionError(f"macros call each other more than {DEEPEST_CALL} deep")
        self._depth += 1
        try:
            return context.call(obj, *args, **kwargs, **variables)
        finally:
            self._depth -= 1

    # --- what a template may call ------------------------------------------------------------------------------------

    def _range(self, *bounds: int) -> range:
        numbers = range(*bounds)
        if len(numbers) > LONGEST_RANGE:
            raise OverflowError(f"a range of more than {LONGEST_RANGE} numbers")
        return numbers

    def _dict(self, *pairs: Any, **fields: Any) -> Fields:
        return kept(dict(*pairs, **fields))

    def _raise_exception(self, message: Any) -> None:
        raise Refused(printed(message))

    def _strftime_now(self, format: str) -> str:
        if len(format) > LONGEST_DATE_FORMAT:
            raise ValueError(f"a date's format of more than {LONGEST_DATE_FORMAT} characters")
        return datetime.now().strftime(format)
