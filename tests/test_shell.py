"""What the shell may do to the command line: standard streams that are closed or full, and an early Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
POSIX = pytest.mark.skipif(os.name == "nt", reason="the shell here is not POSIX")


def shell(line: str, environment: str = "") -> subprocess.CompletedProcess:
    command = f'{environment} "{sys.executable}" cli.py {line}'
    return subprocess.run(["sh", "-c", command], capture_output=True, cwd=REPOSITORY, timeout=60, check=False)


@POSIX
def test_a_text_is_utf8_whatever_the_locale():
    locale = "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"
    assert shell("tokenize 我爱你 --json", locale).stdout == shell("tokenize 我爱你 --json").stdout != b""
    ran = shell("tokenize \"a$(printf '\\377')\"", locale)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr == b"Error: the text is not UTF-8 text: byte 0xff at 1; convert it first\n"


@POSIX
@pytest.mark.parametrize(
    ("line", "code", "stderr"),
    [
        ("generate a --backend numpy --max-tokens 3 >&-", 0, b""),
        ("generate a --backend numpy --max-tokens 3 --verbose 2>&-", 0, b""),
        ("generate a --backend numpy --max-tokens 3 <&- >&- 2>&-", 0, b""),
        ("generate - <&-", 2, b"Error: the prompt is empty: give at least one character\n"),
        ("generate a --threads 0 2>&-", 2, b""),
        ("generate --wrong 2>&-", 2, b""),
    ],
)
def test_closed_standard_streams(line, code, stderr):
    ran = shell(line)
    assert (ran.returncode, ran.stderr) == (code, stderr)
    if code or ">&-" in line.replace("2>&-", ""):
        assert ran.stdout == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_told_in_one_line():
    for line in ("generate a --backend numpy --max-tokens 3 >/dev/full", "tokenize abc >/dev/full"):
        ran = shell(line)
        assert (ran.returncode, ran.stderr) == (1, b"Error: the output cannot be written: No space left on device\n")


EARLY_INTERRUPT = """
import sys

class Interrupt:
    def find_spec(self, name, *rest):
        if name == "ringlet.core.terminal.console":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from ringlet.cli import main
"""


def test_an_interrupt_while_we_are_imported_is_quiet():
    ran = subprocess.run([sys.executable, "-c", EARLY_INTERRUPT], capture_output=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")
