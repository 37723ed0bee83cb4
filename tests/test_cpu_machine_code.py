"""How compiled kernels are kept: found again without Numba, apart from others, trusted only if they are whole."""

from __future__ import annotations

import gc
import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringlet.plugins.backends.cpu import compile_together, compiling, kept_code, machine_code

UNIT = "unpack_F32"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and a process that has loaded nothing."""
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path))
    monkeypatch.setattr(machine_code, "_addresses", {})
    kept, _ = kept_code.kernels_folder()
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
    assert kept_code.read_unit(folder, UNIT) is None
    forget()
    machine_code.machine_code([UNIT])
    assert kept_code.read_unit(folder, UNIT) == (head["symbol"], code)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="POSIX permissions")
def test_a_folder_that_others_can_write_to_is_not_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.chmod(0o777)
    assert kept_code.kernels_folder()[0] is None
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

    monkeypatch.setattr(kept_code.os, "replace", full)
    assert machine_code.machine_code([UNIT])[UNIT] != 0
    assert list(folder.iterdir()) == []


def test_the_name_says_what_the_code_was_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    made_from = kept_code.made_from.__wrapped__
    here = made_from()
    assert made_from() == here
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64")
    assert made_from() != here
    monkeypatch.delenv("NUMBA_CPU_NAME")
    monkeypatch.setattr(kept_code, "__file__", str(Path(__file__)))
    assert made_from() != here


def test_a_terminal_is_told_of_compiling_and_of_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, second, plain = Terminal(), Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    machine_code.machine_code([UNIT, "unpack_F16"])
    lines = terminal.getvalue().split("\r\033[K")
    told = {
        "compiling kernels for this CPU, once: unpack_F32 (1 of 2)",
        "compiling kernels for this CPU, once: unpack_F16 (2 of 2)",
    }
    assert (lines[0], set(lines[1:-1]), lines[-1]) == ("", told, "")
    forget()
    monkeypatch.setattr(sys, "stderr", second)
    machine_code.machine_code([UNIT])
    assert second.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", plain)
    machine_code.machine_code(["unpack_F16", "unpack_Q4_0"])
    assert plain.getvalue() == ""


# --- compiling -------------------------------------------------------------------------------------------------------


class Kept(dict):
    """What `compile_together` hands over."""

    def __call__(self, name: str, symbol: str, code: bytes) -> None:
        assert name not in self
        self[name] = (symbol, code)


NAMES = ["unpack_F32", "unpack_F16", "unpack_BF16", "unpack_Q4_0", "unpack_Q8_0"]


@pytest.mark.parametrize("n_processes", [1, 2, 3])
def test_every_unit_is_compiled_once(n_processes: int) -> None:
    kept, told = Kept(), []
    compile_together.compile_together(NAMES, n_processes, kept, told.append)
    assert sorted(kept) == sorted(NAMES)
    assert [text.rsplit("(")[-1] for text in told] == [f"{at} of 5)" for at in range(1, 6)]
    assert all(symbol.encode() in code for symbol, code in kept.values())


def test_the_first_units_are_begun_first() -> None:
    told: list[str] = []
    compile_together.compile_together(NAMES, 2, Kept(), told.append)
    assert [text.split()[-4] for text in told] == NAMES


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit",
        "input()",
        "print(input())",
        "input(); print('[\"symbol\", 100]'); print('short')",
        "input(); import os; os.kill(os.getpid(), 9)",
    ],
)
def test_a_helper_that_fails_is_done_without(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = subprocess.Popen
    monkeypatch.setattr(
        compile_together.subprocess,
        "Popen",
        lambda command, **options: started([sys.executable, "-c", program], **options),
    )
    kept = Kept()
    compile_together.compile_together(NAMES, 2, kept, lambda text: None)
    assert sorted(kept) == sorted(NAMES)


def test_where_no_process_can_be_started_one_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_together.sys, "executable", "")
    kept = Kept()
    compile_together.compile_together(NAMES[:2], 4, kept, lambda text: None)
    assert sorted(kept) == sorted(NAMES[:2])


def test_an_interrupt_ends_the_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers = []

    class Noted(subprocess.Popen):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)
            helpers.append(self)

    def interrupted(work: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compile_together.subprocess, "Popen", Noted)
    monkeypatch.setattr(compile_together._Work, "compile_here", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compile_together.compile_together(NAMES, 3, Kept(), lambda text: None)
    assert [helper.poll() is not None for helper in helpers] == [True, True]


@pytest.mark.parametrize("way", ["as a whole", "as Numba does"])
def test_a_kernel_computes_the_same_whether_its_parts_wait_or_not(way: str) -> None:
    """Each in a process of its own, since Numba keeps what it has compiled."""
    program = """
import ctypes, sys
import numpy as np
from ringlet.core.quantization import dequantize
from ringlet.plugins.backends.cpu import compiling, machine_code, units
compiling._CAN_WAIT = sys.argv[1] == "as a whole"
machine_code._install("unit", *units.compile_unit("unpack_Q6_K"))
arguments = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 3
function = ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(machine_code._addresses["unit"])
row = np.random.default_rng(3).integers(0, 255, 4 * 210, np.uint8)
row[208::210], row[209::210] = 0, 0x2E
values, unused = np.zeros(1024, np.float32), ctypes.c_void_p()
function(ctypes.byref(unused), ctypes.byref(unused), row.ctypes.data, 1024, values.ctypes.data)
print(np.abs(values).max() > 0, np.array_equal(values, dequantize(row[None], "Q6_K", 1024)[0]))
"""
    done = subprocess.run([sys.executable, "-c", program, way], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_garbage_is_collected_again_afterwards() -> None:
    assert gc.isenabled()
    with compiling._no_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with compiling._no_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_others_compile_is_left_alone() -> None:
    """Numba compiles as ever, functions of its own and those that call a kernel of ours, once a unit is compiled."""
    program = """
import numba
from ringlet.plugins.backends.cpu import units
from ringlet.plugins.backends.cpu.memory import load_f32s
from ringlet.plugins.backends.cpu.simd import sum_lanes
from ringlet.plugins.backends.cpu.target import LANES
import numpy as np
units.compile_unit("unpack_Q4_0"), units.compile_unit("multiply_F32")
@numba.njit
def total(address):
    return sum_lanes(load_f32s(address))
numbers = np.arange(LANES, dtype=np.float32)
print(total(numbers.ctypes.data) == numbers.sum())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


# --- old folders -----------------------------------------------------------------------------------------------------


def aged(folder: Path, days: float) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "step.o").write_bytes(b"old")
    then = time.time() - days * 86400
    os.utime(folder, (then, then))
    return folder


def test_folders_that_nothing_has_used_for_long_are_removed(folder: Path) -> None:
    used, unused = aged(folder.parent / ("a" * 24), 29), aged(folder.parent / ("b" * 24), 31)
    other = aged(folder.parent / "something else", 400)
    aged(folder, 400)
    machine_code.machine_code([UNIT])
    assert (used.exists(), unused.exists(), other.exists()) == (True, False, True)
    assert (folder / f"{UNIT}.o").exists()


def test_a_warm_start_notes_that_a_folder_is_used(folder: Path) -> None:
    machine_code.machine_code([UNIT])
    aged(folder, 20)
    forget()
    machine_code.machine_code([UNIT])
    assert time.time() - folder.stat().st_mtime < 60


def test_a_folder_that_vanishes_while_units_are_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(*_: object) -> bool:
        shutil.rmtree(folder)
        return True

    monkeypatch.setattr(machine_code.os, "access", vanish)
    assert machine_code.machine_code([UNIT])[UNIT] != 0
