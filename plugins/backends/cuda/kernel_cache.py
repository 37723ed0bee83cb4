"""Machine code of the kernels, kept in the user's cache for each kind of GPU.

A kept file is a line of JSON (what the code was made from, how it is launched, its SHA-256) and then the code. It is
read only from a folder that nobody else can write to, used only if all of that line is as it should be, and replaced
otherwise; it is written under another name and then renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ringlet.core.user_cache import user_cache_folder

Capability = tuple[int, int]
COMPILERS = ("numba-cuda", "numba", "llvmlite", "nvidia-nvvm", "nvidia-cuda-nvcc-cu12", "nvidia-nvjitlink")


@dataclass(frozen=True)
class KernelFile:
    """symbol: of the code. kinds: of its arguments. threads: in a block. code: a cubin, or PTX text."""

    symbol: str
    kinds: tuple[str, ...]
    threads: int
    code: bytes


@cache
def made_from() -> str:
    """A short name of what the code is made from: the kernels' sources, and the versions of what compiles them."""
    digest = hashlib.sha256()
    for package in COMPILERS:
        with suppress(PackageNotFoundError):
            digest.update(f"{package} {version(package)}\0".encode())
    here = Path(__file__).parent
    for path in sorted([*here.glob("kernels/*.py"), here / "planes.py", here / "shapes.py"]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:24]


@cache
def kernels_folder(capability: Capability) -> tuple[Path | None, str]:
    """Where kernels for a kind of GPU are kept, or None and why they cannot be."""
    base = user_cache_folder()
    if base is None:
        return None, "no home folder was found"
    folder = base / "cuda-kernels" / f"sm_{capability[0]}{capability[1]}-{made_from()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid"):  # on Windows the profile's folders are the user's
            status = folder.stat()
            if status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022:
                return None, f"others could have written to {folder}"
    except OSError as error:
        return None, f"{folder}: {error.strerror or error}"
    return folder, ""


def write_kernel(folder: Path, name: str, file: KernelFile) -> None:
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f"{name}.")
    try:
        with open(handle, "wb") as out:
            out.write(json.dumps(_head(name, file)).encode() + b"\n" + file.code)
        os.replace(temporary, folder / f"{name}.kernel")
    except BaseException:
        os.unlink(temporary)
        raise


def read_kernel(folder: Path, name: str) -> KernelFile | None:
    """A kept kernel; None where there is none that can be trusted."""
    try:
        path = folder / f"{name}.kernel"
        if not path.is_file():  # a pipe would be waited for
            return None
        line, _, code = path.read_bytes().partition(b"\n")
        head = json.loads(line)
        file = KernelFile(head["symbol"], tuple(head["kinds"]), int(head["threads"]), code)
        return file if head == _head(name, file) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _head(name: str, file: KernelFile) -> dict[str, Any]:
    said = {"kernel": name, "made_from": made_from(), "symbol": file.symbol}
    launched = {"kinds": list(file.kinds), "threads": file.threads}
    text = json.dumps(said | launched, sort_keys=True).encode()
    return said | launched | {"sha256": hashlib.sha256(text + b"\0" + file.code).hexdigest()}
