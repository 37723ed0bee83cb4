"""Kernels ready to be loaded: from the cache, or compiled now, in as many processes as pay."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ringlet.core.errors import RingletError
from ringlet.plugins.backends.cuda.kernel_cache import (
    Capability,
    KernelFile,
    kernels_folder,
    read_kernel,
    write_kernel,
)

KERNELS_A_PROCESS = 3  # fewer are compiled sooner than another process is up


def kernel_files(names: Sequence[str], capability: Capability) -> dict[str, KernelFile]:
    """The named kernels for a kind of GPU, from the cache or compiled now.

    Compiling takes about a second each, in several processes, and is told on standard error if that is a terminal.
    Raises RingletError where nothing is kept and numba-cuda is missing.
    """
    folder = kernels_folder(capability)[0]
    found = {} if folder is None else {name: kept for name in names if (kept := read_kernel(folder, name))}
    missing = [name for name in names if name not in found]
    if missing:
        found |= _compile(missing, capability)
    return found


def _compile(names: list[str], capability: Capability) -> dict[str, KernelFile]:
    folder, why = kernels_folder(capability)
    if folder is None:
        print(f"Warning: compiled kernels cannot be kept, the next start compiles again: {why}", file=sys.stderr)
    shown = sys.stderr is not None and sys.stderr.isatty()
    if shown:
        print(f"compiling {len(names)} kernels for this GPU, once …", end="", file=sys.stderr, flush=True)
    found: dict[str, KernelFile] = {}
    shares = _shares(names) if folder is not None else [names]
    helpers = [_helper(capability, share) for share in shares[1:]]
    try:
        for name in shares[0]:
            found[name] = _compile_here(name, capability, folder)
        for helper in helpers:
            helper.wait()
    finally:
        for helper in helpers:
            helper.kill()
            helper.wait()
    for name in (name for share in shares[1:] for name in share):
        kept = None if folder is None else read_kernel(folder, name)
        found[name] = kept or _compile_here(name, capability, folder)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return found


def _shares(names: list[str]) -> list[list[str]]:
    """What each process compiles, this one first."""
    count = max(1, min(os.cpu_count() or 1, len(names) // KERNELS_A_PROCESS))
    return [names[i::count] for i in range(count)]


def _helper(capability: Capability, names: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ringlet.plugins.backends.cuda.compile", *map(str, capability), *names]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)


def _compile_here(name: str, capability: Capability, folder: Path | None) -> KernelFile:
    try:
        from ringlet.plugins.backends.cuda.compile import compile_kernel
    except ImportError as error:
        raise RingletError(
            f"the cuda backend has kernels to compile and {error.name or 'a package'} is missing: "
            "pip install 'ringlet[cuda]' (for a driver of CUDA 12: 'ringlet[cuda12]')"
        ) from error
    file = compile_kernel(name, capability)
    if folder is not None:
        with suppress(OSError):  # a full disk costs the time again in the next process
            write_kernel(folder, name, file)
    return file
