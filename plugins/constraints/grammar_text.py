"""A JSON schema, a regular expression or a Lark grammar, from a file or as it stands, to what llguidance reads.

Each becomes a Lark grammar in llguidance's dialect. Forcing is off in all of them: llguidance would otherwise allow a
single way to split a text that can be only one, and the mask would say less than which tokens obey.
"""

from __future__ import annotations

import json
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ringlet.core.errors import RingletError, cause_of

MOST_BYTES = 1 << 18  # of a grammar: what is built of it may need a thousand times as much
NO_FORCING = '\n%llguidance {"no_forcing": true}\n'
START_RULE = re.compile(r"^\s*start\s*:", re.MULTILINE)
_from_pipes: dict[tuple[int, int], bytes] = {}
COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True)
class GrammarText:
    """name: what errors call it, a file's name if it is one. lark: in llguidance's dialect.

    has_lines: the lines of `lark` are those that the user wrote.
    """

    name: str
    lark: str
    has_lines: bool = False


def json_schema_text(schema: str, any_whitespace: bool) -> GrammarText:
    """schema: a file, or the schema itself where it begins with "{". Raises RingletError for what is no JSON schema."""
    name, text = ("the schema", schema) if schema.lstrip().startswith("{") else (schema, _read(schema))
    _check_size(name, text)
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise RingletError(f"{name}: nested too deeply") from None
    except ValueError as error:
        raise RingletError(f"{name}: no JSON: {error}") from None
    if value is True:
        value = {}
    if not isinstance(value, dict):
        raise RingletError(f'{name}: a JSON schema is an object, such as {{"type": "object"}}')
    return GrammarText(name, "start: %json " + json.dumps(_with_spacing(name, value, any_whitespace)) + NO_FORCING)


def regex_text(pattern: str) -> GrammarText:
    """The whole completion matches the pattern."""
    from llguidance import LLMatcher

    _check_size("the pattern", pattern)
    (rule,) = json.loads(LLMatcher.grammar_from_regex(pattern))["grammars"]  # which escapes it as Lark needs it
    return GrammarText("the pattern", rule["lark_grammar"] + NO_FORCING)


def lark_text(grammar: str) -> GrammarText:
    """grammar: a file, or the grammar itself where it has a rule `start`."""
    name, text = ("the grammar", grammar) if START_RULE.search(grammar) else (grammar, _read(grammar))
    _check_size(name, text)
    return GrammarText(name, text + NO_FORCING, has_lines=True)


def _read(path: str) -> str:
    try:
        data = _beginning(Path(path).expanduser())
    except OSError as error:
        raise RingletError(f"{path}: {cause_of(error)}") from None
    except ValueError:
        raise RingletError(f"{path!r}: no path of a file") from None
    _check_size(path, data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RingletError(f"{path!r}: no UTF-8 text") from None


def _beginning(path: Path) -> bytes:
    """No more of it than a grammar may have, and a byte: a device may have no end.

    A pipe gives its text once, and each sequence reads its grammar for itself: so that is kept.
    """
    status = path.stat()
    pipe = (status.st_dev, status.st_ino)
    if pipe in _from_pipes:
        return _from_pipes[pipe]
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if stat.S_ISFIFO(status.st_mode):
        _from_pipes[pipe] = data
    return data


def _check_size(name: str, text: str | bytes) -> None:
    data = text.encode(errors="replace") if isinstance(text, str) else text
    if len(data) > MOST_BYTES:
        raise RingletError(f"{name}: larger than {MOST_BYTES >> 10} KiB")


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _with_spacing(name: str, schema: dict[str, Any], any_whitespace: bool) -> dict[str, Any]:
    """The schema, with llguidance's own key that says how the result is spaced: as `json.dumps` does, or anyhow."""
    own = schema.get("x-guidance", {})
    if not isinstance(own, dict):
        raise RingletError(f"{name}: x-guidance is no object")
    return schema if any_whitespace else {**schema, "x-guidance": {**COMPACT, **own}}
