"""Finds plugins, calls their hooks one by one, and keeps what they register, by kind and name.

Built-in plugins are modules named by string, third-party ones are entry points of the group `ringlet`, files named in
RINGLET_PLUGINS, or files the user names. Only the last are explicit: their faults raise PluginError. The faults of all
others are reported and the plugin is skipped.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pluggy

from ringlet.core import hookspecs
from ringlet.core.errors import PluginError, RingletError, fault_text
from ringlet.core.plugin_files import file_stamp, load_plugin_file, plugin_file
from ringlet.core.plugin_sources import (
    all_resolved,
    files_in_environment,
    how_to_drop,
    installed_plugins,
    name_of,
    version_of,
)
from ringlet.core.registration import check_class, check_command, claims_of

if TYPE_CHECKING:
    import click

KINDS = ("sampler", "backend", "architecture", "observer")
BUILT_IN = "built-in"
BUILT_IN_PACKAGES = {
    "sampler": "ringlet.plugins.samplers",
    "backend": "ringlet.plugins.backends",
    "architecture": "ringlet.plugins.architectures",
}
MOST_MANAGERS = 8


@dataclass(frozen=True)
class Registered:
    """One registered class (or click command) and where it came from: "built-in", a package, or a file.

    explicit: the user named the plugin.
    """

    cls: Any
    kind: str
    name: str
    origin: str
    version: str | None
    explicit: bool = False

    @property
    def is_built_in(self) -> bool:
        return self.origin == BUILT_IN

    @property
    def label(self) -> str:
        """For messages: the name, and the plugin it comes from."""
        return self.name if self.is_built_in else f"{self.name} ({self.origin})"


@dataclass(frozen=True)
class Plugin:
    """A plugin's module (or object), loaded. Explicit: the user named it."""

    module: Any
    origin: str
    version: str | None
    explicit: bool


def report_on_stderr(line: str) -> None:
    print(f"Warning: {line}", file=sys.stderr)


class PluginManager:
    """The plugins of one process, or of one set of explicit files.

    files: plugins the user names. report: is told, a line each, what was skipped and why.
    Raises PluginError where an explicit plugin fails.
    """

    def __init__(
        self,
        files: Iterable[str | Path] = (),
        report: Callable[[str], None] = report_on_stderr,
    ) -> None:
        self.faults: list[str] = []
        self.report = report
        self._lock = RLock()
        self._pluggy = pluggy.PluginManager(hookspecs.PROJECT)
        self._pluggy.add_hookspecs(hookspecs)
        self._plugins: list[Plugin] = []
        self._registries: dict[str, dict[str, Registered]] = {}
        explicit = all_resolved(files)
        self._load_installed()
        for path in files_in_environment():
            if path not in explicit:
                self._load_file(path, explicit=False)
        for path in explicit:
            self._load_file(path, explicit=True)
        for plugin in self._plugins:
            if plugin.explicit:
                self._call_hooks_now(plugin)

    def registry(self, kind: str) -> Mapping[str, Registered]:
        """Everything registered of one kind, by name; built-in plugins first."""
        with self._lock:
            if kind not in self._registries:
                self._registries[kind] = {}
                try:
                    for plugin in [*self._built_in_plugins(kind), *self._plugins]:
                        self._register_all(plugin, kind)
                except BaseException:  # an interrupt: begin afresh the next time
                    del self._registries[kind]
                    raise
            return self._registries[kind]

    def find(self, kind: str, name: str) -> Registered:
        """Raises RingletError, naming the near names, where there is none of that name."""
        registry = self.registry(kind)
        if name in registry:
            return registry[name]
        raise RingletError(unknown_name(kind, name, registry, self.faults))

    def add_commands(self, new_group: Callable[[], click.Group]) -> list[Registered]:
        """Every plugin's commands, as of the kind "command".

        new_group: makes what a plugin is handed; each gets its own, and all that it adds counts or nothing.
        """
        added: dict[str, Registered] = {}
        for plugin in self._plugins:
            group = new_group()
            with self._faults_of(plugin, "register_commands"):
                self._call(plugin, "register_commands", cli=group)
                found = {}
                for name, command in sorted(group.commands.items()):
                    check_command(name, command)
                    if name in added:
                        taken = f"the name {name!r} is already taken by a command of {added[name].origin}"
                        raise PluginError(f"{taken}: {_way_out(plugin, added[name])}")
                    found[name] = Registered(command, "command", name, plugin.origin, plugin.version, plugin.explicit)
                added |= found
        return list(added.values())

    def _load_installed(self) -> None:
        for entry in installed_plugins(self._report_fault):
            stub = Plugin(None, name_of(entry.dist) or entry.value, version_of(entry.dist), explicit=False)
            with self._faults_of(stub, "import"):
                self._add(entry.load(), stub)

    def _load_file(self, path: Path, explicit: bool) -> None:
        stub = Plugin(None, str(path), None, explicit)
        with self._faults_of(stub, "import"):
            self._add(load_plugin_file(plugin_file(path)), stub)

    def _add(self, module: Any, stub: Plugin) -> None:
        """Hand a loaded module to pluggy, which checks the arguments of its hooks."""
        if self._pluggy.is_registered(module):
            return
        self._pluggy.register(module, name=f"{stub.origin} {len(self._plugins)}")
        hooks = self._pluggy.get_hookcallers(module) or []
        unknown = [hook.name for hook in hooks if not hook.has_spec()]
        if unknown or not hooks:
            self._pluggy.unregister(module)
            known = ", ".join(_hook_names())
            fault = f"there is no hook {unknown[0]}" if unknown else "no function is marked @hookimpl"
            raise PluginError(f"{fault}; the hooks are {known}")
        version = stub.version or getattr(module, "__version__", None)
        self._plugins.append(Plugin(module, stub.origin, None if version is None else str(version), stub.explicit))

    def _built_in_plugins(self, kind: str) -> list[Plugin]:
        """Every module of the kind's package; one that cannot be imported is reported."""
        plugins: list[Plugin] = []
        for name in _modules_of(BUILT_IN_PACKAGES.get(kind)):
            with self._faults_of(Plugin(None, name, None, explicit=False), "import"):
                module = import_module(name)
                if not self._pluggy.is_registered(module):
                    self._pluggy.register(module)
                plugins.append(Plugin(module, BUILT_IN, None, explicit=False))
        return plugins

    def _register_all(self, plugin: Plugin, kind: str) -> None:
        """Call one plugin's hook of this kind. What it registers counts only where the whole hook succeeds."""
        hook = f"register_{kind}s"
        found: dict[str, Registered] = {}
        taken = {claim: holder for holder in self._registries[kind].values() for claim in claims_of(kind, holder.cls)}

        def register(cls: Any) -> None:
            if ended:
                raise PluginError(f"register() was called when {hook} had ended")
            name = check_class(kind, cls)
            registered = Registered(cls, kind, name, plugin.origin, plugin.version, plugin.explicit)
            for claim in claims_of(kind, cls):
                holder = taken.setdefault(claim, registered)
                if holder is not registered:
                    raise PluginError(f"the {claim} is already taken by {_holding(holder)}: {_way_out(plugin, holder)}")
            found[name] = registered
            if kind == "architecture":
                cls.origin = None if registered.is_built_in else registered.origin

        ended = False
        with self._faults_of(plugin, hook):
            self._call(plugin, hook, register=register)
            self._registries[kind].update(found)
        ended = True

    def _call_hooks_now(self, plugin: Plugin) -> None:
        """An explicit plugin's faults come at once, whatever the command goes on to use."""
        hooks = {hook.name for hook in self._pluggy.get_hookcallers(plugin.module) or []}
        for kind in KINDS:
            if f"register_{kind}s" in hooks:
                self.registry(kind)

    def _call(self, plugin: Plugin, hook: str, **arguments: object) -> None:
        others = [module for module in self._pluggy.get_plugins() if module is not plugin.module]
        self._pluggy.subset_hook_caller(hook, others)(**arguments)

    @contextmanager
    def _faults_of(self, plugin: Plugin, hook: str) -> Iterator[None]:
        """Turn whatever a plugin raises into one line: an error for an explicit plugin, else a report."""
        try:
            with redirect_stdout(sys.stderr):  # what it prints is no part of a command's output
                yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin does not end the process
            line = f"plugin {plugin.origin}: {hook}: {fault_text(error)}"
            if plugin.explicit:
                raise PluginError(line) from error
            self._report_fault(line)

    def _report_fault(self, line: str) -> None:
        self.faults.append(line)
        self.report(f"{line} (skipped)")


def _holding(holder: Registered) -> str:
    return f"{holder.cls.__qualname__} ({holder.origin})"


def _way_out(plugin: Plugin, holder: Registered) -> str:
    """Where two plugins want the same, often as a file and as the package that it has become."""
    if holder.is_built_in:
        return "give yours another"
    if holder.origin == plugin.origin:
        return "this plugin registers it twice"
    mine, other = how_to_drop(plugin.origin, plugin.explicit), how_to_drop(holder.origin, holder.explicit)
    return f"{mine}, or {other}"


def unknown_name(kind: str, name: str, known: Iterable[str], faults: Iterable[str] = ()) -> str:
    """The line for a name that nobody registered."""
    known = sorted(known)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(known) or 'none'}"
    failed = "".join(f"; {fault}" for fault in faults)
    return f"unknown {kind} {name!r}: {hint}{failed}"


_managers: dict[object, PluginManager] = {}
_managers_lock = RLock()


def load_plugins(files: Iterable[str | Path] = ()) -> PluginManager:
    """The manager for these explicit files; the same one again while neither they nor those of RINGLET_PLUGINS change.

    A few are kept, the latest used.
    """
    paths = tuple(all_resolved(files))
    found = (*paths, *files_in_environment())
    key = len(paths), tuple((path, file_stamp(path) if path.is_file() else None) for path in found)
    with _managers_lock:
        manager = _managers.pop(key, None) or PluginManager(paths)
        _managers[key] = manager  # at the end, so that the first is the one not used for longest
        if len(_managers) > MOST_MANAGERS:
            del _managers[next(iter(_managers))]
        return manager


def _modules_of(package: str | None) -> list[str]:
    """Full names of a package's modules, in alphabetical order."""
    if package is None:
        return []
    module: ModuleType = import_module(package)
    return sorted(f"{package}.{found.name}" for found in pkgutil.iter_modules(module.__path__))


def _hook_names() -> list[str]:
    return [name for name, _ in inspect.getmembers(hookspecs, inspect.isfunction) if name.startswith("register_")]
