"""The ring: the KV cache of one sequence, a ring buffer for each layer, in one allocation.

K is stored rotated at its own absolute position and never touched again; only differences of positions enter
attention, so nothing moves when a ring wraps. A position p lives in slot p while p < sinks, and in slot
sinks + (p - sinks) mod (slots - sinks) after that.

What a query sees depends on its position alone, never on how the ring was filled: the sinks and the latest keys,
`capacity` in all, itself included. A ring that wraps has chunk - 1 slots beyond its capacity, so that a chunk of tokens
may be written whole before its first token attends: what it overwrites, none of its tokens may see.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError

KV_DTYPES: dict[str, np.dtype] = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16)}
ALIGNMENT = 64  # bytes: a cache line, and the widest vector load


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
    def of(
        cls, config: ModelConfig, context: int, sinks: int = 0, overflow: str = "stop", chunk: int = 256
    ) -> RingLayout:
        """Raises RingletError for a context, sinks or overflow that cannot be."""
        if overflow not in ("stop", "slide"):
            raise RingletError(f'overflow is {overflow!r}: "stop" or "slide" is needed')
        if context < 1:
            raise RingletError(f"context is {context}: 1 token or more is needed")
        if not 0 <= sinks < context:
            raise RingletError(f"sinks is {sinks}: from 0 to context - 1 ({context - 1}) are possible")
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

    def nbytes(self, config: ModelConfig, dtype: str) -> int:
        """Bytes that the ring of one sequence takes."""
        return _place(config, self, KV_DTYPES[dtype])[1]


class RingCache:
    """The keys and values of one sequence.

    keys[layer]: (n_kv_heads, slots, d_k), values[layer]: (n_kv_heads, slots, d_v), in float32 or float16.
    token_ids: every token of the sequence so far, also those whose keys are overwritten, so that it can be recomputed.
    """

    def __init__(self, config: ModelConfig, layout: RingLayout, dtype: str = "f16") -> None:
        if dtype not in KV_DTYPES:
            raise RingletError(f"kv_dtype is {dtype!r}: choose from {', '.join(KV_DTYPES)}")
        self.config, self.layout, self.dtype = config, layout, dtype
        places, nbytes = _place(config, layout, KV_DTYPES[dtype])
        try:
            self._memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
        except MemoryError:
            raise RingletError(
                f"the ring needs {nbytes / 2**30:.1f} GiB and there is less: choose a smaller context"
            ) from None
        start = -self._memory.ctypes.data % ALIGNMENT
        memory = self._memory[start : start + nbytes]
        self.keys, self.values = (
            [
                memory[at : at + _size(shape, KV_DTYPES[dtype])].view(KV_DTYPES[dtype]).reshape(shape)
                for at, shape in side
            ]
            for side in zip(*places, strict=True)
        )
        self.token_ids = array("i")
        self._first_held = [0] * config.n_layers  # sinks apart, positions before it are overwritten or may be

    @property
    def length(self) -> int:
        """Tokens so far; the position of the next one."""
        return len(self.token_ids)

    @property
    def room(self) -> int:
        """How many more tokens may follow; a sliding ring always has room."""
        return self.layout.context - self.length if self.layout.overflow == "stop" else 1 << 30

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def reserve(self, n_tokens: int) -> None:
        """Make ready for the next n_tokens to be written; call `append` when they are.

        Raises RingFull when they do not fit, RingletError when they are more than a chunk.
        """
        if n_tokens > self.room:
            raise RingFull(f"{self.length + n_tokens} tokens do not fit a context of {self.layout.context}")
        if not 1 <= n_tokens <= self.layout.chunk:
            raise RingletError(f"{n_tokens} tokens in one step: from 1 to {self.layout.chunk} are possible")
        for index, layer in enumerate(self.layout.layers):
            overwritten = self.length + n_tokens - (layer.slots - layer.sinks)
            self._first_held[index] = max(self._first_held[index], overwritten)

    def append(self, token_ids: Sequence[int]) -> None:
        """Note that the keys and values of these tokens, reserved before, are written."""
        self.token_ids.extend(token_ids)

    def rewind(self, length: int) -> int:
        """Cut back to the first `length` tokens, or to none where a key that the next token may see is gone.

        Returns the length that is left, `length` or 0; the tokens between must be computed again.
        """
        if not 0 <= length <= self.length:
            raise RingletError(f"cannot rewind to {length}: the ring holds {self.length} tokens")
        exact = all(
            layer.first_visible(length) >= min(held, length)
            for layer, held in zip(self.layout.layers, self._first_held, strict=True)
        )
        kept = length if exact else 0
        del self.token_ids[kept:]
        self._first_held = [min(held, kept) for held in self._first_held]
        return kept

    def fork(self) -> RingCache:
        """An independent copy. Slots that no token has reached are not copied."""
        copy = RingCache(self.config, self.layout, self.dtype)
        for index, layer in enumerate(self.layout.layers):
            used = min(self.length, layer.slots)
            copy.keys[index][:, :used] = self.keys[index][:, :used]
            copy.values[index][:, :used] = self.values[index][:, :used]
        copy.token_ids = self.token_ids[:]
        copy._first_held = self._first_held[:]
        return copy


def _size(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def _place(config: ModelConfig, layout: RingLayout, dtype: np.dtype) -> tuple[list, int]:
    """Byte offset and shape of each layer's keys and values, and the bytes in all."""
    places, at = [], 0
    for layer in layout.layers:
        pair = []
        for width in (config.d_k, config.d_v):
            shape = (config.n_kv_heads, layer.slots, width)
            pair.append((at, shape))
            at += -(-_size(shape, dtype) // ALIGNMENT) * ALIGNMENT
        places.append(tuple(pair))
    return places, at
