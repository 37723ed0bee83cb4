"""One case: the file is written, opened and used as a user would, and what comes of it is judged."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from ringlet.cli import main
from ringlet.core.errors import RingletError
from ringlet.core.pipeline import Pipeline
from ringlet.plugins.backends.cpu.tables import needed_units
from ringlet.tokenization.tokenizer import Tokenizer

from .cases import Case
from .memory_limit import memory_for, ran_out
from .seeds import SeedModel

LONGEST_LINE = 1000
RAN, REFUSED = "ran", "refused"  # the two good outcomes; the others:
MEMORY, TRACEBACK, MESSAGE = "memory", "traceback", "message"


@dataclass(frozen=True)
class Outcome:
    """kind: one of the names above. text: Ringlet's line, or the traceback."""

    kind: str
    text: str = ""

    @property
    def is_good(self) -> bool:
        return self.kind in (RAN, REFUSED)


class Bench:
    """Tries cases one after the other in a folder of its own.

    with_cpu: whether files that open also run on the cpu backend, as long as its kernels for them are compiled: those
    that the seeds themselves need.
    """

    def __init__(self, folder: Path, models: list[SeedModel], with_cpu: bool) -> None:
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)
        self.folders = {}
        for index, model in enumerate(models):
            self.folders[model.name] = folder / str(index)
            (folder / str(index)).mkdir()
            model.write(folder / str(index))
        self.units: set[str] = set()
        for model in models:  # what is loaded, compiled and kept once is no file's fault
            path = self.folders[model.name] / model.opened
            for use in model.uses:
                pipe = USES[use](path, "the ring")
                if pipe is not None and with_cpu:
                    self.units |= set(needed_units(pipe.model.weights))
                    generate(path, "the ring", "cpu")

    def attempt(self, case: Case) -> Outcome:
        place = self.folders[case.model.name] / case.file
        original = case.model.files[case.file]
        place.unlink()
        place.write_bytes(case.content)
        size = sum(map(len, case.model.files.values())) - len(original) + len(case.content)
        try:
            with memory_for(size):
                return judged(lambda: self.use(case))
        except MemoryError as error:  # so little was left that it could not even be judged
            return Outcome(MEMORY, str(error))
        finally:
            place.unlink()  # an array may still map it: it is not written over
            place.write_bytes(original)

    def use(self, case: Case) -> None:
        path = self.folders[case.model.name] / case.model.opened
        pipe = USES[case.use](path, case.prompt)
        if pipe is not None and case.on_cpu and set(needed_units(pipe.model.weights)) <= self.units:
            generate(path, case.prompt, "cpu")


def generate(path: Path, prompt: str, backend: str = "numpy") -> Pipeline:
    """A few tokens of the model."""
    pipe = Pipeline.from_pretrained(path, backend=backend, threads=1)
    pipe.generate(prompt or [0], max_tokens=3, seed=1, ignore_eos=True)
    return pipe


def inspect(path: Path, prompt: str) -> None:
    """The command, in this process."""
    ran = CliRunner().invoke(main, ["inspect", str(path)])
    if ran.exit_code == 2 and ran.stderr.startswith("Error: ") and isinstance(ran.exception, SystemExit):
        raise RingletError(ran.stderr.removeprefix("Error: ").removesuffix("\n"))
    if ran.exit_code:
        raise AssertionError(f"exit code {ran.exit_code}: {ran.stderr}") from ran.exception


def tokenize(path: Path, prompt: str) -> None:
    """What the vocabulary makes of the prompt."""
    tokenizer = Tokenizer.from_pretrained(path)
    tokenizer.decode(tokenizer.encode(prompt))


USES: dict[str, Callable[[Path, str], Pipeline | None]] = {
    "generate": generate,
    "inspect": inspect,
    "tokenize": tokenize,
}


def judged(call: Callable[[], object]) -> Outcome:
    try:
        call()
        return Outcome(RAN)
    except RingletError as error:
        if ran_out(error):
            return Outcome(MEMORY, str(error))
        line = str(error)
        is_one_line = line.isprintable() and 0 < len(line) < LONGEST_LINE
        return Outcome(REFUSED, line) if is_one_line else Outcome(MESSAGE, repr(line[:LONGEST_LINE]))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        return Outcome(MEMORY if ran_out(error) else TRACEBACK, traceback.format_exc(limit=-12))
