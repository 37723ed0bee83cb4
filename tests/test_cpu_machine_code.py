"""How compiled kernels are kept: found again without Numba, apart from others, trusted only if they are whole."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringlet.plugins.backends.cpu import machine_code

UNIT = "unpack_F32"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and a process that has loaded nothing."""
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path))
    monkeypatch.setattr(machine_code, "_addresses", {})
    kept, _ = machine_code.kernels_folder()
    assert kept is not None
    return kept


def forget() -> None:
    """As if in a new process."""
    machine_code._addresses.clear()


def test_a_kept_unit_is_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_code.machine_code([UNIT])
    forget()
    monkeypatch.setattr(machine_code, "_compile", lambda names: pytest.fail(f"compiles {names} again"))
    assert machine_code.machine_code([UNIT])[UNIT] != 0


def test_several_units_are_compiled_in_two_processes(folder: Path) -> None:
    names = [UNIT, "unpack_F16", "unpack_Q4_0"]
    addresses = machine_code.machine_code(names)
    assert len(set(addresses.values())) == 3
    assert sorted(file.name for file in folder.iterdir()) == sorted(f"{name}.o" for name in names)


def test_a_warm_start_imports_no_numba(tmp_path: Path) -> None:
    code = (
        "import sys; from ringlet import Pipeline; pipe = Pipeline.from_pretrained(backend='cpu', threads=2);"
        "print(pipe.generate('我', max_tokens=2, seed=1).text, 'numba.core' in sys.modules)"
    )
    environment = os.environ | {"RINGLET_CACHE": str(tmp_path), "PYTHONUTF8": "1"}
    texts = []
    for imports_numba in ("True", "False"):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
        text, said = done.stdout.rsplit(maxsplit=1)
        assert said == imports_numba
        texts.append(text)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "damage",
    ["cut", "a flipped bit", "another symbol", "another CPU's", "another unit's", "no JSON", "a list", "empty"],
)
def test_what_cannot_be_trusted_is_compiled_again(folder: Path, damage: str) -> None:
    machine_code.machine_code([UNIT])
    file = folder / f"{UNIT}.o"
    whole = file.read_bytes()
    line, code = whole.split(b"\n", 1)
    head = json.loads(line)
    file.write_bytes(
        {
            "cut": whole[:-10],
            "a flipped bit": whole[:-1] + bytes([whole[-1] ^ 1]),
            "another symbol": json.dumps(head | {"symbol": "memcpy"}).encode() + b"\n" + code,
            "a list": b"[]\n" + code,
            "another CPU's": json.dumps(head | {"made_from": "0"}).encode() + b"\n" + code,
            "another unit's": json.dumps(head | {"unit": "step"}).encode() + b"\n" + code,
            "no JSON": b"\x80" + whole,
            "empty": b"",
        }[damage]
    )
    assert machine_code.read_unit(folder, UNIT) is None
    forget()
    machine_code.machine_code([UNIT])
    assert machine_code.read_unit(folder, UNIT) == (head["symbol"], code)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="POSIX permissions")
def test_a_folder_that_others_can_write_to_is_not_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.chmod(0o777)
    assert machine_code.kernels_folder()[0] is None
    machine_code.machine_code([UNIT, "unpack_F16"])
    assert list(folder.iterdir()) == []
    assert capsys.readouterr().err.count("cannot be kept") == 1


def test_a_folder_that_cannot_be_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("a file")
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "file"))
    assert machine_code.machine_code([UNIT])[UNIT] != 0
    assert "cannot be kept" in capsys.readouterr().err


def test_what_a_read_only_folder_holds_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_code.machine_code([UNIT])
    forget()
    monkeypatch.setattr(machine_code.os, "access", lambda path, mode: False)
    monkeypatch.setattr(machine_code, "_compile", lambda names: pytest.fail(f"compiles {names} again"))
    assert machine_code.machine_code([UNIT])[UNIT] != 0


def test_a_full_disk_does_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine_code.os, "replace", full)
    assert machine_code.machine_code([UNIT])[UNIT] != 0
    assert list(folder.iterdir()) == []


def test_the_name_says_what_the_code_was_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    made_from = machine_code.made_from.__wrapped__
    here = made_from()
    assert made_from() == here
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64")
    assert made_from() != here
    monkeypatch.delenv("NUMBA_CPU_NAME")
    monkeypatch.setattr(machine_code, "__file__", str(Path(__file__)))
    assert made_from() != here


def test_a_terminal_is_told_of_compiling_and_of_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, second, plain = Terminal(), Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    machine_code.machine_code([UNIT])
    assert terminal.getvalue().startswith("compiling 1 kernels for this CPU, once …")
    forget()
    monkeypatch.setattr(sys, "stderr", second)
    machine_code.machine_code([UNIT])
    assert second.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", plain)
    machine_code.machine_code(["unpack_F16"])
    assert plain.getvalue() == ""
