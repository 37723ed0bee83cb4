"""Compiles kernels to machine code: PTX by numba-cuda, a cubin by NVIDIA's linker. Imports Numba; needs no GPU.

As a program it keeps the named kernels in the cache: python -m ringlet.plugins.backends.cuda.compile 9 0 NAME …
"""

from __future__ import annotations

import re
import sys

from ringlet.plugins.backends.cuda.kernel_cache import Capability, KernelFile, kernels_folder, write_kernel
from ringlet.plugins.backends.cuda.kernels.catalogue import kernel_named
from ringlet.plugins.backends.cuda.kernels.compiling import ptx_of

ENTRY = re.compile(r"\.entry\s+([\w$]+)")


def compile_kernel(name: str, capability: Capability) -> KernelFile:
    """A cubin; where the linker is missing PTX, which the driver compiles if it is not older than the compiler."""
    kernel = kernel_named(name)
    ptx = ptx_of(kernel, capability)
    found = ENTRY.search(ptx)
    if found is None:
        raise RuntimeError(f"the PTX of {name} has no entry")
    code = linked(ptx, capability) or ptx.encode() + b"\0"
    return KernelFile(found[1], kernel.kinds, kernel.threads, code)


def linked(ptx: str, capability: Capability) -> bytes | None:
    """The cubin that nvJitLink makes; None where it is missing, or older than what made the PTX."""
    try:
        from cuda.bindings import nvjitlink

        options = [f"-arch=sm_{capability[0]}{capability[1]}", "-O3"]
        handle = nvjitlink.create(len(options), options)
    except Exception:  # which one depends on the versions of what is there; the driver will say what it cannot compile
        return None
    try:
        text = ptx.encode()
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "kernel.ptx")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        return bytes(cubin)
    except Exception:
        return None
    finally:
        nvjitlink.destroy(handle)


def main(arguments: list[str]) -> None:
    capability = int(arguments[0]), int(arguments[1])
    folder, why = kernels_folder(capability)
    if folder is None:
        sys.exit(why)
    for name in arguments[2:]:
        write_kernel(folder, name, compile_kernel(name, capability))


if __name__ == "__main__":
    main(sys.argv[1:])
