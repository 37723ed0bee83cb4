"""What `tokenizers` would do with a tokenizer.json at any cost in memory is refused before it does it."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error
from math import prod
from typing import Any

from ringlet.core.errors import FormatError
from ringlet.core.formats.json_object import check_number_of_values

# Keys are looked for in the text as it stands, since to parse it takes a second; so no letter of a key may be escaped.
ESCAPED_LETTER = re.compile(rb"(?<!\\)(?:\\\\)*\\u00(?:4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9a])", re.IGNORECASE)
CHARACTER_MAP = re.compile(rb'"precompiled_charsmap"\s*:\s*"([^"]*)"')
# The library takes far more for each value than Python. Gemma's 262,144 tokens and 514,906 merges, indented as the
# library saves them, count as 2.9 million in some 30 MB and fit; without indentation they do not.
MOST_VALUES, BYTES_A_VALUE = 1 << 20, 16
MOST_GROWTH = 4096  # times; replacing spaces by "▁" is 1


def check_text(data: bytes, what: str) -> None:
    """Before the library reads it. Raises FormatError for too many values, or sizes that the file does not hold."""
    try:
        check_number_of_values(data, what, MOST_VALUES, BYTES_A_VALUE)
    except FormatError as error:
        raise FormatError(f"{error}; a large vocabulary may be indented, as `tokenizers` saves it") from None
    if ESCAPED_LETTER.search(data):
        raise FormatError(f"{what}: it holds letters that are escaped without need: save it again")
    for found in CHARACTER_MAP.finditer(data):
        try:
            characters = b64decode(found[1], validate=True)
        except Error:
            continue  # the library says what is wrong with it
        if characters and int.from_bytes(characters[:4], "little") > len(characters):
            raise FormatError(f"{what}: precompiled_charsmap is cut short or damaged")


def check_growth(library: Any, what: str) -> None:
    """After it. Raises FormatError for a normalizer or decoder that makes a text very much longer."""
    for part in (library.normalizer, library.decoder):
        if part is not None and growth(json.loads(part.__getstate__())) > MOST_GROWTH:
            raise FormatError(f"{what}: its {type(part).__name__} makes a text over {MOST_GROWTH} times longer")


def growth(step: dict[str, Any]) -> float:
    """How many times longer a text may become."""
    inner = step.get("normalizers") or step.get("decoders")
    if inner:
        return prod(growth(one) for one in inner)
    if step.get("type") != "Replace":
        return 1.0
    length = len(step["content"])
    if not step["pattern"].get("String"):  # a pattern may match before every character
        return 1.0 + length
    return max(1.0, length / len(step["pattern"]["String"]))
