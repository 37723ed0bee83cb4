"""Machine code of the kernels: compiled once, kept in the user's cache, loaded without importing Numba."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ringlet.core.terminal.standard_error import passing_lines, warn
from ringlet.plugins.backends.cpu.kept_code import kernels_folder, read_unit, remove_unused_folders, write_unit
from ringlet.plugins.backends.cpu.team import usable_cores

_lock = threading.Lock()
_addresses: dict[str, int] = {}
_engines: list[object] = []  # they own the code


def machine_code(names: Sequence[str]) -> dict[str, int]:
    """Addresses of the named units (see `units`), loaded or compiled now.

    Compiling takes seconds, uses all cores, and is told on standard error if that is a terminal.
    """
    with _lock:
        missing = [name for name in names if name not in _addresses and not _load(name)]
        if missing:
            _compile(missing)
        return {name: _addresses[name] for name in names}


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
    """Compile, keep and load the units; in a folder that gets new ones, old ones are cleared away."""
    from ringlet.plugins.backends.cpu.compile_together import compile_together

    folder, why = _writable_folder()
    if folder is None:
        warn(f"compiled kernels cannot be kept, the next start compiles again: {why}")
    compiled: dict[str, tuple[str, bytes]] = {}

    def keep(name: str, symbol: str, code: bytes) -> None:
        compiled[name] = symbol, code
        if folder is not None:
            with suppress(OSError):  # a full disk costs the time again in the next process
                write_unit(folder, name, symbol, code)

    with passing_lines() as tell:
        compile_together(names, usable_cores(), keep, tell)
    for name, unit in compiled.items():
        _install(name, *unit)
    if folder is not None:
        with suppress(OSError):
            remove_unused_folders(folder)


def _writable_folder() -> tuple[Path | None, str]:
    folder, why = kernels_folder()
    if folder is not None and not os.access(folder, os.W_OK):
        return None, f"{folder} is read-only"
    return folder, why
