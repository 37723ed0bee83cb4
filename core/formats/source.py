"""What a model's name stands for: a GGUF file, a directory, a model on the Hub, or the embedded one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from ringlet.core.errors import RingletError, cause_of
from ringlet.core.formats import hub

EMBEDDED = "poet"
GGUF = b"GGUF"  # how such a file begins
LOOKS_LIKE_A_PATH = re.compile(r"[./~\\]|[A-Za-z]:|[^:]*\.gguf$", re.DOTALL)
HUB_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(:(?P<file>.+))?", re.ASCII)


@dataclass(frozen=True)
class Source:
    """Where a model lies on this machine.

    kind: "gguf", then path is the file (the first, if it is split), or "directory", with config.json and safetensors.
    name: how to call the model in messages.
    """

    kind: Literal["gguf", "directory"]
    path: Path
    name: str


def resolve_source(source: str | os.PathLike[str] | None) -> Source:
    """Where a model lies, downloaded from the Hub where need be; None is the embedded model.

    An existing path wins. A name that ends in .gguf without a colon, or starts with ``.``, ``/``, ``~`` or a drive
    letter, is a path; only org/name[:file] goes to the Hub. Raises RingletError in one line that says what to do.
    """
    if source is None:
        return _local(Path(str(files("ringlet.data"))) / EMBEDDED, f"{EMBEDDED} (embedded)")
    text = os.fspath(source)
    path = os.path.expanduser(text)
    if text and os.path.exists(path):
        return _local(Path(path), text)
    if not isinstance(source, str) or LOOKS_LIKE_A_PATH.match(text):
        raise RingletError(f"{text}: no such file or directory")
    named = HUB_NAME.fullmatch(text)
    if named is None:
        raise RingletError(
            f"{text!r} is neither a file, nor a directory, nor the name of a model on the Hub (org/name)"
        )
    return _local(hub.download(named["repository"], named["file"]), text)


def _local(path: Path, name: str) -> Source:
    if os.path.isdir(path):
        _check_directory(path, name)
        return Source("directory", path, name)
    if path.suffix.lower() == ".safetensors":
        raise RingletError(f"{name}: name the directory that holds this file and its config.json")
    if path.suffix.lower() != ".gguf" and _is_something_else(path):
        raise RingletError(
            f"{name}: not a model: that is a GGUF file, a directory with config.json, or a name on the Hub (org/name)"
        )
    return Source("gguf", path, name)


def _is_something_else(path: Path) -> bool:
    """Whether it is a file that can be read, and does not begin as a GGUF file does."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            beginning = file.read(len(GGUF))
    except OSError:
        return False
    return bool(beginning) and beginning != GGUF


def _check_directory(path: Path, name: str) -> None:
    try:
        content = sorted(os.listdir(path))
        for file in content[:1]:
            os.lstat(path / file)  # fails where the directory may be listed, but its files not opened
    except OSError as error:
        raise RingletError(f"{name}: the directory cannot be read: {cause_of(error)}") from None
    gguf_files = [file for file in content if file.lower().endswith(".gguf")]
    if gguf_files and not any(file.endswith(".safetensors") for file in content):
        raise RingletError(f"{name}: a directory of GGUF files; name one of them, such as {path / gguf_files[0]}")
    if "config.json" not in content:
        raise RingletError(f"{name}: the directory has no config.json, so it holds no model")
