"""What a run finds, printed as it comes and kept for JSON; and how long each part of the run may take."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Report:
    """seconds: that the whole run may take; then it is cut off, with what has been found so far in the file."""

    def __init__(self, seconds: float, json_file: Path | None) -> None:
        self.begun, self._json_file = time.monotonic(), json_file
        self.parts: dict[str, dict[str, Any]] = {}
        self.faults: list[str] = []
        self._timer = threading.Timer(seconds, self._cut_off, (seconds,))
        self._timer.daemon = True
        self._timer.start()

    def run(self, title: str, seconds: float, work: Callable[[Part], None]) -> None:
        """A part that should take no longer. What it raises is told, and the next part goes on."""
        print(f"\n## {title}\n", flush=True)
        part = Part(self, self.parts.setdefault(title, {}), seconds)
        try:
            work(part)
        except Exception as error:  # whatever fails on a GPU that nobody has tried: the rest is still worth having
            part.wrong(f"{title}: {type(error).__name__}: {error}")
        part.say(f"{part.elapsed:.1f} s")
        self.write()

    def write(self) -> None:
        if self._json_file is None:
            return
        text = json.dumps({"seconds": self.elapsed, "faults": self.faults, "parts": self.parts}, indent=1, default=str)
        unfinished = self._json_file.with_name(self._json_file.name + ".part")
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(self._json_file)

    def end(self) -> int:
        """The exit code: 0 where all is right, else 1."""
        self._timer.cancel()
        print(f"\n{len(self.faults)} faults, {self.elapsed:.0f} s", flush=True)
        self.write()
        return 1 if self.faults else 0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.begun

    def _cut_off(self, seconds: float) -> None:
        """A kernel that never ends cannot be interrupted otherwise."""
        self.faults.append(f"cut off after {seconds:.0f} s")
        print(f"\n{self.faults[-1]}", flush=True)
        self.write()
        sys.stdout.flush()
        os._exit(1)


class Part:
    """One part of a run."""

    def __init__(self, report: Report, found: dict[str, Any], seconds: float) -> None:
        self._report, self.found, self._seconds, self._begun = report, found, seconds, time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begun

    def is_late(self) -> bool:
        return self.elapsed > self._seconds

    def say(self, text: str) -> None:
        """A line of its own."""
        print(f"\n{text}", flush=True)
        self.found.setdefault("said", []).append(text)

    def wrong(self, text: str) -> None:
        self._report.faults.append(text)
        self.say(f"**{text}**")

    def fact(self, name: str, value: object) -> None:
        print(f"- {name}: {shown(value)}", flush=True)
        self.found.setdefault("facts", {})[name] = value

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self.fact(f"{what}, seconds", round(time.monotonic() - begin, 2))

    def table(self, *head: str) -> Table:
        print(f"\n| {' | '.join(head)} |\n| --- |{' --: |' * (len(head) - 1)}", flush=True)
        rows: list[dict[str, Any]] = []
        self.found.setdefault("tables", []).append(rows)
        return Table(head, rows)


class Table:
    """A Markdown table whose rows are printed one by one."""

    def __init__(self, head: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
        self._head, self._rows = head, rows

    def row(self, *values: object) -> None:
        self._rows.append(dict(zip(self._head, values, strict=True)))
        print(f"| {' | '.join(shown(value) for value in values)} |", flush=True)


class Share(float):
    """A number that is shown in per cent."""


def shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, Share):
        return f"{value:.0%}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
