"""The rings of a generation: made when they are needed, and used again for one sequence after another."""

from __future__ import annotations

from ringlet.core.backend import Backend
from ringlet.core.backend_calls import copy_ring, new_ring
from ringlet.core.ring_cache import RingCache, RingLayout


class RingPool:
    """layout, kv_dtype: of every ring. kept: a ring that is the caller's, and never goes to another sequence."""

    def __init__(self, backend: Backend, layout: RingLayout, kv_dtype: str, kept: RingCache | None = None) -> None:
        self.layout = layout
        self._backend, self._kv_dtype, self._kept = backend, kv_dtype, kept
        self._free: list[RingCache] = []

    def empty(self) -> RingCache:
        """A ring that holds nothing."""
        if not self._free:
            return new_ring(self._backend, self.layout, self._kv_dtype)
        ring = self._free.pop()
        ring.rewind(0)
        return ring

    def copy_of(self, ring: RingCache) -> RingCache:
        """Another ring that holds what this one does."""
        return copy_ring(self._backend, ring, self._free.pop() if self._free else None)

    def overwrite(self, target: RingCache, source: RingCache, shared: int) -> None:
        """Let the target hold what the source does; of both, the first `shared` tokens are the same."""
        copy_ring(self._backend, source, target, shared)

    def give_back(self, ring: RingCache) -> None:
        """The ring is needed no more."""
        if ring is not self._kept:
            self._free.append(ring)
