"""JSON files and headers that hold an object; they are hostile until checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ringlet.core.errors import FormatError, cause_of
from ringlet.core.formats.file_bytes import check_regular

LARGEST_FILE = 1 << 24  # bytes
# A value takes up to 88 bytes in memory, a list or an object more. The largest models' headers hold half of this.
MOST_VALUES = 5 << 19
BYTES_A_VALUE = 32
WEIGHT_OF_CONTAINERS = 3


def read_json_object(file: Path, largest: int = LARGEST_FILE) -> dict[str, Any]:
    """What the file holds. Raises FormatError for a file that cannot be read, is larger, or holds no object."""
    try:
        check_regular(file)
        if file.stat().st_size > largest:
            raise FormatError(f"{file}: more than {largest >> 20} MiB: it is not a configuration")
        data = file.read_bytes()
    except FileNotFoundError:
        raise FormatError(f"{file}: no such file or directory") from None
    except OSError as error:
        raise FormatError(f"{file}: cannot be read: {cause_of(error)}") from None
    return parse_json_object(data, str(file))


def parse_json_object(data: bytes, what: str) -> dict[str, Any]:
    """The object that UTF-8 text is, in which no name appears twice. what: how the FormatError begins otherwise."""
    check_number_of_values(data, what)
    try:
        content = json.loads(data.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what}: not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise FormatError(f"{what}: a JSON object is needed")
    return content


def check_number_of_values(data: bytes, what: str, most: int = MOST_VALUES, bytes_a_value: int = BYTES_A_VALUE) -> None:
    """Raises FormatError for JSON that would take more memory than a model's file should, before it is parsed.

    most: values of a small file. bytes_a_value: of a larger file, each may then hold another value for so many.
    """
    n_values = data.count(b",") + WEIGHT_OF_CONTAINERS * (data.count(b"[") + data.count(b"{"))
    if n_values > most + len(data) // bytes_a_value:
        raise FormatError(f"{what}: it holds so many values that they would take too much memory")


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name appears twice")
    return content
