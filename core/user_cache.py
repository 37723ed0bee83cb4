"""Where Ringlet keeps what it can make again, such as compiled kernels."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CACHE_VARIABLE = "RINGLET_CACHE"


def user_cache_folder() -> Path | None:
    """The folder that RINGLET_CACHE names, else the system's usual one; None where no home can be found.

    The folder need not exist yet, nor be writable.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(os.path.expanduser(named)).absolute()
    base = _usual_base()
    return None if base is None else base / "ringlet"


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
