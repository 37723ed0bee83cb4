"""Where and with what was measured."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import llvmlite.binding as llvm

PACKAGES = ("numba", "llvmlite", "numpy", "llama-cpp-python", "torch", "transformers")
TELLING_FEATURES = (
    "avx2", "fma", "f16c", "avxvnni", "avx512f", "avx512vnni", "avx512bf16", "amx-int8", "neon", "dotprod",
    "i8mm", "sve",
)  # fmt: skip


def machine_facts(threads: int) -> dict[str, str]:
    """Name → value, for people."""
    features = llvm.get_host_cpu_features()
    here = [name for name in TELLING_FEATURES if features.get(name)]
    return {
        "CPU": f"{cpu_name()} ({llvm.get_host_cpu_name()}), {os.cpu_count()} logical cores, {threads} threads used",
        "instructions": ", ".join(here) or "none of note",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        **{package: found for package in PACKAGES if (found := installed(package))},
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(names, platform.machine())


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
