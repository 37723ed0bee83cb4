"""Ctrl-C is never lost."""

from __future__ import annotations

import _thread
import sys
import time
from contextlib import suppress
from typing import Any

SOON = 0.01  # seconds; by then Python can raise again


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
