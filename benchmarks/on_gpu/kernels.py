"""Every kernel of the backend on a device, against NumPy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import gpu_code
import numpy as np
from on_gpu.check_attention import check_attention
from on_gpu.check_likeliest import check_likeliest
from on_gpu.check_products import check_lookup, check_product
from on_gpu.check_rows import check_angles, check_hidden, check_normalise, check_repack, check_soft_cap
from on_gpu.report import Part

from ringlet.plugins.backends.cuda.device import Device

Check = Callable[[Device, str, bool], float]
CHECKS: dict[str, Check] = {
    "repack": check_repack,
    "angles": check_angles,
    "normalise": check_normalise,
    "hidden": check_hidden,
    "soft_cap": check_soft_cap,
    "likeliest": check_likeliest,
    "lookup": check_lookup,
    "byte_product": check_product,
    "float_product": check_product,
    "tile_product": check_product,
    "attention": check_attention,
    "float_attention": check_attention,
}
ALONG = ("place", "place_bytes", "merge", "rank")  # are checked with attention, and with the likeliest
TINY = (
    "repack", "angles", "normalise", "hidden", "soft_cap", "likeliest", "lookup-Q4_K", "byte_product-Q4_0-2",
    "float_product-F16-1", "tile_product-Q8_0-warp", "attention-16-16-k16", "attention-16-16-k16-q8",
    "float_attention-16-16",
)  # fmt: skip


def names_of(device: Device, tiny: bool) -> list[str]:
    """Of all kernels on a GPU of this kind; tiny: one or two of a family, small enough for the simulator."""
    return list(TINY) if tiny else gpu_code.kernel_names(device.capability)


def compile_kernels(part: Part, device: Device, tiny: bool) -> None:
    names = [*names_of(device, tiny), *ALONG]
    with part.timed(f"{len(names)} kernels compiled, or read from the cache"):
        device.prepare(names)


def check_kernels(part: Part, device: Device, tiny: bool) -> None:
    """A row a family: how many kernels, and the largest error as a share of what is tolerated."""
    names = names_of(device, tiny)
    table = part.table("family", "kernels", "largest error / tolerated", "wrong")
    families: dict[str, list[str]] = defaultdict(list)
    for name in names:
        families[name.split("-")[0]].append(name)
    for family, members in families.items():
        if family in ALONG:
            continue
        errors: dict[str, float] = {}
        for name in members:
            if part.is_late():
                part.say(f"out of time: {len(members) - len(errors)} of {family} are left out")
                break
            errors[name] = error_of(part, device, name, tiny)
        wrong = [name for name, error in errors.items() if not error <= 1]
        table.row(family, len(errors), max(errors.values(), default=0.0), ", ".join(wrong) or "–")
        for name in wrong:
            part.wrong(f"{name}: error {errors[name]:.3g} times what is tolerated")


def error_of(part: Part, device: Device, name: str, tiny: bool) -> float:
    """As a share of what is tolerated; infinite where the kernel cannot be run."""
    try:
        return CHECKS[name.split("-")[0]](device, name, tiny)
    except Exception as error:  # one kernel that fails should not hide the others
        part.say(f"{name}: {type(error).__name__}: {error}")
        return np.inf
