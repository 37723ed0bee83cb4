"""The ring of the last generation, kept so that a prompt with the same beginning need not be computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from ringlet.core.generation.loop import PromptState
from ringlet.core.ring_cache import RingCache

SHORTEST_PREFIX = 16  # tokens; less is not worth another shape of the steps


class IdleRing:
    """Holds one ring at most; threads that come while it is taken get new ones.

    new_ring: makes an empty one.
    """

    def __init__(self, new_ring: Callable[[], RingCache]) -> None:
        self._new_ring = new_ring
        self._lock = Lock()
        self._kept: tuple[PromptState, list[int]] | None = None

    def take(self, prompt_ids: list[int]) -> PromptState:
        """A ring that holds as much of the prompt as is known, all but the last token at most.

        Where it is the very prompt that the ring began with, the logits after it are known too, and nothing is left
        to compute: so the same request gives the same tokens again, to the last bit.
        """
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is None:
            return PromptState(self._new_ring())
        state, _ = kept
        n_known = known_length(*kept, prompt_ids)
        state.ring.rewind(n_known)
        return PromptState(state.ring, n_known, state.logits if n_known == len(prompt_ids) else None)

    def n_known(self, prompt_ids: list[int]) -> int:
        """How many of a prompt's tokens `take` would find known."""
        with self.held() as kept:
            return 0 if kept is None else known_length(*kept, prompt_ids)

    def give_back(self, state: PromptState, prompt_ids: list[int]) -> None:
        """The ring of a generation that has ended, whose prompt this was."""
        with self._lock:
            self._kept = state, prompt_ids

    @contextmanager
    def held(self) -> Iterator[tuple[PromptState, list[int]] | None]:
        """What is kept, and its prompt, for as long as someone reads it; None where nothing is, or it is in use."""
        with self._lock:
            kept, self._kept = self._kept, None
        try:
            yield kept
        finally:
            if kept is not None:
                self.give_back(*kept)


def known_length(state: PromptState, known_prompt: list[int], prompt_ids: list[int]) -> int:
    """How many first tokens of a prompt need not be computed. state: what is left of one that began with known_prompt.

    All of them only for the very same prompt, after which the logits are known.
    """
    ring, n_tokens = state.ring, len(prompt_ids)
    is_same = prompt_ids == known_prompt and state.logits is not None
    if is_same and ring.length >= n_tokens and ring.can_rewind(n_tokens):
        return n_tokens
    shared = min(shared_length(ring.token_ids, prompt_ids), n_tokens - 1)
    return shared if shared >= SHORTEST_PREFIX and ring.can_rewind(shared) else 0


def shared_length(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return next(
        (at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]),
        min(len(first), len(second)),
    )
