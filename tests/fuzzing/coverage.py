"""Mutations chosen by the code that they reach: libFuzzer, through atheris, over the same models, uses and judgement.

Atheris sees the code that is imported after it, so that this is a process of its own: `run_guided` starts it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from random import Random

LONGEST_FILE = 300_000  # bytes


def run_guided(seeds: Path, seed: int, seconds: int) -> int:
    """Its exit code; seeds: a file of pickled seed models."""
    if find_spec("atheris") is None:
        print("--coverage needs atheris, which is not installed: pip install atheris", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", __name__, str(seeds), str(seed), str(seconds)]
    return subprocess.run(command, env=os.environ | {"RUST_BACKTRACE": "0"}, check=False).returncode


def main(seeds: str, seed: str, seconds: str) -> None:
    import atheris

    with atheris.instrument_imports(include=["ringlet"]):
        from .attempt import Bench
        from .cases import Case, mutations_for

    models = pickle.loads(Path(seeds).read_bytes())
    files = [(model, name) for model in models for name in model.files]  # the first byte of the data says which
    folder = Path(tempfile.mkdtemp(prefix="ringlet-fuzzing-"))
    bench = Bench(folder, models, with_cpu=False)

    def try_one(data: bytes) -> None:
        model, name = files[data[0] % len(files)] if data else files[0]
        case = Case(0, model, name, data[1:], ("by coverage",), model.uses[0], "the ring", on_cpu=False)
        outcome = bench.attempt(case)
        if not outcome.is_good:
            raise RuntimeError(f"{case}\n{outcome.kind}: {outcome.text}")

    def mutate(data: bytes, longest: int, number: int) -> bytes:
        """One of our own mutations of a seed, or libFuzzer's of what it has found."""
        random = Random(number)
        if random.random() < 0.5:
            return atheris.Mutate(data, longest)
        index = random.randrange(len(files))
        model, name = files[index]
        known = mutations_for(name)
        return (bytes([index]) + known[random.choice(list(known))](random, model.files[name]))[:longest]

    corpus = folder / "corpus"
    corpus.mkdir()
    for index, (model, name) in enumerate(files):
        (corpus / str(index)).write_bytes(bytes([index]) + model.files[name])
    options = {"max_total_time": seconds, "seed": seed, "max_len": LONGEST_FILE, "timeout": 5, "rss_limit_mb": 0}
    options["artifact_prefix"] = f"{folder}/"
    arguments = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], try_one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
