"""How fast whole steps are: decoding at several depths and batches, prompts; and where a step's time goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from on_gpu.limits import Limits
from on_gpu.models import Shape, bytes_read, operations, ring_bytes_read, synthetic
from on_gpu.paper_device import Launch
from on_gpu.report import Part, Share
from on_gpu.traffic import StepTraffic, Traffic

from ringlet.core.batch import Batch
from ringlet.core.drawing_plan import LISTED
from ringlet.core.errors import RingletError
from ringlet.core.ring_cache import RingCache, RingLayout
from ringlet.core.step import run_step, run_step_for_likeliest
from ringlet.plugins.backends.cuda.backend import CudaBackend
from ringlet.plugins.backends.cuda.device import Device
from ringlet.plugins.backends.cuda.planning import shape_of

FILLING = 1 << 24  # bytes of random keys and values, copied over a whole ring
SHARES = ("of bandwidth", "of bf16 peak")
FIRST_STEPS = 3  # compile, record, replay


@dataclass(frozen=True)
class Plan:
    """decode: depth and batch. prompts: tokens and batch. profiled: depth, batch and a prompt's tokens.

    seconds: of steps, for one figure."""

    decode: Sequence[tuple[int, int]]
    prompts: Sequence[tuple[int, int]]
    profiled: tuple[int, int, int]
    seconds: float
    steps: int  # at most


FULL = Plan(
    decode=(
        *((0, batch) for batch in (1, 2, 4, 8, 16, 32, 64)),
        *((4096, batch) for batch in (1, 8, 64)),
        *((32_768, batch) for batch in (1, 8)),
    ),
    prompts=((512, 1), (4096, 1), (512, 8)),
    profiled=(4096, 8, 512),
    seconds=0.4,
    steps=100,
)
QUICK = Plan(decode=((0, 1), (40, 2)), prompts=((10, 1),), profiled=(20, 2, 10), seconds=0.1, steps=1)


def measure_speed(part: Part, device: Device, name: str, shape: Shape, limits: Limits, plan: Plan) -> None:
    with part.timed("making the model"):
        model = synthetic(name, shape)
    with part.timed("loading it"):
        backend = CudaBackend(*model, device=device)
    part.fact("weights, GB", model[1].nbytes / 1e9)
    table = part.table("work", "depth", "batch", "tokens/s", "ms a step", "ms of it on the GPU", *SHARES)
    for kind, depth, batch in (*(("decode", *sizes) for sizes in plan.decode), *(("prompt", *s) for s in plan.prompts)):
        if part.is_late():
            part.say(f"out of time: {kind} {depth} × {batch} and what follows are left out")
            break
        try:
            table.row(*measured(backend, kind, depth, batch, limits, plan))
        except RingletError as error:
            part.say(f"{kind} at {depth}, batch {batch}: {error}")
    for title, parts in profiled_steps(backend, plan):
        if part.is_late():
            break
        profile(part, backend, title, parts, limits)


def measured(backend: CudaBackend, kind: str, size: int, batch: int, limits: Limits, plan: Plan) -> tuple:
    """A row. size: tokens before those that are decoded, or tokens of a prompt."""
    config, weights = backend.config, backend.weights
    if kind == "decode":
        rings = [filled_ring(backend, size, plan.steps + 2 * FIRST_STEPS) for _ in range(batch)]
        step = seconds_a_step(lambda: run_step_for_likeliest(backend, [(ring, [1], "last") for ring in rings]), plan)
        least = bytes_read(config, weights) + batch * ring_bytes_read(config, size)
        work, n_tokens = 2.0 * batch * weights_of(backend), batch
    else:
        rings = [filled_ring(backend, 0, size) for _ in range(batch)]

        def prompt() -> None:
            for ring in rings:
                ring.rewind(0)
            run_step(backend, [(ring, [1] * size, "last") for ring in rings])

        step = seconds_a_step(prompt, plan)
        least, work, n_tokens = None, batch * operations(config, size, 1), batch * size
    bandwidth = None if least is None else Share(least / step / limits.bandwidth)
    peak = None if limits.peak is None else Share(work / step / limits.peak)
    return kind, size, batch, n_tokens / step, 1000 * step, graph_milliseconds(backend), bandwidth, peak


def graph_milliseconds(backend: CudaBackend) -> float | None:
    """Of the last step's graph alone, if it was recorded: the rest is Python, and copying the likeliest to the host."""
    if not backend._graphs:
        return None
    graph = next(reversed(backend._graphs.values()))
    return 1000 * backend.device.seconds(lambda: backend.device.replay(graph))


def weights_of(backend: CudaBackend) -> float:
    """Weights that one token is multiplied with."""
    return operations(backend.config, 1, 1) / 2


def filled_ring(backend: CudaBackend, depth: int, room: int) -> RingCache:
    """A ring that holds so many tokens, whose keys and values are random, and has room for more."""
    ring = backend.new_ring(RingLayout.of(backend.config, depth + room, chunk=max(1, room)), "f16")
    if depth == 0:
        return ring
    memory, device = ring.memory, backend.device
    begin, end = int(memory._records()[0][0]), memory.address + memory.nbytes  # where the first keys are
    noise = np.random.default_rng(0).standard_normal(min(FILLING, end - begin) // 2).astype(np.float16)
    device.upload(noise, begin)
    for at in range(begin + noise.nbytes, end, noise.nbytes):
        device.copy(begin, at, min(noise.nbytes, end - at))
    ring.append([1] * depth)
    return ring


def seconds_a_step(step: Callable[[], object], plan: Plan) -> float:
    """The median, after the first steps, which compile and record."""
    for _ in range(min(FIRST_STEPS, plan.steps)):
        step()
    taken: list[float] = []
    while not taken or (len(taken) < plan.steps and sum(taken) < plan.seconds):
        begin = time.perf_counter()
        step()
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))


def profiled_steps(backend: CudaBackend, plan: Plan) -> list[tuple[str, list]]:
    depth, batch, size = plan.profiled
    rings = [filled_ring(backend, depth, 1) for _ in range(batch)]
    return [
        (f"a token at depth {depth}", [(rings[0], [1], "last")]),
        (f"a token of each of {batch} at depth {depth}", [(ring, [1], "last") for ring in rings]),
        (f"a prompt of {size}", [(filled_ring(backend, 0, size), [1] * size, "last")]),
    ]


def profile(part: Part, backend: CudaBackend, title: str, parts: list, limits: Limits) -> None:
    """A row a kernel: all its launches of a step, replayed without the others' between."""
    config, device = backend.config, backend.device
    batch = Batch.of(parts, config.d_vocab)
    listed = min(LISTED, config.d_vocab)
    backend.forward_likeliest(batch, listed)
    shape = shape_of(batch, config, device.multiprocessors, listed)
    launches = launches_of(backend, lambda: backend._step.run(shape))
    step, groups = StepTraffic(batch, config), defaultdict[str, list[Launch]](list)
    counted: dict[str, Traffic] = defaultdict(lambda: Traffic(0, 0))
    for launch in launches:
        groups[launch.name].append(launch)
        counted[launch.name] = counted[launch.name].plus(step.of(launch))
    part.say(title)
    table = part.table("kernel", "launches", "ms", "MB", "GB/s", "of bandwidth", "moved / least")
    for name, group in groups.items():
        graph = device.record(lambda group=group: [device.launch(*launch) for launch in group])  # type: ignore[misc]
        device.replay(graph)
        seconds, (moved, least) = device.seconds(lambda graph=graph: device.replay(graph)), counted[name]  # type: ignore[misc]
        speed = least / seconds
        share = Share(speed / limits.bandwidth)
        table.row(f"`{name}`", len(group), 1000 * seconds, least / 1e6, speed / 1e9, share, moved / least)


def launches_of(backend: CudaBackend, work: Callable[[], None]) -> list[Launch]:
    """What `work` would launch."""
    found: list[Launch] = []
    device = backend.device
    device.launch = lambda name, grid, arguments: found.append(Launch(name, grid, tuple(arguments)))  # type: ignore[method-assign]
    try:
        work()
    finally:
        del device.launch  # what the class has comes back
    return found
