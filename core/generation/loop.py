"""The loop: schedule a step, run it, draw, collect. Prompts in chunks and drawn tokens share the steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.backend_calls import copy_ring, new_ring
from ringlet.core.completion import Chunk, Usage
from ringlet.core.generation.sequence import Request, Sequence
from ringlet.core.ring_cache import RingCache, RingLayout
from ringlet.core.step import run_step

LARGEST_CROWD = 32  # sequences that are in the works at once; others wait for a ring
CHUNKS_A_STEP = 4  # tokens in one step at most, in chunks


@dataclass
class PromptState:
    """How much of a prompt is computed. logits: float32 (d_vocab,) after its last token, once they are known."""

    ring: RingCache
    computed: int = 0
    logits: np.ndarray | None = None


@dataclass(frozen=True)
class Group:
    """Completions of one request that run together: the prompt is computed for the first, the others copy its ring.

    completions: which of the request's. index: the place of the request's first among all of a generation.
    """

    request: Request
    completions: range
    index: int

    @classmethod
    def all_of(cls, requests: SequenceOf[Request]) -> list[Group]:
        """Every completion in a group that may run at once."""
        groups, index = [], 0
        for request in requests:
            n = request.options.n
            for start in range(0, n, LARGEST_CROWD):
                groups.append(cls(request, range(start, min(start + LARGEST_CROWD, n)), index))
            index += n
        return groups


class Generation:
    """Several requests at once, over one backend.

    layout, kv_dtype: of every ring. removed_ids: ids that must never be drawn. first: what is known of the first
    request's prompt; when all is done it says what its ring holds.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Any,
        layout: RingLayout,
        kv_dtype: str,
        requests: SequenceOf[Request],
        removed_ids: np.ndarray,
        first: PromptState | None = None,
    ) -> None:
        self._backend, self._tokenizer, self._layout, self._kv_dtype = backend, tokenizer, layout, kv_dtype
        self._removed_ids, self._first = removed_ids, first
        self._waiting = deque(Group.all_of(requests))
        self._running: list[Sequence] = []
        self._prompts: dict[Sequence, tuple[Group, PromptState]] = {}  # being computed, by the group's first sequence
        self._free_rings: list[RingCache] = []

    def run(self) -> Iterator[tuple[int, Chunk]]:
        """(index of the completion, chunk), until all are finished."""
        while self._waiting or self._running:
            yield from self._admit()
            parts = self._schedule()
            logits = run_step(self._backend, [(sequence.ring, ids, wants) for sequence, ids, wants in parts])
            drawing = [sequence for sequence, _, wants in parts if wants == "last"]
            for sequence, row in zip(drawing, logits, strict=True):
                yield from self._collect(sequence, row)

    def _admit(self) -> Iterator[tuple[int, Chunk]]:
        """Start waiting groups while there is room for all their completions."""
        while self._waiting and self._crowd() + len(self._waiting[0].completions) <= LARGEST_CROWD:
            group = self._waiting.popleft()
            request = group.request
            if request.options.max_tokens == 0 or self._is_full(request):
                for completion in group.completions:
                    yield group.index + completion, nothing_drawn(request)
                continue
            is_first = self._first is not None and group.index + group.completions.start == 0
            state = self._first if is_first and self._first is not None else PromptState(self._ring())
            sequence = self._sequence(group, group.completions.start, state.ring, request.prompt_ids[state.computed :])
            self._prompts[sequence] = group, state
            self._running.append(sequence)
            if state.logits is not None:
                yield from self._collect(sequence, state.logits)

    def _crowd(self) -> int:
        """Sequences in the works, those included that wait for the prompt of their group."""
        return len(self._running) + sum(len(group.completions) - 1 for group, _ in self._prompts.values())

    def _sequence(self, group: Group, completion: int, ring: RingCache, pending: SequenceOf[int]) -> Sequence:
        return Sequence(group.request, completion, group.index + completion, ring, pending, self._tokenizer)

    def _schedule(self) -> list[tuple[Sequence, list[int], str]]:
        """Which ids each sequence contributes to the next step, and whether it draws after them.

        Sequences that already draw come first; prompts share what is left of the step.
        """
        left = max(self._layout.chunk * CHUNKS_A_STEP, len(self._running))
        parts = []
        for sequence in sorted(self._running, key=lambda sequence: len(sequence.pending) > 1):
            ids = sequence.pending[: min(self._layout.chunk, left)]
            if ids:
                sequence.pending = sequence.pending[len(ids) :]
                parts.append((sequence, ids, "none" if sequence.pending else "last"))
                left -= len(ids)
        return parts

    def _collect(self, sequence: Sequence, logits: np.ndarray) -> Iterator[tuple[int, Chunk]]:
        """Draw for a sequence; where the prompt of its group has just been finished, for the others too."""
        drawing = [sequence]
        if sequence in self._prompts:
            group, state = self._prompts.pop(sequence)
            state.logits = logits.copy()
            drawing += self._siblings(sequence, group)
        if len(self._removed_ids):
            logits = logits.copy()
            logits[self._removed_ids] = -np.inf
        for drawer in drawing:
            chunk = drawer.draw(logits)
            if drawer.finish_reason is not None:
                self._retire(drawer)
            yield drawer.index, chunk

    def _siblings(self, first: Sequence, group: Group) -> list[Sequence]:
        """The group's other completions: the prompt is computed, each gets a copy of the ring."""
        siblings = []
        for completion in group.completions[1:]:
            sibling = self._sequence(group, completion, self._copy(first.ring), [])
            sibling.began = first.began
            siblings.append(sibling)
        self._running += siblings
        return siblings

    def _retire(self, sequence: Sequence) -> None:
        """The sequence is finished; its ring serves another, unless it is the caller's."""
        self._running.remove(sequence)
        if self._first is None or sequence.ring is not self._first.ring:
            self._free_rings.append(sequence.ring)

    def _ring(self) -> RingCache:
        if not self._free_rings:
            return new_ring(self._backend, self._layout, self._kv_dtype)
        ring = self._free_rings.pop()
        ring.rewind(0)
        return ring

    def _copy(self, ring: RingCache) -> RingCache:
        return copy_ring(self._backend, ring, self._free_rings.pop() if self._free_rings else None)

    def _is_full(self, request: Request) -> bool:
        """The prompt alone fills the context; it is never longer."""
        return self._layout.overflow == "stop" and len(request.prompt_ids) >= self._layout.context


def nothing_drawn(request: Request) -> Chunk:
    """The only chunk of a completion without tokens."""
    return Chunk("", [], "length", Usage.of(len(request.prompt_ids), 0), {"prompt": 0.0, "generate": 0.0})
