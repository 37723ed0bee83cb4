"""Homes that cannot be used, narrow terminals, texts from Windows: what surrounds a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringlet.cli import main

REPOSITORY = Path(__file__).resolve().parent.parent
POET = str(REPOSITORY / "data" / "poet")
NUMPY = ("--backend", "numpy")
GREEDY = (*NUMPY, "--sampler", "greedy", "--max-tokens", "6")
CHAT = ("chat", "--template", "{{ messages[-1].content }}", *GREEDY)
POEM = "床前明月光，疑是地上霜。\n举头望明月，低头思故乡。\n"


def run(*arguments: str, text: bytes = b"", **environment: str) -> tuple[int, bytes, bytes]:
    """In a process of its own."""
    command, variables = [sys.executable, "cli.py", *arguments], {**os.environ, "PYTHONUTF8": "1", **environment}
    ran = subprocess.run(
        command, input=text, capture_output=True, cwd=REPOSITORY, timeout=120, env=variables, check=False
    )
    return ran.returncode, ran.stdout, ran.stderr


# --- a home ----------------------------------------------------------------------------------------------------------

COMMANDS = {
    "generate": ("generate", "春", *GREEDY),
    "quantised": ("generate", "春", *GREEDY, "--quantize", "q8_0"),
    "chat": CHAT,
    "inspect": ("inspect", POET),
    "plugins": ("plugins", "list"),
}


@pytest.fixture(params=["a file", "a system's"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A home in which nothing can be written, not even by root."""
    if request.param == "a file":
        (tmp_path / "home").write_bytes(b"")
        return str(tmp_path / "home")
    if not Path("/proc/self").exists():
        pytest.skip("no /proc here")
    return "/proc"


@pytest.fixture(params=COMMANDS.values(), ids=COMMANDS)
def command(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """In an environment that names no cache."""
    for variable in ("RINGLET_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    return request.param


def invoked(command: tuple[str, ...]) -> Result:
    return CliRunner().invoke(main, command, input=b"a\n")


@cache
def usual(command: tuple[str, ...]) -> tuple[int, bytes]:
    """Exit code and output where nothing is amiss."""
    return run(*command, text=b"a\n")[:2]


def test_a_home_that_cannot_be_written_changes_no_output(
    command: tuple[str, ...], home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, home)
    result = invoked(command)
    assert (result.exit_code, result.stdout_bytes) == usual(command)
    assert result.exit_code == 0
    warnings = [line for line in result.stderr.splitlines() if "cannot be kept" in line]
    assert all(home in line for line in warnings)
    assert len(warnings) == ("--quantize" in command)  # which alone has something to keep


def test_without_a_home_all_works(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(cls: type) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", classmethod(no_home))
    result = invoked(command)
    assert (result.exit_code, result.stdout_bytes) == usual(command)
    assert result.exit_code == 0


# --- a terminal of 20 columns ----------------------------------------------------------------------------------------

NARROW = [
    ("--help",), ("generate", "--help"), ("plugins", "new", "--help"), ("inspect", POET), ("plugins", "list"),
    ("tokenize", "我爱你 and some more"), ("explain", "我爱你", *NUMPY), ("explain", "我爱你", "--softmax", *NUMPY),
    ("generate", "春", *GREEDY, "--verbose"), ("generate", "春", "--wrong"), CHAT,
]  # fmt: skip


@pytest.mark.parametrize("arguments", NARROW, ids=lambda arguments: " ".join(arguments)[:30])
@pytest.mark.parametrize("columns", ["20", "1"])
def test_a_narrow_terminal_is_no_fault(arguments: tuple[str, ...], columns: str) -> None:
    """Lines are broken elsewhere, or by the terminal; something is said wherever it would be on a wide one."""
    narrow, wide = (
        CliRunner().invoke(main, arguments, input=b"a\n", env={"COLUMNS": width, "LINES": "5"})
        for width in (columns, "300")
    )
    assert narrow.exit_code == wide.exit_code == (2 if "--wrong" in arguments else 0), narrow.output
    assert bool(narrow.stdout.strip()) == bool(wide.stdout.strip())
    assert "Traceback" not in narrow.output


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_bar_on_a_narrow_terminal(tmp_path: Path) -> None:
    import fcntl
    import struct
    import termios

    (tmp_path / "poem.txt").write_text(POEM * 4, encoding="utf-8")
    ours, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 20, 0, 0))
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    command = [sys.executable, "cli.py", "perplexity", str(tmp_path / "poem.txt"), *NUMPY, "--context", "32"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, cwd=REPOSITORY, timeout=60, env=kept)
    os.close(terminal)
    os.close(ours)
    assert ran.returncode == 0
    assert ran.stdout.startswith(b"perplexity ")


# --- texts -----------------------------------------------------------------------------------------------------------

FROM_WINDOWS = b"\xef\xbb\xbf" + POEM.replace("\n", "\r\n").encode()


@pytest.mark.parametrize("command", ["tokenize", "generate", "explain"])
def test_a_prompt_from_windows_is_the_same_prompt(command: str) -> None:
    """A byte order mark is no part of a text, and its line ends are line ends."""
    options = {"tokenize": (), "generate": (*GREEDY, "--seed", "1"), "explain": NUMPY}[command]
    first, second = (run(command, "-", *options, "--json", text=text) for text in (FROM_WINDOWS, POEM.encode()))
    assert first[0] == second[0] == 0, first[2]
    if command == "tokenize":
        assert first[1] == second[1]
    else:
        assert without_timings(first[1]) == without_timings(second[1])


def without_timings(output: bytes) -> dict:
    return {key: value for key, value in json.loads(output).items() if key != "timings"}


def test_a_text_from_windows_has_the_same_perplexity(tmp_path: Path) -> None:
    for name, data in {"windows": FROM_WINDOWS, "plain": POEM.encode()}.items():
        (tmp_path / name).write_bytes(data)
    results = [run("perplexity", str(tmp_path / name), *NUMPY, "--context", "16") for name in ("windows", "plain")]
    assert results[0] == results[1]
    assert results[0][0] == 0


def test_a_lone_return_is_kept() -> None:
    ids = [run("tokenize", "-", "--json", text=text)[1] for text in (b"a\rb", b"ab")]
    assert ids[0] != ids[1]


@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_a_text_in_a_file_is_utf8_whatever_the_locale(locale: str, tmp_path: Path) -> None:
    (tmp_path / "诗.txt").write_text(POEM * 2, encoding="utf-8")
    arguments = ("perplexity", str(tmp_path / "诗.txt"), *NUMPY, "--context", "16")
    elsewhere = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": locale, "LANG": locale}
    assert run(*arguments, **elsewhere)[:2] == run(*arguments)[:2]
    prompt = ("generate", "-", *GREEDY)
    assert run(*prompt, text=POEM.encode(), **elsewhere)[:2] == run(*prompt, text=POEM.encode())[:2]
