"""The command line: `python -m tests.fuzzing --files 100000 --seed 1`, from the repository's folder."""

from __future__ import annotations

import pickle
import sys
import tempfile
from pathlib import Path

import click

from .attempt import Bench
from .cases import FIRST_LARGE, make_case
from .coverage import run_guided
from .memory_limit import IS_WATCHED
from .seeds import SeedModel, make_seeds
from .watch import CRASH, HANG, Report, run_cases

GROUPS = {
    "crashes": (CRASH,),
    "hangs": (HANG,),
    "beyond the memory": ("memory",),
    "tracebacks": ("traceback", "message"),
}


@click.command(help=__doc__)
@click.option("--files", default=1000, show_default=True, help="How many mutated files.")
@click.option("--seed", default=1, show_default=True, help="Another seed, other files.")
@click.option("--first", default=0, help="The number of the first case.")
@click.option("--large", is_flag=True, help="Only files of tens of megabytes, for the limits on memory and time.")
@click.option("--workers", default=1, show_default=True, help="Processes that try files at once.")
@click.option("--cpu/--no-cpu", default=True, help="Whether files that open run on the cpu backend too.")
@click.option("--only", type=int, help="Try the case of this number alone, in this process.")
@click.option("--keep", type=click.Path(path_type=Path), help="With --only: keep the mutated model in this folder.")
@click.option(
    "--coverage", type=int, metavar="SECONDS", help="Let atheris choose the mutations by the code they reach."
)
def main(
    files: int,
    seed: int,
    first: int,
    large: bool,
    workers: int,
    cpu: bool,
    only: int | None,
    keep: Path | None,
    coverage: int | None,
) -> None:
    with tempfile.TemporaryDirectory(prefix="ringlet-fuzzing-") as scratch:
        models = make_seeds(Path(scratch))
        seeds = Path(scratch) / "seeds.pickle"
        seeds.write_bytes(pickle.dumps(models))
        if coverage is not None:
            sys.exit(run_guided(seeds, seed, coverage))
        elif only is not None:
            sys.exit(run_one(models, seed, only, cpu, keep))
        else:
            sys.exit(run_many(models, seeds, seed, first + FIRST_LARGE * large, files, workers, cpu))


def run_one(models: list[SeedModel], seed: int, number: int, cpu: bool, keep: Path | None) -> int:
    case = make_case(seed, number, models)
    click.echo(str(case))
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        case.model.write(keep)
        (keep / case.file).write_bytes(case.content)
        click.echo(f"kept in {keep}: it would be opened as {keep / case.model.opened}")
    with tempfile.TemporaryDirectory(prefix="ringlet-fuzzing-") as folder:
        outcome = Bench(Path(folder), models, cpu).attempt(case)
    click.echo(f"{outcome.kind}: {outcome.text}")
    return 0 if outcome.is_good else 1


def run_many(models: list[SeedModel], seeds: Path, seed: int, first: int, files: int, workers: int, cpu: bool) -> int:
    if not IS_WATCHED:
        click.echo("memory is not watched on this system", err=True)
    told = 0
    for report in run_cases(seeds, seed, first, files, workers, cpu):
        for number, outcome in report.findings[told:]:
            click.echo(f"\n{make_case(seed, number, models)}\n{outcome.kind}: {outcome.text[-1500:]}")
        told = len(report.findings)
        if sys.stderr.isatty():
            click.echo(f"\r{report.counts.total()} of {files}", nl=False, err=True)
    click.echo(summary(report))
    return 1 if report.findings else 0


def summary(report: Report) -> str:
    counts, total = report.counts, report.counts.total()
    faults = ", ".join(f"{sum(counts[kind] for kind in kinds)} {name}" for name, kinds in GROUPS.items())
    rate = total / max(report.seconds, 1e-9)
    return (
        f"{total} files in {report.seconds:.0f} s ({rate:.0f}/s): {counts['refused']} refused in one line, "
        f"{counts['ran']} ran; {faults}. The slowest took {report.slowest[0]:.1f} s (case {report.slowest[1]}); "
        f"{len(report.slow)} were slow only once"
    )


if __name__ == "__main__":
    main()
