"""What is installed, and how the source hangs together: wheel, sdist, imports, tracked files."""

from __future__ import annotations

import ast
import email
import graphlib
import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ringlet

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MEGABYTE = 1_000_000
MODEL = {"config.json", "model.safetensors", "tokenizer.json"}


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command, which has to succeed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source_files(repository: Path) -> list[Path]:
    """The repository's files, relative: tracked ones and new ones that Git does not ignore."""
    if shutil.which("git") is None or not (repository / ".git").exists():
        pytest.skip("not a Git checkout, so there is no list of the repository's files")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=repository).split("\0")
    return sorted(Path(name) for name in set(listed) if name and (repository / name).is_file())


@pytest.fixture(scope="module")
def project(repository: Path) -> dict:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def modules(repository: Path, source_files: list[Path]) -> dict[str, ast.Module]:
    """Module name to its syntax tree, for all that is installed."""
    trees = {}
    for path in source_files:
        if path.suffix == ".py" and all((repository / folder / "__init__.py").exists() for folder in path.parents):
            name = ".".join(("ringlet", *path.with_suffix("").parts)).removesuffix(".__init__")
            trees[name] = ast.parse((repository / path).read_text(encoding="utf-8"))
    return trees


def build(hook: str, source: Path, out: Path) -> Path:
    """Call a hook of the build backend as pip would; the file it made."""
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        version = "0"
    if int(version.split(".")[0]) < 77:
        pytest.skip("needs setuptools 77 or later (it comes with the extra `test`)")
    code = f"import sys, setuptools.build_meta as backend; print(backend.{hook}(sys.argv[1]))"
    return out / run(sys.executable, "-c", code, out, cwd=source).splitlines()[-1]


@pytest.fixture(scope="module")
def clean_source(repository: Path, source_files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository without left-overs of earlier builds, which setuptools would pack."""
    folder = tmp_path_factory.mktemp("source")
    for path in source_files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(repository / path, folder / path)
    return folder


@pytest.fixture(scope="module")
def sdist(clean_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("build_sdist", clean_source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(clean_source: Path, sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("build_wheel", clean_source, tmp_path_factory.mktemp("wheel"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_is_pure_python_and_small(wheel: Path, project: dict) -> None:
    assert wheel.name == f"ringlet-{project['project']['version']}-py3-none-any.whl"
    assert wheel.stat().st_size < 10 * MEGABYTE
    suffixes = {Path(name).suffix for name in contents(wheel) if name.startswith("ringlet/")}
    assert suffixes == {".py", ".json", ".safetensors", ".md", ".css", ".html", ".js", ".jinja", ".typed"}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path, repository: Path, modules: dict) -> None:
    names = set(contents(wheel))
    assert {name.split("/")[0] for name in names} == {"ringlet", f"{wheel.name.split('-py3')[0]}.dist-info"}
    found = {
        name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for name in names if name[-3:] == ".py"
    }
    assert found == set(modules)
    shipped = {name.removeprefix("ringlet/data/poet/") for name in names if name.startswith("ringlet/data/poet/")}
    assert shipped == MODEL | {"README.md"}
    page = {path.name: path.read_bytes() for path in (repository / "core" / "explanation" / "page").iterdir()}
    found = {Path(name).name: data for name, data in contents(wheel).items() if "/explanation/page/" in name}
    assert found == page
    templates = {path.name: path.read_bytes() for path in (repository / "tokenization/chat/templates").iterdir()}
    found = {Path(name).name: data for name, data in contents(wheel).items() if "/chat/templates/" in name}
    assert found == templates
    for name in MODEL:
        assert contents(wheel)[f"ringlet/data/poet/{name}"] == (repository / "data" / "poet" / name).read_bytes()


def test_the_wheel_names_the_command_and_the_licence(wheel: Path, repository: Path) -> None:
    files = contents(wheel)
    folder = f"{wheel.name.split('-py3')[0]}.dist-info"
    assert b"ringlet = ringlet.cli:main" in files[f"{folder}/entry_points.txt"]
    assert files[f"{folder}/licenses/LICENSE"] == (repository / "LICENSE").read_bytes()
    metadata = email.message_from_bytes(files[f"{folder}/METADATA"])
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "torch" not in " ".join(line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line)


def test_the_sdist_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # not in 3.11.2
    (unpacked,) = tmp_path.iterdir()
    assert {"LICENSE", "README.md", "tests", "training"} <= {path.name for path in unpacked.iterdir()}
    (tmp_path / "out").mkdir()
    again = contents(build("build_wheel", unpacked, tmp_path / "out"))
    assert again == contents(wheel)


def test_every_folder_of_modules_is_packaged(project: dict, source_files: list[Path]) -> None:
    packages = {path.parent for path in source_files if path.name == "__init__.py"}
    folders = {".".join(("ringlet", *path.parts)) for path in packages if packages.issuperset(path.parents)}
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(folders)


def test_importing_ringlet_imports_nothing_heavy(repository: Path) -> None:
    code = "import sys, ringlet; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(run(sys.executable, "-c", code, cwd=repository.parent).split())
    assert "ringlet" in loaded
    assert not loaded & {"numba", "llvmlite", "torch", "transformers", "huggingface_hub", "gguf"}


def test_every_public_name_can_be_imported(repository: Path) -> None:
    code = "from ringlet import *; print(*(name for name in dir() if not name.startswith('_')))"
    found = set(run(sys.executable, "-c", code, cwd=repository.parent).split())
    assert found == {*ringlet.__all__}
    assert dir(ringlet) == sorted([*ringlet.__all__, "__version__"])
    with pytest.raises(AttributeError, match=r"^module 'ringlet' has no attribute 'Nothing'$"):
        _ = ringlet.Nothing


@pytest.mark.parametrize("name", ["__init__.py", "plugins/samplers/__init__.py"])
def test_type_checkers_see_every_public_name_where_it_is(name: str, repository: Path) -> None:
    """Names that are imported late are written down thrice: for Python, for type checkers, and for `import *`."""
    tree = ast.parse((repository / name).read_text(encoding="utf-8"))
    package = ".".join(("ringlet", *Path(name).parts[:-1]))
    module = importlib.import_module(package)
    (block,) = (each for each in tree.body if isinstance(each, ast.If))
    seen = {alias.name: each.module for each in block.body if isinstance(each, ast.ImportFrom) for alias in each.names}
    homes = {
        public: home if home.startswith("ringlet.") else f"{package}.{home}" for public, home in module._HOMES.items()
    }
    assert seen == homes
    assert sorted(homes) == sorted(module.__all__)
    for public, home in homes.items():
        assert getattr(importlib.import_module(home), public) is getattr(module, public)


def imported(statement: ast.stmt | ast.AST, modules: dict[str, ast.Module]) -> set[str]:
    """Which of our modules an import statement names; `from package import module` means the module."""
    if isinstance(statement, ast.Import):
        return {alias.name for alias in statement.names if alias.name.split(".")[0] == "ringlet"}
    if isinstance(statement, ast.ImportFrom):
        assert statement.level == 0, "imports are absolute"
        source = statement.module or ""
        if source.split(".")[0] == "ringlet":
            return {name if (name := f"{source}.{alias.name}") in modules else source for alias in statement.names}
    return set()


def at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported: not functions' bodies, not what only type checkers see."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        yield statement
        for block in ("body", "orelse", "finalbody"):
            yield from at_import(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from at_import(handler.body)


def test_imports_have_no_circles(modules: dict[str, ast.Module]) -> None:
    graph = {
        name: set().union(*(imported(statement, modules) for statement in at_import(tree.body)))
        for name, tree in modules.items()
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the circle's modules


# Imports inside functions that close a circle, and why they may. There are none.
LATE_CIRCLES: set[tuple[str, str]] = set()


def test_imports_inside_functions_close_no_other_circles(modules: dict[str, ast.Module]) -> None:
    graph = {
        name: {
            target
            for node in ast.walk(tree)
            for target in imported(node, modules)
            if (name, target) not in LATE_CIRCLES and not for_type_checkers(node, tree)
        }
        for name, tree in modules.items()
    }
    graphlib.TopologicalSorter(graph).prepare()
    for name, target in LATE_CIRCLES:  # each closes one, so the list is no longer than it need be
        with pytest.raises(graphlib.CycleError):
            graphlib.TopologicalSorter(graph | {name: graph[name] | {target}}).prepare()


def for_type_checkers(node: ast.AST, tree: ast.Module) -> bool:
    blocks = [block for block in tree.body if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)]
    return any(node in ast.walk(block) for block in blocks)


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("core", ("ringlet.plugins", "ringlet.cli")),
        ("plugins", ("ringlet.cli",)),
        ("testing", ("ringlet.plugins", "ringlet.cli")),
        ("tokenization", ("ringlet.plugins", "ringlet.cli")),
    ],
)
def test_arrows_run_one_way(modules: dict[str, ast.Module], package: str, forbidden: tuple[str, ...]) -> None:
    ours = {name: tree for name, tree in modules.items() if name.startswith(f"ringlet.{package}")}
    assert ours
    wrong = [
        f"{name} imports {target}"
        for name, tree in ours.items()
        for node in ast.walk(tree)
        for target in imported(node, modules)
        if target.startswith(forbidden)
    ]
    assert wrong == []


def test_only_commands_know_the_terminal(modules: dict[str, ast.Module]) -> None:
    """What makes a page, a picture or a text is of use in Python too. Warnings and progress are told from anywhere."""
    screens, told = ("ringlet.core.terminal", "ringlet.core.commands"), "ringlet.core.terminal.standard_error"
    wrong = [
        f"{name} imports {target}"
        for name, tree in modules.items()
        if name.startswith("ringlet.core.") and not name.startswith(screens)
        for node in ast.walk(tree)
        for target in imported(node, modules)
        if target.startswith(screens) and target != told
    ]
    assert wrong == []


# Where somebody's files lie, and where packages come from: neither is the project's business.
MACHINE_PATH = re.compile(rb"(?<![\w.~$}/-])/(?:home|Users|root|work|opt|mnt)/\w[\w.-]*|file:///\w|[A-Z]:\\\\?Users\b")
REGISTRY_HOST = re.compile(rb"pypi\.org|pythonhosted\.org|registry\.npmjs|anaconda\.org|index[-]url", re.IGNORECASE)


def test_tracked_files_name_no_machine_and_are_small(repository: Path, source_files: list[Path]) -> None:
    wrong = []
    for path in source_files:
        data = (repository / path).read_bytes()
        if len(data) > 6 * MEGABYTE:
            wrong.append(f"{path}: {len(data):,} bytes")
        for pattern in (MACHINE_PATH, REGISTRY_HOST):
            wrong.extend(f"{path}: {match.group().decode()}" for match in pattern.finditer(data))
    assert wrong == []


def test_what_messages_tell_to_install_is_what_the_extra_brings(project: dict, repository: Path) -> None:
    """No message names the package as one of an index, where another's may stand under its name."""
    told = set()
    for folder in ("core", "plugins/samplers", "plugins/constraints", "tokenization"):
        for path in (repository / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            told |= set(re.findall(r"""how_to_install\(["'](\w+)["'], ["'](\w+)["']\)""", text))
            assert not re.search(r"pip install [\"']?ringlet", text), path
    assert told == {("huggingface_hub", "hub"), ("llguidance", "grammar")}
    for package, extra in told:
        (requirement,) = project["project"]["optional-dependencies"][extra]
        assert re.match(r"[\w-]+", requirement)[0] == package
