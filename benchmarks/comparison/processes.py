"""Whole processes: how long until the first token, and how much memory at most."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

BENCHMARKS = Path(__file__).resolve().parent.parent
CLI = BENCHMARKS.parent / "cli.py"
LLAMA_SCRIPT = """
import sys, llama_cpp
model, threads = sys.argv[1], int(sys.argv[2])
llama = llama_cpp.Llama(model, n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False)
print(llama("Hello", max_tokens=1)["choices"][0]["text"])
"""
IMPORTS = "import numba, tokenizers, comparison.alone; print(comparison.alone.peak_bytes())"


def run_process(code: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[float, str]:
    """Seconds that Python takes to run the code (as its arguments), and what it prints.

    Raises RuntimeError, with what it wrote last, if it fails.
    """
    began = perf_counter()
    done = subprocess.run([sys.executable, *code], stdin=subprocess.DEVNULL, capture_output=True, env=environment)
    seconds = perf_counter() - began
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"{code[0]} {code[1]} ended with exit code {done.returncode}: {''.join(last)}")
    return seconds, done.stdout.decode(errors="replace")


def first_token_commands(model: Path, threads: int) -> dict[str, list[str]]:
    """What writes one token and ends, by engine."""
    ringlet = [str(CLI), "generate", "Hello", "--model", str(model), "--threads", str(threads)]
    return {
        "Ringlet": [*ringlet, "--backend", "cpu", "--sampler", "greedy", "--max-tokens", "1"],
        "llama.cpp": ["-c", LLAMA_SCRIPT, str(model), str(threads)],
    }


def start_times(model: Path, threads: int, repeat: int, engines: Sequence[str]) -> dict[str, float]:
    """Median seconds of whole processes that write one token, taking turns; and of Ringlet's very first run."""
    commands = {name: command for name, command in first_token_commands(model, threads).items() if name in engines}
    found: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as empty:
        first, _ = run_process(commands["Ringlet"], os.environ | {"RINGLET_CACHE": empty})
    for repetition in range(repeat + 1):
        for name, command in commands.items():
            seconds, _ = run_process(command)
            if repetition:  # the first brings files into memory
                found[name].append(seconds)
    return {**{name: median(times) for name, times in found.items()}, "Ringlet, the very first run": first}


def peak_memory(model: Path, threads: int, prompt: int, generate: int, engines: Sequence[str]) -> dict[str, int]:
    """Bytes at most while a prompt and a generation are computed; and of a process that imports Ringlet's largest
    dependencies and does nothing."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(BENCHMARKS), os.environ.get("PYTHONPATH", "")])}
    work = [str(model), str(threads), str(prompt), str(generate)]
    codes = {name: ["-m", "comparison.alone", name.lower(), *work] for name in engines}
    codes["importing numba and tokenizers"] = ["-c", IMPORTS]
    return {name: int(run_process(code, environment)[1]) for name, code in codes.items()}
