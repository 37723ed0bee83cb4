"""The ring: the KV cache of one sequence, a ring buffer for each layer; what it holds, and in which slots.

K is stored rotated at its own absolute position and never touched again; only differences of positions enter
attention, so nothing moves when a ring wraps. A position p lives in slot p while p < sinks, and in slot
sinks + (p - sinks) mod (slots - sinks) after that.

What a query sees depends on its position alone, never on how the ring was filled: the sinks and the latest keys,
`capacity` in all, itself included. A ring that wraps has chunk - 1 slots beyond its capacity, so that a chunk of tokens
may be written whole before its first token attends: what it overwrites, none of its tokens may see.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ringlet.core.checks import check_ring_options
from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.token_list import TokenList


class RingFull(RingletError):  # noqa: N818 - a state of the ring, not a fault
    """The ring cannot take more tokens and does not slide."""


@dataclass(frozen=True)
class LayerLayout:
    """How one layer's ring is laid out."""

    capacity: int  # keys a query sees at most, itself included
    sinks: int  # first positions that are never overwritten and always seen
    slots: int  # keys held; capacity ≤ slots

    def slot(self, position: np.ndarray) -> np.ndarray:
        """Slots of the positions, int64 of the same shape."""
        position = np.asarray(position, np.int64)
        return np.where(
            position < self.sinks, position, self.sinks + (position - self.sinks) % (self.slots - self.sinks)
        )

    def first_visible(self, position: int) -> int:
        """The first position, sinks apart, whose key the query at `position` sees; it sees all from there to itself."""
        return max(self.sinks, position - (self.capacity - self.sinks) + 1)


@dataclass(frozen=True)
class RingLayout:
    """The layout of every layer's ring, from the model's windows and the user's wishes.

    A layer whose own window is no larger than the context keeps that window, without sinks; any other layer has the
    context as its capacity, and the sinks.

    context: tokens a query of a global layer sees at most. overflow: what happens when they are all taken.
    chunk: tokens of one sequence in one step at most, ≥ 1.
    """

    layers: tuple[LayerLayout, ...]
    context: int
    sinks: int
    overflow: str  # "stop" or "slide"
    chunk: int

    @classmethod
    def of(cls, config: ModelConfig, context: int, sinks: int = 0, overflow: str = "stop", *, chunk: int) -> RingLayout:
        """Raises RingletError for a context, sinks or overflow that cannot be."""
        check_ring_options(context, sinks, overflow, chunk)
        if config.learned_positions and context > config.context_length:
            raise RingletError(
                f"context is {context}: {config.architecture} learned {config.context_length} positions, not more"
            )
        if config.learned_positions and overflow == "slide":
            raise RingletError(
                f'overflow is "slide": {config.architecture} has learned positions, so only "stop" works'
            )
        layers = []
        for layer in config.layers:
            if layer.window is not None and layer.window <= context:
                capacity, kept = layer.window, 0
            else:
                capacity, kept = context, sinks
            slots = capacity + chunk - 1
            if overflow == "stop":
                slots = min(slots, context)
            layers.append(LayerLayout(capacity, kept, slots))
        return cls(tuple(layers), context, sinks, overflow, chunk)


Memory = TypeVar("Memory", bound="RingMemory")


class RingMemory(ABC):
    """Where one ring's keys and values lie. A backend makes it, and no one else looks inside."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory that it takes."""

    @abstractmethod
    def copy_from(self: Memory, other: Memory, length: int) -> None:
        """Take over what another of the same layout holds after `length` tokens; slots beyond them do not matter."""

    def copy_since(self: Memory, other: Memory, shared: int, length: int) -> None:
        """The same where both hold the first `shared` tokens alike, and this one no more tokens than the other.

        It may copy no more than what differs.
        """
        self.copy_from(other, length)

    def contents(self, length: int) -> dict[str, np.ndarray]:
        """All that is held after `length` tokens, by name, as arrays in the host's memory; they may be views.

        Names, shapes and dtypes depend on the layout and on `length` alone. Raises RingletError from a memory whose
        rings cannot be kept in files.
        """
        raise RingletError("the rings of this backend cannot be saved")

    def restore(self, contents: Mapping[str, np.ndarray], length: int) -> None:
        """Hold what `contents(length)` of another memory, with the same names, shapes and dtypes, has given."""
        raise RingletError("the rings of this backend cannot be loaded")


class RingCache:
    """What is known of one sequence's keys and values.

    new_memory: makes what they lie in. memory: what it made, a RingMemory; the backend knows of which kind.
    """

    def __init__(self, layout: RingLayout, new_memory: Callable[[], RingMemory]) -> None:
        self.layout = layout
        self.memory: Any = new_memory()
        self._new_memory = new_memory
        self._tokens = TokenList([])
        self._fewest_slots = min(layer.slots - layer.sinks for layer in layout.layers)
        self._first_held = [0] * len(layout.layers)  # sinks apart, positions before it are overwritten or may be

    @property
    def token_ids(self) -> memoryview:
        """Every token of the sequence so far, also those whose keys are overwritten, so that it can be recomputed."""
        return self._tokens.ids.data

    @property
    def length(self) -> int:
        """Tokens so far; the position of the next one."""
        return len(self._tokens)

    @property
    def room(self) -> int:
        """How many more tokens may follow; a sliding ring always has room."""
        return self.layout.context - self.length if self.layout.overflow == "stop" else 1 << 30

    def reserve(self, n_tokens: int) -> None:
        """Make ready for the next n_tokens to be written; call `append` when they are.

        Raises RingFull when they do not fit, RingletError when they are more than a chunk.
        """
        if n_tokens > self.room:
            raise RingFull(f"{self.length + n_tokens} tokens do not fit a context of {self.layout.context}")
        if not 1 <= n_tokens <= self.layout.chunk:
            raise RingletError(f"{n_tokens} tokens in one step: from 1 to {self.layout.chunk} are possible")
        if self.length + n_tokens <= self._fewest_slots:
            return
        for index, layer in enumerate(self.layout.layers):
            overwritten = self.length + n_tokens - (layer.slots - layer.sinks)
            self._first_held[index] = max(self._first_held[index], overwritten)

    def make_room(self, n_tokens: int) -> None:
        """Take memory for the ids of so many tokens now; that for their keys and values is there from the start."""
        self._tokens.make_room(n_tokens)

    def append(self, token_ids: Sequence[int]) -> None:
        """Note that the keys and values of these tokens, reserved before, are written."""
        self._tokens.extend(token_ids)

    def can_rewind(self, length: int) -> bool:
        """Whether every key that a token after the first `length` may see is still held."""
        return all(
            layer.first_visible(length) >= min(held, length)
            for layer, held in zip(self.layout.layers, self._first_held, strict=True)
        )

    def rewind(self, length: int) -> int:
        """Cut back to the first `length` tokens, or to none where a key that the next token may see is gone.

        Returns the length that is left, `length` or 0; the tokens between must be computed again.
        """
        if not 0 <= length <= self.length:
            raise RingletError(f"cannot rewind to {length}: the ring holds {self.length} tokens")
        kept = length if self.can_rewind(length) else 0
        self._tokens.cut(kept)
        self._first_held = [min(held, kept) for held in self._first_held]
        return kept

    def copy_from(self, other: RingCache, shared: int = 0) -> None:
        """Hold what another ring of the same layout does, in place of what was held before.

        shared: how many first tokens both hold alike already; then this ring may not be the longer one.
        """
        if shared:
            self.memory.copy_since(other.memory, shared, other.length)
        else:
            self.memory.copy_from(other.memory, other.length)
        self._tokens, self._first_held = other._tokens.fork(), other._first_held[:]

    @property
    def first_held(self) -> list[int]:
        """For each layer the position before which, sinks apart, keys are overwritten or may be."""
        return list(self._first_held)

    def restore(self, token_ids: Sequence[int], first_held: Sequence[int], contents: Mapping[str, np.ndarray]) -> None:
        """Hold what another ring did that gave these; the caller has checked that they fit."""
        self.memory.restore(contents, len(token_ids))
        self._tokens, self._first_held = TokenList(token_ids), list(first_held)

    def fork(self) -> RingCache:
        """An independent copy, in memory of its own."""
        copy = RingCache(self.layout, self._new_memory)
        copy.copy_from(self)
        return copy
