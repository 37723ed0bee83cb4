"""Grammars are built with care: a hostile one may nest without end, or take forever."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TypeVar

from ringlet.core.errors import RingletError

Result = TypeVar("Result")
LONGEST_SECONDS = 10.0
STACK_BYTES = 1 << 28  # llguidance goes as deep as a grammar's rules name one another; about 5 kB for each

_stack_size_lock = threading.Lock()  # it is one setting for the whole process


def build(call: Callable[[], Result], name: str) -> Result:
    """What the call returns, run in a thread with a deep stack. Raises RingletError, naming the grammar, for too long.

    A thread cannot be stopped: it goes on in the background until it is done or the process ends.
    """
    results: list[Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as failure:
            failures.append(failure)

    thread = _start(run)
    thread.join(LONGEST_SECONDS)
    if failures:
        raise failures[0]
    if not results:
        raise RingletError(f"{name}: not ready after {LONGEST_SECONDS:g} seconds: a simpler one is needed")
    return results[0]


def _start(run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name="ringlet-grammar", daemon=True)
    with _stack_size_lock:
        usual = threading.stack_size()
        try:
            threading.stack_size(STACK_BYTES)
            thread.start()
        finally:
            threading.stack_size(usual)
    return thread


LONGEST_TEXT = 300  # characters
PLACE = re.compile(r"^(?:at )?(\d+)\((\d+)\): ")
FRAME = re.compile(r"^\s*(\d+ \|.*|\^+)?$")  # a line of the grammar with its number, and marks below it
STATE = "<state>"


def error_text(message: str, is_file: bool) -> str:
    """llguidance's message in one line, without lines of the grammar and the parser's state.

    is_file: the lines and columns that it speaks of are those of what the user wrote.
    """
    lines = [line for line in message.partition(STATE)[0].splitlines() if not FRAME.match(line)]
    text = PLACE.sub(r"line \1, column \2: " if is_file else "", " ".join(" ".join(lines).split()))
    for start in ("failed to compile JSON schema: ", "panic: "):
        text = text.removeprefix(start)
    reason = next((line for line in lines if line.startswith("error: ")), None)  # of a regular expression's, at the end
    if reason is not None:
        text = f"{text.partition(' ')[0]} regular expression: {reason.removeprefix('error: ')}"
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
