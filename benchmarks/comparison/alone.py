"""One engine at work in a process of its own, which prints how much memory it took at most, in bytes.

python -m comparison.alone ENGINE MODEL THREADS PROMPT GENERATE
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main(engine_name: str, model: str, threads: str, prompt: str, generate: str) -> None:
    if engine_name == "ringlet":
        from comparison.ringlet_engine import RingletEngine as Chosen

        engine = Chosen()
    else:
        from comparison.llama_engine import LlamaCpp

        engine = LlamaCpp(flash_attention=True)
    n_prompt, n_generate = int(prompt), int(generate)
    engine.load(Path(model), int(threads), n_prompt + n_generate)
    engine.hold([], 1)
    engine.prefill([at % 100 for at in range(n_prompt)])
    engine.decode([at % 100 for at in range(n_generate)])
    print(peak_bytes())


def peak_bytes() -> int:
    """Of this process so far. (Linux's ru_maxrss of a process begins with what its parent had.)"""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.findall(r"VmHWM:\s*(\d+) kB", status.read_text())[0])
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main(*sys.argv[1:])
