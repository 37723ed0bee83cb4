"""Where Ringlet keeps what it can make again, such as compiled kernels."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from time import time

CACHE_VARIABLE = "RINGLET_CACHE"
DAY = 86400  # seconds


def user_cache_folder() -> Path | None:
    """The folder that RINGLET_CACHE names, else the system's usual one; None where no home can be found.

    The folder need not exist yet, nor be writable.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(os.path.expanduser(named)).absolute()
    base = _usual_base()
    return None if base is None else base / "ringlet"


def own_folder(*below: str) -> tuple[Path | None, str]:
    """A folder under the cache's that only the user can write to, made now; or None, and why none can be trusted."""
    base = user_cache_folder()
    if base is None:
        return None, f"there is no home; {CACHE_VARIABLE} may name a folder"
    folder = base.joinpath(*below)
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


def note_use(path: Path) -> None:
    """Let the path's time say that it was used, so that `days_unused` tells; once a day is enough."""
    if days_unused(path) >= 1:
        with suppress(OSError):  # a read-only cache is as good
            os.utime(path)


def days_unused(path: Path) -> float:
    """Days since the path was made, written to or noted as used; 0 where that cannot be told."""
    try:
        return (time() - path.stat().st_mtime) / DAY
    except OSError:
        return 0.0


def _usual_base() -> Path | None:
    """Where this system's programs keep their caches."""
    variable, below_home = {
        "win32": ("LOCALAPPDATA", "AppData/Local"),
        "darwin": (None, "Library/Caches"),
    }.get(sys.platform, ("XDG_CACHE_HOME", ".cache"))
    named = os.environ.get(variable, "") if variable else ""
    if os.path.isabs(named):  # the XDG specification: a relative path is to be ignored
        return Path(named)
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / below_home if home.is_absolute() else None
