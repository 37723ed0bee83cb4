"""Homes that cannot be used, narrow terminals, texts from Windows: what surrounds a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringlet.cli import main

REPOSITORY = Path(__file__).resolve().parent.parent
POET = str(REPOSITORY / "data" / "poet")
NUMPY = ("--backend", "numpy")
GREEDY = (*NUMPY, "--sampler", "greedy", "--max-tokens", "6")
CHAT = ("chat", "--template", "{{ messages[-1].content }}", *GREEDY)
POEM = "床前明月光，疑是地上霜。\n举头望明月，低头思故乡。\n"


def run(
    *arguments: str, text: bytes = b"", without: tuple[str, ...] = (), **environment: str
) -> tuple[int, bytes, bytes]:
    kept = {key: value for key, value in os.environ.items() if key not in without} | {"PYTHONUTF8": "1"} | environment
    command = [sys.executable, "cli.py", *arguments]
    ran = subprocess.run(command, input=text, capture_output=True, cwd=REPOSITORY, timeout=120, env=kept, check=False)
    return ran.returncode, ran.stdout, ran.stderr


@cache
def usual(*arguments: str, text: bytes = b"") -> tuple[int, bytes]:
    """Exit code and output where nothing is amiss."""
    return run(*arguments, text=text)[:2]


# --- a home ----------------------------------------------------------------------------------------------------------

CACHES = ("RINGLET_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA")
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


@pytest.mark.parametrize("name", COMMANDS)
def test_a_home_that_cannot_be_written_changes_no_output(name: str, home: str) -> None:
    code, output, errors = run(*COMMANDS[name], text=b"a\n", without=CACHES, HOME=home, USERPROFILE=home)
    assert (code, output) == usual(*COMMANDS[name], text=b"a\n")
    assert code == 0
    warnings = [line for line in errors.splitlines() if b"cannot be kept" in line]
    assert all(home.encode() in line for line in warnings)
    assert len(warnings) == (name == "quantised")  # which alone has something to keep
    assert b"Traceback" not in errors


HOMELESS = """
import sys
from pathlib import Path
def home(cls):
    raise RuntimeError("Could not determine home directory.")
Path.home = classmethod(home)
from ringlet.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_home_all_works(name: str) -> None:
    kept = {key: value for key, value in os.environ.items() if key not in (*CACHES, "HOME")} | {"PYTHONUTF8": "1"}
    command = [sys.executable, "-c", HOMELESS, *COMMANDS[name]]
    ran = subprocess.run(command, input=b"a\n", capture_output=True, cwd=REPOSITORY, timeout=120, env=kept, check=False)
    assert (ran.returncode, ran.stdout) == usual(*COMMANDS[name], text=b"a\n"), ran.stderr
    assert ran.returncode == 0
    assert b"Traceback" not in ran.stderr


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
    options = {"tokenize": ("--json",), "generate": (*GREEDY, "--json"), "explain": (*NUMPY, "--json")}[command]
    first, second = (run(command, "-", *options, text=text) for text in (FROM_WINDOWS, POEM.encode()))
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
    assert run(*arguments, **elsewhere)[:2] == usual(*arguments)
    prompt = ("generate", "-", *GREEDY)
    assert run(*prompt, text=POEM.encode(), **elsewhere)[:2] == usual(*prompt, text=POEM.encode())
