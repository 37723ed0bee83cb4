"""Object code of the kernels, kept in the user's cache folder.

A kept file is a line of JSON (what the code was made from, its symbol, its SHA-256) and then the object code. It is
read only from a folder that nobody else can write to, used only if all of that line is as it should be, and replaced
otherwise; it is written under another name and then renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ringlet.core.user_cache import days_unused, note_use, own_folder

ROOM = "kernels"
FOLDER_NAME = re.compile(r"[0-9a-f]{24}")
MOST_DAYS_UNUSED = 30


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
    """The folder of the user's cache where this version's code is kept; or None, and why none can be trusted."""
    folder, why = own_folder(ROOM, made_from())
    if folder is not None:
        note_use(folder)
    return folder, why


def remove_unused_folders(folder: Path) -> None:
    """Remove the folders beside this one, of other versions and CPUs, that nothing has used for a month.

    A process that uses one all the same has the code in memory, and compiles again what it finds no more.
    """
    for other in folder.parent.iterdir():
        if other != folder and FOLDER_NAME.fullmatch(other.name) and days_unused(other) > MOST_DAYS_UNUSED:
            shutil.rmtree(other, ignore_errors=True)


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
