"""What `bench` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringlet.core.measurement.benchmark import Result
from ringlet.core.pipeline import Pipeline
from ringlet.core.terminal.text_tables import table_lines

HEAD = ("TEST", "DEPTH", "BATCH", "TOKENS/S", "±", "OF LIMIT")


def benchmark_rows(pipe: Pipeline, results: Sequence[Result], repeat: int) -> list[dict[str, Any]]:
    """One object a test, ready for JSON."""
    return [
        {
            "test": result.test.name,
            "depth": result.test.depth,
            "batch": result.test.batch,
            "tokens_per_second": result.tokens_per_second,
            "stdev": result.spread,
            "share_of_limit": result.share_of_limit,
            "model": pipe.model.name,
            "backend": pipe.backend.name,
            "threads": pipe.backend.threads,
            "repeat": repeat,
        }
        for result in results
    ]


def benchmark_lines(results: Sequence[Result]) -> list[str]:
    """The same as a table, numbers to the right."""
    rows = [list(HEAD)]
    for result in results:
        test, share = result.test, result.share_of_limit
        numbers = [f"{result.tokens_per_second:.1f}", f"{result.spread:.1f}", "–" if share is None else f"{share:.0%}"]
        rows.append([test.name, str(test.depth), str(test.batch), *numbers])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [[row[0], *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))] for row in rows]
    return table_lines(aligned)
