"""What one forward step works on: a packed list of tokens of one or many sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ringlet.core.errors import RingletError
from ringlet.core.ring_cache import RingCache


@dataclass(frozen=True)
class Batch:
    """Prefill, a chunk of it, decode, a speculative check, and many sequences at once are all this one thing.

    The tokens of a sequence stand together, in order, at the positions that follow what its ring holds.

    token_ids: int32 (n,); positions: int64 (n,); sequence: int32 (n,), an index into `rings`;
    wants_logits: bool (n,). starts: where each sequence begins, and n at the end. The arrays cannot be written to.
    """

    rings: tuple[RingCache, ...]
    token_ids: np.ndarray
    positions: np.ndarray
    sequence: np.ndarray
    wants_logits: np.ndarray
    starts: tuple[int, ...]

    @classmethod
    def of(cls, parts: Iterable[tuple[RingCache, Sequence[int], str]], d_vocab: int) -> Batch:
        """From (ring, its next token ids, which of their logits are wanted: "none", "last" or "all").

        Reserves the rings' slots. Raises RingFull where a ring has no room, RingletError for an id outside the
        vocabulary, no tokens, more than a chunk, or a ring named twice.
        """
        parts = list(parts)
        rings = tuple(ring for ring, _, _ in parts)
        if len({id(ring) for ring in rings}) != len(rings):
            raise RingletError("a sequence may stand in a batch once")
        for _, ids, _ in parts:
            if len(ids) and not 0 <= min(ids) <= max(ids) < d_vocab:
                wrong = next(i for i in ids if not 0 <= i < d_vocab)
                raise RingletError(f"token id {wrong} is outside the vocabulary of {d_vocab}")
        for ring, ids, _ in parts:
            ring.reserve(len(ids))
        token_ids, positions, sequence, wants, starts = list[int](), list[int](), list[int](), list[bool](), [0]
        for index, (ring, ids, wanted) in enumerate(parts):
            n, first = len(ids), ring.length
            token_ids += ids
            positions += range(first, first + n)
            sequence += [index] * n
            wants += {"none": [False] * n, "last": [False] * (n - 1) + [True], "all": [True] * n}[wanted]
            starts.append(starts[-1] + n)
        return cls(
            rings=rings,
            token_ids=np.array(token_ids, np.int32),
            positions=np.array(positions, np.int64),
            sequence=np.array(sequence, np.int32),
            wants_logits=np.array(wants, bool),
            starts=tuple(starts),
        )

    def __post_init__(self) -> None:
        for array in (self.token_ids, self.positions, self.sequence, self.wants_logits):
            array.flags.writeable = False

    def commit(self) -> None:
        """Note in the rings that the step has been computed."""
        for ring, start, stop in zip(self.rings, self.starts, self.starts[1:], strict=False):
            ring.append(self.token_ids[start:stop].tolist())
