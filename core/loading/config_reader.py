"""Reads a model's configuration, a JSON object or GGUF metadata, and answers for every key of it.

A value of the wrong kind, a missing key, and a key that nobody read are each refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from reprlib import repr as short
from typing import Any, NoReturn

import numpy as np

from ringlet.core.config import LARGEST_SIZE
from ringlet.core.errors import FormatError

# Far beyond any model; what backends and formulas make of two such numbers still fits float32, or float64.
SMALLEST_NUMBER, LARGEST_NUMBER = 1e-30, 1e30
REQUIRED: Any = object()


class ConfigReader:
    """Typed access to the keys of one configuration; a null counts as a key that is not there.

    file: named in errors. ignored: keys, dotted where nested, that the user asked to treat as not there.
    prefix: what stands before each key in errors and in `ignored`.
    """

    def __init__(self, values: Mapping[str, Any], file: str, ignored: Collection[str] = (), prefix: str = "") -> None:
        self.file, self.prefix, self._ignored = file, prefix, ignored
        self._values = {key: value for key, value in values.items() if prefix + key not in ignored}
        self._read: set[str] = set()
        self._sections: list[ConfigReader] = []

    def has(self, key: str) -> bool:
        """Whether the key is there with a value; does not count as reading it."""
        return self._values.get(key) is not None

    def is_null(self, key: str) -> bool:
        """Whether the key is there and says null, which some models tell from a key that is not there."""
        return key in self._values and self._values[key] is None

    def value(self, key: str, default: Any = REQUIRED) -> Any:
        self._read.add(key)
        value = self._values.get(key)
        if value is None and default is REQUIRED:
            raise FormatError(f"{self.file}: {self.prefix}{key} is missing")
        return default if value is None else value

    def whole(self, key: str, default: Any = REQUIRED) -> Any:
        """A whole number from 1; where GGUF gives one for each layer, they must agree."""
        value = self.value(key, default)
        if isinstance(value, (list, tuple, np.ndarray)) and len(value) and not np.ndim(value[0]):
            value = value[0] if all(not np.ndim(item) and item == value[0] for item in value) else value
        if value is default:
            return value
        if not _is_number(value, (int, np.integer)) or not 1 <= value < LARGEST_SIZE:
            self.refuse(key, f"a whole number from 1 to {LARGEST_SIZE - 1} is needed")
        return int(value)

    def number(self, key: str, default: Any = REQUIRED) -> Any:
        """A positive number within SMALLEST_NUMBER and LARGEST_NUMBER."""
        value = self.value(key, default)
        if value is default:
            return value
        if not _is_number(value, (int, float, np.number)) or not SMALLEST_NUMBER <= value <= LARGEST_NUMBER:
            self.refuse(key, f"a number from {SMALLEST_NUMBER:g} to {LARGEST_NUMBER:g} is needed")
        return float(value)

    def flag(self, key: str, default: Any = REQUIRED) -> Any:
        value = self.value(key, default)
        if value is not default and not isinstance(value, (bool, np.bool_)):
            self.refuse(key, "true or false is needed")
        return value

    def choice(self, key: str, choices: Mapping[str, Any], default: Any = REQUIRED) -> Any:
        """What `choices` gives for the text that stands there."""
        value = self.value(key, default)
        if value is default:
            return value
        if not isinstance(value, str) or value not in choices:
            self.refuse(key, f"known are {', '.join(choices)}")
        return choices[value]

    def section(self, key: str) -> ConfigReader | None:
        """The object that stands under the key, None where there is none; its keys are accounted for with ours."""
        value = self.value(key, None)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.refuse(key, "an object is needed")
        section = ConfigReader(value, self.file, self._ignored, f"{self.prefix}{key}.")
        self._sections.append(section)
        return section

    def refuse(self, key: str, need: str) -> NoReturn:
        """Raises FormatError: the key's value is not what is needed."""
        value = in_a_line(self._values[key]) if key in self._values else "missing"
        raise FormatError(f"{self.file}: {self.prefix}{key} is {value}: {need}")

    def refuse_unread(self, harmless: Collection[str]) -> None:
        """Raises FormatError for a key that was not read, has a value, and matches none of the harmless patterns."""
        for key, value in self._values.items():
            if key in self._read or _is_neutral(value) or any(fnmatchcase(key, pattern) for pattern in harmless):
                continue
            name = self.prefix + key
            name = name if name.isprintable() else repr(name)
            raise FormatError(
                f"{self.file}: {name} is {in_a_line(value)}: it may change the result and is not supported "
                f"(--ignore-config-key {name} goes on without it)"
            )
        for section in self._sections:
            section.refuse_unread(harmless)


def in_a_line(value: Any) -> str:
    """A value of any size as errors show it."""
    return short(value.tolist() if isinstance(value, np.ndarray) else value)


def _is_number(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and not isinstance(value, (bool, np.bool_))


def _is_neutral(value: Any) -> bool:
    """Null, false, 0 and an empty object or list say that something is not there."""
    if value is None or value is False:
        return True
    if _is_number(value, (int, float, np.number)):
        return value == 0
    return isinstance(value, (dict, list)) and not value
