"""Where plugins are looked for: installed packages, the files in RINGLET_PLUGINS, files that the user names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from pathlib import Path

from ringlet.core.errors import fault_text
from ringlet.core.hookspecs import PROJECT

PLUGINS_VARIABLE = "RINGLET_PLUGINS"


def resolved(file: str | os.PathLike[str]) -> Path:
    """The path with ~ and links resolved; as it is where that cannot be done, so that loading it tells why."""
    try:
        return Path(file).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):  # no such user, a circle of links, a NUL
        return Path(file)


def all_resolved(files: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Each file once, in order."""
    return list(dict.fromkeys(map(resolved, files)))


def files_in_environment() -> list[Path]:
    """Those that RINGLET_PLUGINS names."""
    named = os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)
    return all_resolved(path for path in named if path.strip())


def how_to_drop(origin: str, explicit: bool) -> str:
    """What to do to be without a plugin that is not built in. explicit: the user named its file."""
    if explicit:
        return f"leave out --plugin {Path(origin).name} (plugins= in Python)"
    if Path(origin).is_absolute():
        return f"take {origin} out of {PLUGINS_VARIABLE}"
    return f"pip uninstall {origin}"


def installed_plugins(report: Callable[[str], None]) -> list[EntryPoint]:
    """Entry points of our group. report: is told of a package of ours whose own cannot be read."""
    try:
        return list(entry_points(group=PROJECT))
    except Exception:  # some package's metadata is broken, and hides those of all others
        return list(_one_package_at_a_time(report))


def _one_package_at_a_time(report: Callable[[str], None]) -> Iterator[EntryPoint]:
    seen = set()
    for package in distributions():
        name = name_of(package)
        if name in seen:
            continue
        seen.add(name)
        try:
            yield from package.entry_points.select(group=PROJECT)
        except Exception as error:
            if f"[{PROJECT}]" in (package.read_text("entry_points.txt") or ""):
                report(f"plugin {name}: import: its entry points cannot be read: {fault_text(error)}")


def name_of(package: Distribution | None) -> str | None:
    """The package's name; None where its metadata has none."""
    try:
        return package.metadata["Name"] if package else None
    except Exception:
        return None


def version_of(package: Distribution | None) -> str | None:
    """The same of its version."""
    try:
        return package.version if package else None
    except Exception:
        return None
