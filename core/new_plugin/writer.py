"""Writes a new plugin's package: into a folder of another name first, which is renamed when all is there."""

from __future__ import annotations

import keyword
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from string import Template
from tempfile import mkdtemp

from ringlet.core.errors import RingletError, cause_of
from ringlet.core.new_plugin import architecture_template, backend_template, package_template, sampler_template
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.registration import claims_of

TEMPLATES = {"sampler": sampler_template, "backend": backend_template, "architecture": architecture_template}
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LONGEST_NAME = 40


def write_package(kind: str, name: str, directory: Path, plugins: PluginManager) -> Path:
    """The folder `ringlet-NAME` in the directory, with a package that installs and passes its own tests.

    kind: a key of TEMPLATES. plugins: whose names are taken.
    Raises RingletError for a name that cannot be, or is taken, and for a folder that is there already.
    """
    check_name(kind, name, plugins)
    folder = directory / f"ringlet-{name.replace('_', '-')}"
    if folder.exists() or folder.is_symlink():
        raise RingletError(f"{folder} exists already: choose another name, or another --directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as unfinished:
            for path, text in package_files(kind, name).items():
                (unfinished / path).parent.mkdir(exist_ok=True)
                (unfinished / path).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise RingletError(f"{error.filename or folder}: {cause_of(error)}: choose another --directory") from None
    return folder


def check_name(kind: str, name: str, plugins: PluginManager) -> None:
    """Raises RingletError unless the name can stand in Python, in a package's name, and in a chain, and is free."""
    if not NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > LONGEST_NAME:
        near = "_".join(re.findall(r"[a-z0-9]+", name.lower())).lstrip("0123456789_")
        hint = f", such as {near}" if near != name and NAME.fullmatch(near) and len(near) <= LONGEST_NAME else ""
        fault = "a word of Python" if keyword.iskeyword(name) else "no name for a plugin"
        raise RingletError(
            f"{name!r} is {fault}: lower-case letters, digits and single _ are needed, "
            f"a letter first, {LONGEST_NAME} at most{hint}"
        )
    wanted = {f"name {name!r}", f"model_type {name!r}", f"general.architecture {name!r}"}
    for holder in plugins.registry(kind).values():
        taken = wanted & set(claims_of(kind, holder.cls))
        if taken:
            raise RingletError(f"the {min(taken)} is already taken by {holder.cls.__qualname__} ({holder.origin})")
    if find_spec(module_of(name)) is not None:
        raise RingletError(f"a module {module_of(name)} is installed already: choose another name than {name}")


def module_of(name: str) -> str:
    return f"ringlet_{name}"


def package_files(kind: str, name: str) -> Mapping[str, str]:
    """Path in the package → text."""
    template = TEMPLATES[kind]
    words = {
        "kind": kind,
        "name": name,
        "cls": "".join(word.capitalize() for word in name.split("_")) + kind.capitalize(),
        "module": module_of(name),
        "package": f"ringlet-{name.replace('_', '-')}",
    }
    for key, text in (("summary", template.SUMMARY), ("example", template.EXAMPLE)):
        words[key] = Template(text).substitute(words)
    texts = {
        "pyproject.toml": package_template.PYPROJECT,
        "README.md": package_template.README,
        ".gitignore": package_template.GITIGNORE,
        f"{words['module']}.py": template.MODULE,
        f"tests/test_{name}.py": template.TESTS,
    }
    return {path: Template(text).substitute(words) for path, text in texts.items()}


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, beside the one that it becomes at the end; nothing is left of it after an error."""
    around = Path(mkdtemp(prefix=".ringlet-", dir=folder.parent))
    try:
        unfinished = around / folder.name
        unfinished.mkdir()  # with the usual rights, which mkdtemp's own has not
        yield unfinished
        unfinished.rename(folder)
    finally:
        shutil.rmtree(around, ignore_errors=True)
