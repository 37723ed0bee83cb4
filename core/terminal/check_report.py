"""What `plugins check` shows of the outcomes of checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ringlet.core.terminal.columns import painted, wrapped

if TYPE_CHECKING:
    from ringlet.core.plugin_manager import Registered
    from ringlet.testing.checks import Outcome

SHOWN = {"ok": "ok", "failed": "FAILED", "skipped": "skipped"}
COLOURS = {"ok": "green", "failed": "red", "skipped": "yellow"}
RESULT_WIDTH = max(map(len, SHOWN.values())) + 2
Checked = tuple["Registered", Sequence["Outcome"]]


def report_lines(registered: Registered, outcomes: Sequence[Outcome], width: int) -> list[str]:
    """A line for each check, below it the reason where it is not ok, and the sum at the end."""
    lines = [f"{registered.kind} {registered.label}"]
    indent = " " * (RESULT_WIDTH + 4)
    for outcome in outcomes:
        shown = painted(SHOWN[outcome.status], fg=COLOURS[outcome.status])
        lines.append(f"  {shown}{' ' * (RESULT_WIDTH - len(SHOWN[outcome.status]))}{outcome.check}")
        lines += [indent + line for line in wrapped(outcome.reason, width - len(indent))]
    return [*lines, sum_text(outcomes)]


def sum_text(outcomes: Iterable[Outcome]) -> str:
    """ "21 checks: 19 ok, 1 failed, 1 skipped"."""
    counts: Counter[str] = Counter(outcome.status for outcome in outcomes)
    parts = [f"{counts[status]} {status}" for status in SHOWN if counts[status]]
    return f"{sum(counts.values())} checks: {', '.join(parts) or 'none'}"


def report_rows(checked: Iterable[Checked]) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [
        {
            "kind": registered.kind,
            "name": registered.name,
            "origin": registered.origin,
            "version": registered.version,
            "passed": passed(outcomes),
            "checks": [
                {"name": outcome.check, "status": outcome.status, "reason": outcome.reason} for outcome in outcomes
            ],
        }
        for registered, outcomes in checked
    ]


def passed(outcomes: Iterable[Outcome]) -> bool:
    return all(outcome.status != "failed" for outcome in outcomes)
