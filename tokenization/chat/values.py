"""The values that a chat template works on: plain data that cannot change, and that knows how much it is.

A template may put one list into many others, so that it prints far more than the memory it takes. The size of a value
is therefore that of its whole tree, and whoever works on a value pays that first (`sandbox.ChatEnvironment.pay`): no
operation takes longer than what has been paid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any, NamedTuple

from jinja2 import Undefined

from ringlet.core.errors import RingletError
from ringlet.tokenization.chat.text import ANSWER, MESSAGE, TEMPLATE, all_from, highest_origin

CHARACTERS = 16  # of a text that are worked on in one step's time
DEEPEST = 64  # lists in lists
LONGEST_ROLE = 64  # characters
REASONING = ("reasoning_content", "thinking", "reasoning")  # one thing, under the names that templates know


class Facts(NamedTuple):
    """size: steps that it takes to look at all of a value. origin: the highest of its texts. depth: lists in lists."""

    size: int = 1
    origin: int = TEMPLATE
    depth: int = 0


class Items(list):
    """A list that stays as it is, with its facts."""

    __slots__ = ("facts",)

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)
        self.facts = facts_of_all(self)


class Row(tuple):
    """A tuple with its facts."""

    facts: Facts

    def __new__(cls, values: Iterable[Any]) -> Row:
        row = super().__new__(cls, values)
        row.facts = facts_of_all(row)
        return row


class Fields(dict):
    """A dict that stays as it is, with its facts."""

    __slots__ = ("facts",)

    def __init__(self, values: Mapping[Any, Any]) -> None:
        super().__init__(values)
        self.facts = facts_of_all([*self.keys(), *self.values()])


for _kind, _name in ((Items, "list"), (Row, "tuple"), (Fields, "dict")):  # what errors call them
    _kind.__name__, _kind.__module__ = _name, "builtins"


def facts_of(value: Any) -> Facts:
    if isinstance(value, str):
        return Facts(size_of(value), highest_origin(value))
    if isinstance(value, (Items, Row, Fields)):
        return value.facts
    if isinstance(value, (list, tuple)):
        return facts_of_all(value)
    if isinstance(value, dict):
        return facts_of_all([*value.keys(), *value.values()])
    return Facts()


def facts_of_all(values: Iterable[Any]) -> Facts:
    """The facts of a container of these values. Raises ValueError where lists are nested too deep."""
    size, origin, depth = 1, TEMPLATE, 0
    for value in values:
        facts = facts_of(value)
        size, origin, depth = size + facts.size, max(origin, facts.origin), max(depth, facts.depth)
    if depth >= DEEPEST:
        raise ValueError(f"lists and dicts are nested more than {DEEPEST} deep")
    return Facts(size, origin, depth + 1)


def size_of(value: Any) -> int:
    return 1 + len(value) // CHARACTERS if isinstance(value, str) else facts_of(value).size


def kept(value: Any) -> Any:
    """The value, a container as one with its facts. Raises TypeError for one that holds what is no plain data."""
    if isinstance(value, (Items, Row, Fields)) or not isinstance(value, (list, tuple, dict)):
        return value
    inside = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    for item in inside:
        if not isinstance(item, (str, Number, list, tuple, dict, range, Undefined)) and item is not None:
            raise TypeError(f"a list or dict cannot hold a {type(item).__name__}")
    return Fields(value) if isinstance(value, dict) else Items(value) if isinstance(value, list) else Row(value)


def printed(value: Any) -> str:
    """What a template prints for a value."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple, dict)):
        return all_from(str(value), facts_of(value).origin)
    if value is None or isinstance(value, (Number, range, Undefined)):
        return str(value)
    return f"<{type(value).__name__}>"


def checked_messages(messages: Any) -> Items:
    """Messages as templates get them: each text knows that it comes from a message; keys without a value are gone.

    A role of letters, digits, "_" and "-" is a word of the template's, which may make a control token of it.
    Raises RingletError for what is no list of dicts with a "role".
    """
    if not isinstance(messages, (list, tuple)) or not messages:
        raise RingletError('the messages must be a list of dicts such as {"role": "user", "content": "Hello"}')
    return Items(_checked_message(message, f"messages[{index}]") for index, message in enumerate(messages))


def _checked_message(message: Any, where: str) -> Fields:
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(role, str):
        raise RingletError(f'{where} must be a dict with a "role", which is a text')
    if not isinstance(message.get("content", ""), (str, list, tuple, type(None))):
        raise RingletError(f"{where}: the content must be a text, or a list of parts")
    fields = {key: value for key, value in message.items() if value is not None}
    reasoning = next((fields[key] for key in REASONING if key in fields), None)
    if reasoning is not None:
        fields = {"thinking": reasoning, **fields, "reasoning_content": reasoning}
    data = plain_data(fields, ANSWER if role == "assistant" else MESSAGE, where)
    is_word = len(role) <= LONGEST_ROLE and role.isascii() and role.replace("_", "").replace("-", "").isalnum()
    return Fields({**data, "role": str.__str__(role)}) if is_word else data


def plain_data(value: Any, origin: int, where: str, depth: int = 0) -> Any:
    """A copy of texts, numbers, lists and dicts, every text with the origin. Raises RingletError for anything else."""
    if isinstance(value, str):
        return all_from(value, origin)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    if depth >= DEEPEST - 1:
        raise RingletError(f"{where}: lists and dicts are nested more than {DEEPEST} deep")
    if isinstance(value, Mapping):
        pairs = {plain_data(key, origin, where, depth + 1): item for key, item in value.items()}
        return Fields({key: plain_data(item, origin, f"{where}[{key!r}]", depth + 1) for key, item in pairs.items()})
    if isinstance(value, (list, tuple)):
        items = (plain_data(item, origin, f"{where}[{at}]", depth + 1) for at, item in enumerate(value))
        return Items(items) if isinstance(value, list) else Row(items)
    raise RingletError(f"{where} is of type {type(value).__name__}: texts, numbers, lists and dicts are possible")
