"""The loop: schedule a step, run it, draw, collect. Prompts in chunks and drawn tokens share the steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.batch import Batch
from ringlet.core.completion import Chunk, Usage
from ringlet.core.errors import PluginError, RingletError, fault_text
from ringlet.core.ring_cache import RingCache, RingLayout
from ringlet.core.sampling import check_logits
from ringlet.core.sequence import Request, Sequence

LARGEST_CROWD = 32  # sequences that are in the works at once; others wait for a ring
CHUNKS_A_STEP = 4  # tokens in one step at most, in chunks


@dataclass
class PromptState:
    """How much of a prompt is computed. logits: float32 (d_vocab,) after its last token, once they are known."""

    ring: RingCache
    computed: int = 0
    logits: np.ndarray | None = None


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
        indices = np.cumsum([0, *(request.n for request in requests)])
        self._waiting = deque(zip(requests, (int(i) for i in indices), strict=False))
        self._running: list[Sequence] = []
        self._prompts: dict[int, PromptState] = {}  # being computed, by index of the request's first completion
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
        """Start waiting requests while there is room for all their completions."""
        while self._waiting:
            request, index = self._waiting[0]
            if self._running and len(self._running) + request.n > LARGEST_CROWD:
                return
            self._waiting.popleft()
            if request.max_tokens == 0 or self._is_full(request):
                for completion in range(request.n):
                    yield index + completion, nothing_drawn(request)
                continue
            state = self._first if index == 0 and self._first is not None else PromptState(self._ring())
            sequence = Sequence(request, 0, index, state.ring, request.prompt_ids[state.computed :], self._tokenizer)
            self._running.append(sequence)
            self._prompts[index] = state
            if state.logits is not None:
                yield from self._collect(sequence, state.logits)

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
        """Draw for a sequence; where its prompt has just been finished, for its siblings too."""
        check_logits(logits)
        drawing = [sequence]
        state = self._prompts.pop(sequence.index, None)
        if state is not None:
            state.logits = logits.copy()
            drawing += self._siblings(sequence)
        if len(self._removed_ids):
            logits = logits.copy()
            logits[self._removed_ids] = -np.inf
        for drawer in drawing:
            chunk = drawer.draw(logits)
            if drawer.finish_reason is not None:
                self._retire(drawer)
            yield drawer.index, chunk

    def _siblings(self, first: Sequence) -> list[Sequence]:
        """The request's other completions: the prompt is computed, each gets a copy of the ring."""
        siblings = []
        for completion in range(1, first.request.n):
            index = first.index + completion
            sibling = Sequence(first.request, completion, index, first.ring.fork(), [], self._tokenizer)
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
            return self._backend.new_ring(self._layout, self._kv_dtype)
        ring = self._free_rings.pop()
        ring.rewind(0)
        return ring

    def _is_full(self, request: Request) -> bool:
        """The prompt alone fills the context; it is never longer."""
        return self._layout.overflow == "stop" and len(request.prompt_ids) >= self._layout.context


def nothing_drawn(request: Request) -> Chunk:
    """The only chunk of a completion without tokens."""
    return Chunk("", [], "length", Usage.of(len(request.prompt_ids), 0), {"prompt": 0.0, "generate": 0.0})


def run_step(backend: Backend, parts: SequenceOf[tuple[RingCache, SequenceOf[int], str]]) -> np.ndarray:
    """The wanted logits of one step, float32 (wanted, d_vocab); see `Batch.of`. No parts, no logits.

    Raises PluginError, naming the backend, for whatever it raises and for logits of a wrong shape or dtype.
    """
    d_vocab = backend.config.d_vocab
    if not parts:
        return np.empty((0, d_vocab), np.float32)
    batch = Batch.of(parts)
    try:
        logits = backend.step(batch)
    except RingletError:
        raise
    except Exception as error:
        raise PluginError(f"backend {backend.name}: forward: {fault_text(error)}") from error
    expected = (int(batch.wants_logits.sum()), d_vocab)
    if not isinstance(logits, np.ndarray) or logits.shape != expected or logits.dtype != np.float32:
        found = f"{logits.dtype} {logits.shape}" if isinstance(logits, np.ndarray) else type(logits).__name__
        raise PluginError(f"backend {backend.name}: forward: returned {found}, not float32 {expected}")
    return logits
