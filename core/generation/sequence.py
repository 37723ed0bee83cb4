"""One completion in the making: which tokens it has, what it draws next, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from ringlet.core.completion import Chunk, FinishReason, Usage
from ringlet.core.generation.options import GenerationOptions
from ringlet.core.generation.stop_strings import StopStrings
from ringlet.core.ring_cache import RingCache
from ringlet.core.sampling import SamplerChain


@dataclass(frozen=True)
class Request:
    """A prompt and what is wanted of it; checked before."""

    prompt_ids: list[int]
    options: GenerationOptions


class Sequence:
    """One completion of a request.

    ring: holds what has been computed. pending: ids that come next, not yet in the ring: the rest of the prompt, or
    the token drawn last. index: its place among all completions of a generation. began: when its prompt did, in
    seconds of `perf_counter`.
    """

    def __init__(
        self, request: Request, completion: int, index: int, ring: RingCache, pending: SequenceOf[int], tokenizer: Any
    ) -> None:
        self.request, self.index, self.ring, self.pending = request, index, ring, list(pending)
        self.finish_reason: FinishReason | None = None
        self.began = self._prompt_done = perf_counter()
        self._tokenizer = tokenizer
        options = self._options = request.options
        self._chain = SamplerChain(options.sampler, options.seed_sequence(completion), tokenizer)
        self._decoder = tokenizer.stream_decoder()
        self._stops = StopStrings(options.stop)
        self._prompt_length = len(request.prompt_ids)
        self._n_ids = self._prompt_length
        self._ids = np.array(request.prompt_ids, np.int32)

    @property
    def n_drawn(self) -> int:
        return self._n_ids - self._prompt_length

    def draw(self, logits: np.ndarray) -> Chunk:
        """Draw the next token from float32 logits (d_vocab,), and say what it brings."""
        if not self.n_drawn:
            self._prompt_done = perf_counter()
        token_id = self._chain.sample(logits, self._ids[: self._n_ids])
        self._append(token_id)
        self.pending = [token_id]
        ended = token_id in self._tokenizer.eos_ids
        text = "" if ended else self._stops.push(self._decoder.push(token_id))  # ended: special or not, it is no text
        self.finish_reason = self._finish_reason(ended and not self._options.ignore_eos)
        if self.finish_reason is None:
            return Chunk(text, [token_id])
        return self._last_chunk(text, [token_id])

    def _finish_reason(self, ended: bool) -> FinishReason | None:
        layout = self.ring.layout
        full = layout.overflow == "stop" and self._n_ids >= layout.context
        if ended or self._stops.found:
            return "stop"
        return "length" if full or self.n_drawn >= self._options.max_tokens else None

    def _last_chunk(self, text: str, token_ids: list[int]) -> Chunk:
        text += self._stops.push(self._decoder.flush()) + self._stops.flush()
        if self._stops.found:
            self.finish_reason = "stop"
        now = perf_counter()
        timings = {"prompt": self._prompt_done - self.began, "generate": now - self._prompt_done}
        usage = Usage.of(self._prompt_length, self.n_drawn)
        return Chunk(text, token_ids, self.finish_reason, usage, timings)

    def _append(self, token_id: int) -> None:
        if self._n_ids == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty(max(256, len(self._ids)), np.int32)])
        self._ids[self._n_ids] = token_id
        self._n_ids += 1
