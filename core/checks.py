"""What the arguments of a pipeline may be; each check raises RingletError in one line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ringlet.core.errors import RingletError

LARGEST_COUNT = (1 << 31) - 1


def is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_count(name: str, value: Any, minimum: int = 0, maximum: int = LARGEST_COUNT) -> None:
    if not is_whole(value) or not minimum <= value <= maximum:
        raise RingletError(f"{name} is {value!r}: a whole number from {minimum} to {maximum} is needed")


def check_ring_options(context: Any, sinks: Any, overflow: Any, chunk: Any) -> None:
    """What can be said of them before the model is known. context: None for the usual one."""
    if context is not None:
        check_count("context", context, minimum=1)
    check_count("sinks", sinks)
    check_count("chunk", chunk, minimum=1)
    if overflow not in ("stop", "slide"):
        raise RingletError(f'overflow is {overflow!r}: "stop" or "slide" is needed')
    if context is not None and sinks >= context:
        raise RingletError(f"sinks is {sinks}: from 0 to context - 1 ({context - 1}) are possible")


def check_text(prompt: str) -> None:
    if not prompt:
        raise RingletError("the prompt is empty: give at least one character")


def is_list_of_prompts(prompt: Any) -> bool:
    """Whether it is a list of texts or of lists of ids, perhaps an empty one, not one text or one list of ids."""
    if isinstance(prompt, str):
        return False
    check_sequence(prompt)
    return (isinstance(prompt, (list, tuple)) and not prompt) or any(
        isinstance(part, (str, Sequence, np.ndarray)) for part in prompt
    )


def checked_ids(ids: Any) -> list[int]:
    """Token ids as plain ints, at least one."""
    check_sequence(ids)
    wrong = next((token_id for token_id in ids if not is_whole(token_id)), None)
    if wrong is not None:
        raise RingletError(f"the prompt holds {wrong!r}: a text or token ids are needed")
    if len(ids) == 0:
        raise RingletError("the prompt is empty: give at least one token")
    return [int(token_id) for token_id in ids]


def check_sequence(prompt: Any) -> None:
    listed = isinstance(prompt, Sequence) and not isinstance(prompt, (str, bytes))
    if not listed and not (isinstance(prompt, np.ndarray) and prompt.ndim > 0):
        raise RingletError(f"the prompt is of type {type(prompt).__name__}: a text or token ids are needed")


def checked_stops(stop: str | Iterable[str]) -> tuple[str, ...]:
    stops = one_or_more(stop)
    for text in stops:
        if not isinstance(text, str) or not text:
            raise RingletError(f"stop holds {text!r}: a text that is not empty is needed")
    return stops


def one_or_more(values: Any) -> tuple[Any, ...]:
    """Several values, or a lone one, as a tuple."""
    lone = isinstance(values, (str, os.PathLike)) or not isinstance(values, Iterable)
    return (values,) if lone else tuple(values)
