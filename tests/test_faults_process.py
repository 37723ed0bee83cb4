"""A process that is interrupted or killed at any moment, two at the same work, a clock that jumps."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tiny_pipeline import random_pipeline

from ringlet.core import user_cache
from ringlet.core.pipeline import Pipeline
from ringlet.core.terminal import console, interrupts
from ringlet.plugins.backends.cpu import kept_code, machine_code

REPOSITORY = Path(__file__).resolve().parent.parent
POSIX = pytest.mark.skipif(os.name == "nt", reason="signals to a process of one's own are POSIX's")
UNITS = ["unpack_F32", "unpack_F16"]
FOREVER = ["generate", "春", "--overflow", "slide", "--ignore-eos", "--max-tokens", "9999999", "--backend"]
STARTED = """
import sys

class Begun:
    def find_spec(self, name, *rest):
        if name == "ringlet.core.terminal.interrupts":
            print("begun", flush=True)

sys.meta_path.insert(0, Begun())
from ringlet.cli import main
main(sys.argv[1:])
"""


@POSIX
def test_an_interrupt_that_a_library_drops_comes_again() -> None:
    def chunks() -> Iterator[Any]:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        yield None  # never looked at

    with interrupts.quiet_elsewhere(), interrupts.awaited(), pytest.raises(KeyboardInterrupt):
        console.print_chunks(chunks())


@POSIX
@pytest.mark.parametrize(
    ("backend", "seconds"),
    [
        *(("numpy", seconds) for seconds in (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0)),
        ("cpu", 0.6),
        ("cpu", 1.2),
    ],
)
def test_ctrl_c_is_quiet_from_the_first_import_on(backend: str, seconds: float) -> None:
    """While we are imported, while a model is loaded, at the first token and after many."""
    command = [sys.executable, "-c", STARTED, *FOREVER, backend]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"")


IN_A_FINALIZER = """
import ringlet.cli

class Finalized:
    def __init__(self, fault):
        self.fault = fault
    def __del__(self):
        raise self.fault

Finalized(ValueError("another fault"))
try:
    Finalized(KeyboardInterrupt())
    for _ in range(10_000_000):
        pass
    print("lost")
except KeyboardInterrupt:
    print("kept")
"""


def test_ctrl_c_in_a_finalizer_is_not_lost() -> None:
    """There Python can raise nothing, and only reports it; this goes for the callbacks of its own imports too."""
    ran = subprocess.run([sys.executable, "-c", IN_A_FINALIZER], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "kept\n"
    assert "another fault" in ran.stderr
    assert "KeyboardInterrupt" not in ran.stderr


AMONG_THE_COMMANDS_OF_CLICK = """
import os, signal, sys
from ringlet.cli import main

def interrupted(*arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)

main.{method} = interrupted
main(["plugins", "list"])
"""


@POSIX
@pytest.mark.parametrize("method", ["make_context", "invoke", "parse_args"])
def test_ctrl_c_between_our_code_and_click_s_is_quiet_too(method: str) -> None:
    code = AMONG_THE_COMMANDS_OF_CLICK.format(method=method)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")


def test_python_s_own_way_with_ctrl_c_is_there_again_afterwards() -> None:
    from click.testing import CliRunner

    from ringlet.cli import main

    before = signal.getsignal(signal.SIGINT)
    assert CliRunner().invoke(main, ["--version"]).exit_code == 0
    assert signal.getsignal(signal.SIGINT) is before


@POSIX
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_pipeline_that_was_interrupted_anywhere_goes_on_as_if_it_had_not_been(backend: str, tmp_path: Path) -> None:
    """The same tokens, from the same steps: what the ring holds is never half of a step."""
    pipe, fresh = (Pipeline.from_pretrained(backend=backend, context=96, overflow="slide", sinks=2) for _ in range(2))
    prompts = ["春眠不觉晓，处处闻啼鸟。\n夜来风雨声，", "床前明月光，疑是地上霜。\n", "白日依山尽，"]
    expected = [fresh.generate(prompt, 20, seed=1, ignore_eos=True).token_ids for prompt in prompts]
    draws = random.Random(7)
    for turn in range(12):
        timer = threading.Timer(draws.uniform(0, 0.02), os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come in any of them
            timer.start()
            for _ in range(100_000):
                pipe.generate(prompts[turn % 3], 40, seed=turn, ignore_eos=True)
        timer.join()
        if turn % 4 == 3:
            found = [pipe.generate(prompt, 20, seed=1, ignore_eos=True).token_ids for prompt in prompts]
            assert found == expected
            pipe.save_session(tmp_path / "session")
            fresh.load_session(tmp_path / "session")
            assert fresh.generate(prompts[2], 20, seed=1, ignore_eos=True).token_ids == expected[2]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_an_interrupt_while_a_session_is_saved_leaves_the_old_file(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, path = random_pipeline(), tmp_path / "session"
    pipe.generate("the ring", 20, seed=1, ignore_eos=True)
    pipe.save_session(path)
    before = path.read_bytes()
    expected = pipe.generate("the sea", 20, seed=1, ignore_eos=True).token_ids

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, function, interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipe.save_session(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["session"]
    pipe.save_session(path)  # what it had is still there
    other = random_pipeline()
    other.load_session(path)
    assert other.generate("the sea", 20, seed=1, ignore_eos=True).token_ids == expected


# --- kernels that are compiled ---------------------------------------------------------------------------------------

COMPILING = """
import os, signal, sys
from ringlet.plugins.backends.cpu import kept_code, machine_code
{before}
found = machine_code.machine_code({units!r})
print(all(found.values()))
"""


def compiling(folder: Path, before: str = "") -> subprocess.Popen:
    code = COMPILING.format(before=before, units=UNITS)
    environment = {**os.environ, "RINGLET_CACHE": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def kept_units(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those that a new process would find and trust."""
    monkeypatch.setenv("RINGLET_CACHE", str(folder))
    kept, _ = kept_code.kernels_folder()
    assert kept is not None
    return [name for name in UNITS if kept_code.read_unit(kept, name) is not None]


@POSIX
@pytest.mark.parametrize(
    "moment",
    ["os.replace = killed", "kept_code.json.dumps = killed", "kept_code.tempfile.mkstemp = killed"],
)
def test_a_process_killed_while_it_keeps_kernels_harms_no_later_one(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compiling(tmp_path, f"killed = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n{moment}")
    first.communicate(timeout=120)
    assert first.returncode == -signal.SIGKILL
    assert kept_units(tmp_path, monkeypatch) == []
    second = compiling(tmp_path)
    assert second.communicate(timeout=120) == (b"True\n", b"")
    assert kept_units(tmp_path, monkeypatch) == UNITS


def test_two_processes_that_compile_at_once_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [compiling(tmp_path) for _ in range(2)]
    assert [process.communicate(timeout=120) for process in both] == [(b"True\n", b"")] * 2
    assert kept_units(tmp_path, monkeypatch) == UNITS
    (kept,) = (tmp_path / "kernels").iterdir() if (tmp_path / "kernels").is_dir() else [kept_code.kernels_folder()[0]]
    assert sorted(file.name for file in kept.iterdir()) == sorted(f"{name}.o" for name in UNITS)  # nothing half-written


# --- the clock -------------------------------------------------------------------------------------------------------

YEAR = 365 * 86400


@pytest.mark.parametrize("years", [-30, -1, 1, 100])
def test_kernels_are_found_and_kept_whatever_the_clock_says(
    years: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path))
    monkeypatch.setattr(machine_code, "_addresses", {})
    machine_code.machine_code(UNITS[:1])
    monkeypatch.setattr(user_cache, "time", lambda: time.time() + years * YEAR)
    machine_code._addresses.clear()
    with monkeypatch.context() as patched:
        patched.setattr(machine_code, "_compile", lambda names: pytest.fail(f"compiles {names} again"))
        machine_code.machine_code(UNITS[:1])
    machine_code.machine_code(UNITS[1:])  # a new one clears away what is old, but not what is in use
    assert kept_units(tmp_path, monkeypatch) == UNITS


def test_timings_are_those_of_a_clock_that_does_not_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = random_pipeline().generate("the ring", 20, seed=1, ignore_eos=True)
    jumps = random.Random(3)
    monkeypatch.setattr(time, "time", lambda: jumps.uniform(-1e9, 1e10))
    monkeypatch.setattr(time, "time_ns", lambda: jumps.randrange(1 << 60))
    found = random_pipeline().generate("the ring", 20, seed=1, ignore_eos=True)
    assert found.token_ids == expected.token_ids
    assert all(0 <= seconds < 60 for seconds in found.timings.values())
