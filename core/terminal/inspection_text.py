"""What `inspect` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ringlet.core.measurement.inspection import SIZES
from ringlet.core.readable import visible
from ringlet.core.terminal.text_tables import size_text, table_lines


def inspection_lines(found: Mapping[str, Any]) -> list[str]:
    """The lines for what `inspect_model` found."""
    ring = found["ring"]
    sinks = f", {ring['sinks']} sinks" if ring["sinks"] else ""
    memory = ", ".join(f"{size_text(n_bytes)} in {dtype}" for dtype, n_bytes in ring["bytes"].items())
    facts = [
        ["model", found["name"]],
        ["architecture", found["architecture"]],
        *([name, str(found[name])] for name in SIZES),
        ["windows", windows_text(found["windows"])],
        ["tokens", str(found["n_tokens"])],
        ["begins a text", "none" if found["bos"] is None else token_text(found["bos"])],
        ["end a text", ", ".join(map(token_text, found["eos"])) or "none"],
        ["chat template", templates_text(found["chat_templates"])],
        [
            "weights",
            f"{found['n_weights']:,} in {size_text(found['weight_bytes'])}, {found['bits_per_weight']:.2f} bits each",
        ],
        ["ring", f"{ring['context']} tokens, overflow {ring['overflow']}{sinks}: {memory}"],
    ]
    weights = [["WEIGHT", "SHAPE", "COUNT", "FORMAT", "SIZE"]]
    for name, group in found["weights"].items():
        label = f"{name} (the embedding)" if name == "W_t" and found["tied"] else name
        shape = " × ".join(map(str, group["shape"]))
        weights.append([label, shape, str(group["count"]), formats_text(group["formats"]), size_text(group["bytes"])])
    return [*table_lines(facts), "", *table_lines(weights)]


def token_text(token: Mapping[str, Any]) -> str:
    """Its piece as a terminal may show it, and its id."""
    return f"{visible(token['piece'])} ({token['id']})"


def templates_text(names: Sequence[str]) -> str:
    """ "yes", or the names, where there are more than the usual one; "none"."""
    return "yes" if list(names) == ["default"] else ", ".join(map(visible, names)) or "none"


def windows_text(windows: Sequence[int | None]) -> str:
    """Runs of layers with the same window: "5 × 512, 1 × all"; "none" where no layer has one."""
    if not any(windows):
        return "none"
    runs = [(window, len(list(run))) for window, run in groupby(windows)]
    return ", ".join(f"{length} × {window or 'all'}" for window, length in runs)


def formats_text(formats: Mapping[str, int]) -> str:
    if len(formats) == 1:
        return next(iter(formats))
    return ", ".join(f"{count} × {name}" for name, count in formats.items())
