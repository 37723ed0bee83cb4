"""The cuda backend on a GPU: whether it is right, and how fast; in under eight minutes.

    pip install -e ".[cuda]"
    python benchmarks/gpu.py --json gpu.json

makes models of random weights and three usual shapes, and prints Markdown tables as it goes: every kernel against
NumPy, logits beside the cpu backend's, decoding and prompts as a share of what the GPU can do at most, each kernel's
part of a step, and torch, where it is installed, doing the same matrix work. Without a GPU it says so, exit code 2.

    NUMBA_ENABLE_CUDASIM=1 python benchmarks/gpu.py --tiny

goes the same way in Numba's simulator with a tiny model: its speeds mean nothing, but the program has run.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from pathlib import Path

import click
from on_gpu.kernels import check_kernels, compile_kernels
from on_gpu.limits import Limits, measured_limits
from on_gpu.logits import check_logits
from on_gpu.models import SHAPES, TINY, as_dict
from on_gpu.report import Part, Report
from on_gpu.speeds import FULL, QUICK, measure_speed
from on_gpu.torch_peer import measure_torch

from ringlet.core.errors import RingletError
from ringlet.plugins.backends.cuda.availability import missing, open_device
from ringlet.plugins.backends.cuda.device import Device

MOST_SECONDS = 470  # of the whole run, which is cut off then
SECONDS = {"limits": 20, "compile": 80, "kernels": 50, "logits": 60, "8B": 90, "1.5B": 50, "0.5B": 40, "torch": 30}
LOGITS_OF = ("0.5B", "tiny")  # the larger take minutes on a CPU


def parts(device: Device, tiny: bool) -> list[tuple[str, str, Callable[[Part], None]]]:
    """Titles, names in SECONDS, and what is done."""
    shapes, limits = (TINY if tiny else SHAPES), list[Limits]()
    checked = {name: shape for name, shape in shapes.items() if name in LOGITS_OF}
    plan = QUICK if tiny else FULL
    found: list[tuple[str, str, Callable[[Part], None]]] = [
        ("What the GPU can do", "limits", lambda part: limits.append(measured_limits(part, device, tiny))),
        ("Compiling", "compile", lambda part: compile_kernels(part, device, tiny)),
        ("Every kernel against NumPy", "kernels", lambda part: check_kernels(part, device, tiny)),
        ("Logits", "logits", lambda part: check_logits(part, device, checked, tiny)),
    ]
    for name, shape in reversed(shapes.items()):

        def measure(part: Part, name: str = name, shape: object = shape) -> None:
            part.found["shape"] = as_dict(shapes[name])
            measure_speed(part, device, name, shapes[name], limits[0], plan)

        found.append((f"A model of {name}", name, measure))
    found.append(("torch, the same matrix work", "torch", lambda part: measure_torch(part, shapes, limits[0])))
    return found


@click.command()
@click.option("--device", "number", type=int, default=0, show_default=True, help="Which GPU.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all into this file.")
@click.option("--tiny", is_flag=True, help="A tiny model and few kernels, to see that this program works.")
@click.option("--only", help="Only the parts whose title has this text.")
def main(number: int, json_file: Path | None, tiny: bool, only: str | None) -> None:
    """Check and measure the cuda backend on a GPU."""
    lack = missing()
    if lack is not None:
        click.echo(f"Error: {lack.text}", err=True)
        sys.exit(2)
    try:
        device = open_device(number)
    except RingletError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    report = Report(MOST_SECONDS, json_file)
    print(f"# {device.name}, {device.multiprocessors} multiprocessors, Python {platform.python_version()}", flush=True)
    device.make_current()
    for title, name, work in parts(device, tiny):
        if only is None or only.lower() in title.lower() or name == "limits":
            report.run(title, SECONDS.get(name, 60), work)
    sys.exit(report.end())


if __name__ == "__main__":
    main()
