"""The same kernels compiled for other CPUs of this kind: without half floats, fused sums or wide vectors."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the targets are those of x86-64")
@pytest.mark.parametrize(("name", "features"), [("x86-64", ""), ("x86-64-v3", "+avx2,+f16c,+fma")])
def test_kernels_for_another_cpu(name: str, features: str) -> None:
    import llvmlite.binding as llvm

    host = llvm.get_host_cpu_features()
    if not all(host.get(feature[1:]) for feature in features.split(",") if feature):
        pytest.skip(f"this CPU lacks some of {features}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    files = [str(TESTS / f"test_cpu_{name}.py") for name in ("kernels", "byte_product", "backend")]
    environment = os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [*command, *files], env=environment, cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
