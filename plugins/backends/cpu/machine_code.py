"""Machine code of the kernels: compiled once, kept in the user's cache folder, loaded without importing Numba.

A kept file is a line of JSON (what the code was made from, its symbol, its SHA-256) and then the object code. It is
read only from a folder that nobody else can write to, used only if all of that line is as it should be, and replaced
otherwise; it is written under another name and then renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ringlet.core.user_cache import user_cache_folder

_lock = threading.Lock()
_addresses: dict[str, int] = {}
_engines: list[object] = []  # they own the code


def machine_code(names: Sequence[str]) -> dict[str, int]:
    """Addresses of the named units (see `units`), loaded or compiled now.

    Compiling takes seconds, uses two processes, and is told on standard error if that is a terminal.
    """
    with _lock:
        missing = [name for name in names if name not in _addresses and not _load(name)]
        if missing:
            _compile(missing)
        return {name: _addresses[name] for name in names}


@cache
def made_from() -> str:
    """A short name of everything that decides what the code is: the kernels' sources, the versions of what compiles
    them, and the CPU and its features that they are compiled for."""
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    cpu = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    triple = llvm.get_process_triple()
    for part in (sys.version, version("numba"), version("llvmlite"), version("numpy"), triple, cpu, features):
        digest.update(part.encode() + b"\0")
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:24]


def kernels_folder() -> tuple[Path | None, str]:
    """The folder of the user's cache where code is kept; or None, and why none can be trusted."""
    base = user_cache_folder()
    if base is None:
        return None, "there is no home; RINGLET_CACHE may name a folder"
    folder = base / "kernels" / made_from()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours_alone(folder):
            return None, f"others could have written to {folder}"
    except OSError as error:
        return None, f"{folder}: {error.strerror or error}"
    return folder, ""


def _is_ours_alone(folder: Path) -> bool:
    if not hasattr(os, "getuid"):
        return True  # Windows: the profile's folders are the user's
    status = folder.stat()
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o022


def write_unit(folder: Path, name: str, symbol: str, code: bytes) -> None:
    """Keep a unit's object code."""
    head = {"unit": name, "made_from": made_from(), "symbol": symbol, "sha256": _digest(name, symbol, code)}
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f"{name}.")
    try:
        with open(handle, "wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + code)
        os.replace(temporary, folder / f"{name}.o")
    except BaseException:
        os.unlink(temporary)
        raise


def read_unit(folder: Path, name: str) -> tuple[str, bytes] | None:
    """A kept unit's symbol and object code; None where there is none that can be trusted."""
    try:
        path = folder / f"{name}.o"
        if not path.is_file():  # a pipe would be waited for
            return None
        line, _, code = path.read_bytes().partition(b"\n")
        head = json.loads(line)
        symbol = head["symbol"]
        if head == {"unit": name, "made_from": made_from(), "symbol": symbol, "sha256": _digest(name, symbol, code)}:
            return symbol, code
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _digest(name: str, symbol: str, code: bytes) -> str:
    """SHA-256 of a unit with all that is said of it."""
    return hashlib.sha256("\0".join((name, made_from(), symbol, "")).encode() + code).hexdigest()


def _load(name: str) -> bool:
    folder, _ = kernels_folder()
    unit = None if folder is None else read_unit(folder, name)
    if unit is not None:
        _install(name, *unit)
    return unit is not None


def _install(name: str, symbol: str, code: bytes) -> None:
    """Bring object code into memory, and note its address."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    address = engine.get_function_address(symbol)
    if address == 0:
        raise RuntimeError(f"the compiled kernel {name} lacks its symbol")
    _addresses[name] = address


def _compile(names: list[str]) -> None:
    """Compile and load the units: the first, which is the largest, here, the others in a process beside this one."""
    folder, why = kernels_folder()
    if folder is not None and not os.access(folder, os.W_OK):
        folder, why = None, f"{folder} is read-only"
    if folder is None:
        print(f"Warning: compiled kernels cannot be kept, the next start compiles again: {why}", file=sys.stderr)
    shown = sys.stderr is not None and sys.stderr.isatty()
    if shown:
        print(f"compiling {len(names)} kernels for this CPU, once …", end="", file=sys.stderr, flush=True)
    helper = _helper(folder, names[1:]) if folder is not None and len(names) > 1 and (os.cpu_count() or 1) > 1 else None
    for name in names[:1] if helper else names:
        _compile_here(name, folder)
    if helper:
        helper.wait()
        for name in names[1:]:
            if not _load(name):
                _compile_here(name, folder)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _compile_here(name: str, folder: Path | None) -> None:
    from ringlet.plugins.backends.cpu.units import compile_unit

    symbol, code = compile_unit(name)
    if folder is not None:
        with suppress(OSError):  # a full disk costs the time again in the next process
            write_unit(folder, name, symbol, code)
    _install(name, symbol, code)


def _helper(folder: Path, names: list[str]) -> subprocess.Popen[bytes] | None:
    command = [sys.executable, "-m", "ringlet.plugins.backends.cpu.units", str(folder), *names]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return None
