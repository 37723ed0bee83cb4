"""How much memory a file may cost: 4 times its size, and 256 MB."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TIMES, BESIDE = 4, 256 * 1000 * 1000

try:
    import resource

    PAGE = resource.getpagesize()
    IS_WATCHED = Path("/proc/self/statm").exists()
except ImportError:
    IS_WATCHED = False


@contextmanager
def memory_for(file_bytes: int) -> Iterator[None]:
    """Within, address space beyond what a file of so many bytes may cost is refused: Python raises MemoryError.

    Address space is the strictest measure: memory that is asked for counts whether it is touched or not, and that of
    libraries too. The file's own mapping comes on top of what it may cost.
    """
    if not IS_WATCHED:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_bytes().split()[0]) * PAGE
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (TIMES + 1) * file_bytes + BESIDE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def ran_out(error: BaseException | None) -> bool:
    """Whether memory that was refused is behind an error, however it was put to the user."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        error = error.__cause__ or error.__context__
    return False
