"""Units compiled in several processes at once: this one, and helpers that are handed one unit after the other.

A helper reads a unit's name in a line and writes a line of JSON, the symbol and the size, and then the object code.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO

Keep = Callable[[str, str, bytes], None]


def compile_together(names: Sequence[str], n_processes: int, keep: Keep, tell: Callable[[str], None]) -> None:
    """Compile the units, the first ones first; `keep` gets each one's name, symbol and code, from any thread.

    tell: is told which unit is begun. A helper that fails costs its time and no more.
    """
    work = _Work(names, keep, tell)
    helpers = [_Helper(work) for _ in range(min(n_processes, len(names)) - 1)]
    try:
        work.compile_here()
        for helper in helpers:
            helper.join()
        work.compile_here()  # what a helper has left
    finally:
        work.waiting.clear()
        for helper in helpers:
            helper.end()


class _Work:
    """The units that nobody has begun yet."""

    def __init__(self, names: Sequence[str], keep: Keep, tell: Callable[[str], None]) -> None:
        self.waiting, self.keep, self._n, self._tell = deque(names), keep, len(names), tell

    def take(self) -> str | None:
        """The next unit's name; None if there is none."""
        try:
            name = self.waiting.popleft()  # no two threads get the same
        except IndexError:
            return None
        self._tell(f"compiling kernels for this CPU, once: {name} ({self._n - len(self.waiting)} of {self._n})")
        return name

    def compile_here(self) -> None:
        from ringlet.plugins.backends.cpu.units import compile_unit  # imports Numba

        while (name := self.take()) is not None:
            self.keep(name, *compile_unit(name))


class _Helper(threading.Thread):
    """A process beside this one, and the thread that hands it work."""

    def __init__(self, work: _Work) -> None:
        super().__init__(name="ringlet-compile", daemon=True)
        self._work = work
        command = [sys.executable, "-m", "ringlet.plugins.backends.cpu.compile_together"]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        except OSError:
            self._process = None
        self.start()

    _process: subprocess.Popen[bytes] | None

    def run(self) -> None:
        while self._process is not None and (name := self._work.take()) is not None:
            try:
                symbol, code = self._ask(self._process, name)
            except (OSError, ValueError, TypeError):  # it has died, or been ended
                self._work.waiting.append(name)
                return
            self._work.keep(name, symbol, code)

    def _ask(self, process: subprocess.Popen[bytes], name: str) -> tuple[str, bytes]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(name.encode() + b"\n")
        process.stdin.flush()
        symbol, size = json.loads(process.stdout.readline())
        code = process.stdout.read(size)
        if len(code) != size:
            raise ValueError("the code is cut short")
        return symbol, code

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self.join()
            with suppress(OSError):  # a pipe that still holds something
                self._process.__exit__(None, None, None)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """What a helper does."""
    from ringlet.plugins.backends.cpu.units import compile_unit

    for line in requests:
        symbol, code = compile_unit(line.decode().strip())
        answers.write(json.dumps([symbol, len(code)]).encode() + b"\n" + code)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
