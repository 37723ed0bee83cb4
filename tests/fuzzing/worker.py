"""A process that tries cases: it is told which on standard input, and says what it begins and what came of it.

Importing costs half a second and a case a few milliseconds, so that one worker tries thousands. It is started by
`watch`, which sees when it dies or falls silent.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from pathlib import Path

from .attempt import Bench
from .cases import make_case

READY, MAKING, BEGUN, ENDED = "ready", "making", "begun", "ended"


def main(seeds: str, seed: str, with_cpu: str) -> None:
    """seeds: a file of pickled seed models. On standard input, a line each: the first case and how many."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    models = pickle.loads(Path(seeds).read_bytes())
    with tempfile.TemporaryDirectory(prefix="ringlet-fuzzing-") as folder:
        bench = Bench(Path(folder), models, with_cpu == "True")
        print(json.dumps([READY]), file=answers)
        for line in sys.stdin:
            first, count = map(int, line.split())
            for number in range(first, first + count):
                print(json.dumps([MAKING, number]), file=answers)
                case = make_case(int(seed), number, models)
                print(json.dumps([BEGUN, number]), file=answers)
                outcome = bench.attempt(case)
                print(json.dumps([ENDED, number, outcome.kind, outcome.text]), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
