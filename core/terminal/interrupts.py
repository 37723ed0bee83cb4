"""Ctrl-C is never lost, and always quiet."""

from __future__ import annotations

import _thread
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

SOON = 0.01  # seconds; by then Python can raise again
INTERRUPTED = 130  # the exit code

_are_awaited = False
_one_came = False


def keep_interrupts() -> None:
    """Let an interrupt that comes where Python can raise nothing (in a finalizer, say) come again right after it."""
    pass_on = sys.unraisablehook

    def again(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            pass_on(unraisable)
            return
        with suppress(RuntimeError):  # Python is ending already
            _thread.start_new_thread(interrupt_soon, ())

    sys.unraisablehook = again


def interrupt_soon() -> None:
    """In a thread of its own, since the main one would raise it here and now."""
    time.sleep(SOON)
    _thread.interrupt_main()


@contextmanager
def awaited() -> Iterator[None]:
    """Within it an interrupt is a KeyboardInterrupt, which the caller turns into the exit code."""
    global _are_awaited
    before, _are_awaited = _are_awaited, True
    try:
        yield
    finally:
        _are_awaited = before


@contextmanager
def quiet_elsewhere() -> Iterator[None]:
    """Within it an interrupt that is not awaited ends the process with the exit code: click would say "Aborted!"."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or not _is_main_thread():
        yield
        return
    global _one_came
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _one_came = False


def raise_lost_interrupt() -> None:
    """KeyboardInterrupt, where one came and the work goes on all the same: compiled code that a library calls Python
    from may take it for an error of its own and drop it."""
    if _one_came:
        raise KeyboardInterrupt


def _is_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def _interrupt(number: int, frame: Any) -> None:
    global _one_came
    _one_came = True
    if _are_awaited:
        raise KeyboardInterrupt
    sys.exit(INTERRUPTED)
