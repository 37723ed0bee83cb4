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
_temporary: list[tempfile.TemporaryDirectory[str]] = []


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


@cache
def kernels_folder() -> Path:
    """Where code is kept; a folder of this process alone where there is no such place that is ours alone."""
    base = user_cache_folder()
    if base is not None:
        folder = base / "kernels" / made_from()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours_alone(folder) and os.access(folder, os.W_OK):
                return folder
        except OSError:
            pass
    _temporary.append(tempfile.TemporaryDirectory(prefix="ringlet-kernels-"))
    return Path(_temporary[-1].name)


def _is_ours_alone(folder: Path) -> bool:
    if not hasattr(os, "getuid"):
        return True  # Windows: the profile's folders are the user's
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def write_unit(folder: Path, name: str, symbol: str, code: bytes) -> None:
    """Keep a unit's object code."""
    head = {"unit": name, "made_from": made_from(), "symbol": symbol, "sha256": hashlib.sha256(code).hexdigest()}
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
        line, _, code = (folder / f"{name}.o").read_bytes().partition(b"\n")
        head = json.loads(line)
        expected = {"unit": name, "made_from": made_from(), "sha256": hashlib.sha256(code).hexdigest()}
        if expected.items() <= head.items():
            return str(head["symbol"]), code
    except (OSError, ValueError, KeyError, AttributeError):
        pass
    return None


def _load(name: str) -> bool:
    unit = read_unit(kernels_folder(), name)
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
    _addresses[name] = engine.get_function_address(symbol)


def _compile(names: list[str]) -> None:
    """Compile and load the units: the first, which is the largest, here, the others in a process beside this one."""
    shown = sys.stderr is not None and sys.stderr.isatty()
    if shown:
        print(f"compiling {len(names)} kernels for this CPU, once …", end="", file=sys.stderr, flush=True)
    helper = _helper(names[1:]) if len(names) > 1 and (os.cpu_count() or 1) > 1 else None
    for name in names[:1] if helper else names:
        _compile_here(name)
    if helper:
        helper.wait()
        for name in names[1:]:
            if not _load(name):
                _compile_here(name)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _compile_here(name: str) -> None:
    from ringlet.plugins.backends.cpu.units import compile_unit

    symbol, code = compile_unit(name)
    with suppress(OSError):  # a full disk costs the time again in the next process
        write_unit(kernels_folder(), name, symbol, code)
    _install(name, symbol, code)


def _helper(names: list[str]) -> subprocess.Popen[bytes] | None:
    command = [sys.executable, "-m", "ringlet.plugins.backends.cpu.units", str(kernels_folder()), *names]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return None
