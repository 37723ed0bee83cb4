"""The text of a sampler chain, ``top_k=40,mirostat_v2(tau=5.0,eta=0.1)``, to samplers and their parameters.

    chain    = sampler {"," sampler}
    sampler  = name | name "=" value | name "(" [argument {"," argument}] ")"
    argument = value | name "=" value
    value    = anything without , ( ) = and quotes, or a quoted text with Python's escapes

``name=value`` sets the sampler's first parameter. A decoding strategy is written as one sampler is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringlet.core.errors import RingletError
from ringlet.core.parameters import ParameterOf, parameters_of
from ringlet.core.plugin_manager import PluginManager, Registered, unknown_name

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
TOKEN = re.compile(
    r"""\s*(?:
        (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
      | (?P<mark> [,()=] )
      | (?P<word> [^\s,()='"]+ )
    )""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class SamplerStep:
    """One sampler of a chain: which, and the values its parameters are given.

    instance: where the user gave an object, that to copy for each sequence; nobody calls it.
    """

    sampler: Registered
    arguments: dict[str, Any]
    instance: Any = None

    def __str__(self) -> str:
        """As it is written in a chain; of an object, which may have any arguments, only the name."""
        if self.instance is not None:
            return f"{self.sampler.name}(…)"
        values = ",".join(f"{name}={spec_text(value)}" for name, value in self.arguments.items())
        return f"{self.sampler.name}({values})" if values else self.sampler.name


def parse_sampler_spec(spec: str, plugins: PluginManager) -> tuple[SamplerStep, ...]:
    """Raises RingletError that names the piece of the text that is wrong. An empty text is an empty chain."""
    return parse_steps(spec, "sampler", lambda name: plugins.find("sampler", name))


def parse_steps(spec: str, kind: str, find: Callable[[str], Registered]) -> tuple[SamplerStep, ...]:
    """The same for another kind of class, which `find` finds by its name or raises RingletError."""
    parser = _Parser(spec, kind)
    steps: list[SamplerStep] = []
    while not parser.at_end:
        if steps:
            parser.expect(",")
        name, arguments = parser.step()
        registered = find(name)
        steps.append(SamplerStep(registered, _bind(registered, arguments)))
    return tuple(steps)


def spec_text(value: Any) -> str:
    """A parameter's value as it is written in a chain: parsing gives it back."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if isinstance(value, str) and (text == "none" or not re.fullmatch(r"""[^\s,()='"]+""", text)):
        text = "".join(f"\\{mark}" if mark in '"\\' else mark for mark in text)
        return '"' + "".join(mark if mark.isprintable() else _escaped(mark) for mark in text) + '"'
    return text


def _escaped(mark: str) -> str:
    return mark.encode("unicode_escape", "surrogatepass").decode("ascii")


def _bind(step: Registered, arguments: list[tuple[str | None, str]]) -> dict[str, Any]:
    """Texts to the parameters' values; a text without a name belongs to the parameter at its place."""
    parameters = parameters_of(step.cls)
    by_name = {parameter.name: parameter for parameter in parameters}
    bound: dict[str, Any] = {}
    label = f"{step.kind} {step.name}"
    for place, (name, text) in enumerate(arguments):
        parameter = _parameter_for(step, parameters, by_name, place, name)
        if parameter.name in bound:
            raise RingletError(f"{label}: {parameter.name} is given twice")
        try:
            bound[parameter.name] = parameter.convert(text)
        except RingletError as error:
            raise RingletError(f"{label}: {error}") from None
    missing = [parameter.name for parameter in parameters if parameter.required and parameter.name not in bound]
    if missing:
        raise RingletError(f"{label} needs {', '.join(missing)}: write {step.name}({missing[0]}=…)")
    return bound


def _parameter_for(
    step: Registered, parameters: tuple[ParameterOf, ...], by_name: dict[str, ParameterOf], place: int, name: str | None
) -> ParameterOf:
    label = f"{step.kind} {step.name}"
    if not parameters:
        raise RingletError(f"{label} has no parameters: write {step.name} alone")
    if name is None:
        if place >= len(parameters):
            raise RingletError(f"{label} has {len(parameters)} parameters: {', '.join(by_name)}")
        return parameters[place]
    if name not in by_name:
        raise RingletError(f"{label}: {unknown_name('parameter', name, by_name)}")
    return by_name[name]


class _Parser:
    def __init__(self, spec: str, kind: str) -> None:
        self._spec, self._kind = spec, kind
        self._tokens: list[tuple[str, str]] = []
        at, end = 0, len(spec.rstrip())
        while at < end:
            match = TOKEN.match(spec, at)
            if match is None:
                raise self.error(f"a quotation mark without its partner in {spec[at:].strip()!r}")
            kind = match.lastgroup or ""
            self._tokens.append((kind, match.group(kind)))
            at = match.end()
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._next == len(self._tokens)

    def error(self, text: str) -> RingletError:
        return RingletError(f'{self._kind} "{self._spec}": {text}')

    def step(self) -> tuple[str, list[tuple[str | None, str]]]:
        """The next name and its arguments (name or None, text)."""
        name = self._name()
        if self._take("="):
            return name, [(None, self._value(f"{name}="))]
        arguments: list[tuple[str | None, str]] = []
        if self._take("("):
            while not self._take(")"):
                if arguments:
                    self.expect(",")
                arguments.append(self._argument(name))
        return name, arguments

    def expect(self, mark: str) -> None:
        if not self._take(mark):
            raise self.error(f"a {mark} is needed {self._where()}")

    def _argument(self, step: str) -> tuple[str | None, str]:
        follows = self._tokens[self._next + 1 : self._next + 2]
        if follows == [("mark", "=")]:
            name = self._name()
            self.expect("=")
            return name, self._value(f"{name}=")
        return None, self._value(f"{step}(")

    def _name(self) -> str:
        kind, text = self._peek()
        if kind != "word" or not NAME.fullmatch(text):
            raise self.error(f"a {self._kind}'s name is needed {self._where()}")
        self._next += 1
        return text

    def _value(self, after: str) -> str:
        kind, text = self._peek()
        if kind not in ("word", "quoted"):
            raise self.error(f"a value is needed after {after}")
        self._next += 1
        if kind == "word":
            return text
        try:
            return ast.literal_eval(text.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0"))
        except (SyntaxError, ValueError):
            raise self.error(f"{text} is no quoted text") from None

    def _take(self, mark: str) -> bool:
        if self._peek() != ("mark", mark):
            return False
        self._next += 1
        return True

    def _peek(self) -> tuple[str, str]:
        return ("end", "") if self.at_end else self._tokens[self._next]

    def _where(self) -> str:
        return "at the end" if self.at_end else f"before {self._tokens[self._next][1]!r}"
