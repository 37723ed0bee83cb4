"""The loop: schedule a step, run it, let the strategies choose. Prompts in chunks and tokens share the steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.completion import Chunk
from ringlet.core.generation.request import Request
from ringlet.core.generation.ring_pool import RingPool
from ringlet.core.generation.strategy import LARGEST_CROWD, Branch, Computed, Decoding, Group, Tools
from ringlet.core.generation.transcript import nothing_drawn
from ringlet.core.likeliest import Logits
from ringlet.core.ring_cache import RingCache, RingLayout
from ringlet.core.step import run_step_for_likeliest, run_step_with_hidden

CHUNKS_A_STEP = 4  # tokens in one step at most, in chunks


@dataclass
class PromptState:
    """How much of a prompt is computed. logits: float32 (d_vocab,) after its last token, once they are known."""

    ring: RingCache
    computed: int = 0
    logits: np.ndarray | None = None


class Generation:
    """Several requests at once, over one backend.

    layout, kv_dtype: of every ring. requests: one at least, all of the same strategy. removed_ids: ids that must never
    be drawn. first: what is known of the first request's prompt; when all is done it says what its ring holds.
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
        self._backend, self._layout, self._first = backend, layout, first
        rings = RingPool(backend, layout, kv_dtype, kept=None if first is None else first.ring)
        self._tools = Tools(tokenizer, backend.config, rings, removed_ids)
        self._needs_hidden = any(request.options.strategy.needs_hidden for request in requests)
        self._waiting = deque(all_groups(requests))
        self._running: list[Decoding] = []
        self._prompts: dict[Branch, PromptState] = {}  # those that are being computed

    def run(self) -> Iterator[tuple[int, Chunk]]:
        """(index of the completion, chunk), until all are finished."""
        while self._waiting or self._running:
            yield from self._admit()
            computed = self._step(self._schedule())
            for decoding in list(self._running):
                mine = [computed[branch] for branch in decoding.branches if branch in computed]
                yield from self._advance(decoding, mine)

    def _admit(self) -> Iterator[tuple[int, Chunk]]:
        """Start waiting groups while there is room for all their rings."""
        while self._waiting and (not self._running or self._crowd() + self._waiting[0].rings <= LARGEST_CROWD):
            group = self._waiting.popleft()
            request = group.request
            if request.most_tokens(self._layout) <= 0:
                for completion in group.completions:
                    yield group.index + completion, nothing_drawn(request)
                continue
            is_first = self._first is not None and group.index + group.completions.start == 0
            state = self._first if is_first and self._first is not None else PromptState(self._tools.rings.empty())
            branch = Branch(state.ring, request.prompt_ids[state.computed :])
            decoding = request.options.strategy.begin(group, branch, self._tools)
            self._prompts[branch] = state
            self._running.append(decoding)
            if state.logits is not None:
                yield from self._advance(decoding, [Computed(branch, Logits.of_all(state.logits))])

    def _crowd(self) -> int:
        return sum(decoding.n_rings for decoding in self._running)

    def _schedule(self) -> list[tuple[Branch, list[int]]]:
        """Which ids each branch contributes to the next step.

        Branches with one id, most of which have drawn it, come first; prompts share what is left of the step.
        """
        branches = [branch for decoding in self._running for branch in decoding.branches]
        left = max(self._layout.chunk * CHUNKS_A_STEP, len(branches))
        parts = []
        for branch in sorted(branches, key=lambda branch: len(branch.pending) > 1):
            ids = branch.pending[: min(self._layout.chunk, left)]
            if ids:
                branch.pending = branch.pending[len(ids) :]
                parts.append((branch, ids))
                left -= len(ids)
        return parts

    def _step(self, parts: list[tuple[Branch, list[int]]]) -> dict[Branch, Computed]:
        """Compute the parts; of a branch whose last pending id is among them, the logits after it."""
        packed = [(branch.ring, ids, "none" if branch.pending else "last") for branch, ids in parts]
        if not self._needs_hidden:
            rows = iter(run_step_for_likeliest(self._backend, packed))
            return {branch: Computed(branch, None if branch.pending else next(rows)) for branch, _ in parts}
        logits, hidden = run_step_with_hidden(self._backend, packed)
        rows, computed, at = iter(map(Logits.of_all, logits)), {}, 0
        for branch, ids in parts:
            mine = hidden[at : at + len(ids)]
            computed[branch] = Computed(branch, None if branch.pending else next(rows), mine)
            at += len(ids)
        return computed

    def _advance(self, decoding: Decoding, computed: list[Computed]) -> Iterator[tuple[int, Chunk]]:
        """Let a group choose, and let it go when it is finished."""
        for part in computed:
            if part.logits is not None and part.branch in self._prompts:
                self._prompts.pop(part.branch).logits = part.logits.all.copy()
        yield from decoding.advance(computed)
        if not decoding.branches:
            self._running.remove(decoding)


def all_groups(requests: SequenceOf[Request]) -> Iterator[Group]:
    """Every completion of every request, in groups."""
    index = 0
    for request in requests:
        yield from request.options.strategy.groups(request, index)
        index += request.options.n_drafts
