"""One completion as it is told: ids go in, chunks come out."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from ringlet.core.completion import Chunk, FinishReason, TokenLogprobs, Usage
from ringlet.core.generation.request import Request
from ringlet.core.generation.stop_strings import StopStrings


class Transcript:
    """Ids to text, never half a character nor a part of a stop string; and when the completion ends.

    n_tokens: ids so far. finish_reason: None until the last. began: when the work on it did, in seconds of
    `perf_counter`.
    """

    def __init__(self, request: Request, tokenizer: Any, began: float) -> None:
        self.n_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.began = self._prompt_done = began
        self._prompt_length, self._options = len(request.prompt_ids), request.options
        self._eos_ids = tokenizer.eos_ids
        self._decoder = tokenizer.stream_decoder()
        self._stops = StopStrings(request.options.stop)

    def prompt_is_done(self) -> None:
        """From now on tokens can be drawn."""
        self._prompt_done = perf_counter()

    def push(self, token_id: int, logprobs: TokenLogprobs | None, is_limit: bool) -> Chunk:
        """What the next token brings. logprobs: its own, if asked for. is_limit: none may follow it."""
        self.n_tokens += 1
        ended = token_id in self._eos_ids
        text = "" if ended else self._stops.push(self._decoder.push(token_id))  # ended: special or not, it is no text
        self.finish_reason = self._finish_reason(ended, is_limit)
        listed = None if logprobs is None else [logprobs]
        if self.finish_reason is None:
            return Chunk(text, [token_id], logprobs=listed)
        text += self._stops.push(self._decoder.flush()) + self._stops.flush()
        if self._stops.found:
            self.finish_reason = "stop"
        timings = {"prompt": self._prompt_done - self.began, "generate": perf_counter() - self._prompt_done}
        usage = Usage.of(self._prompt_length, self.n_tokens)
        return Chunk(text, [token_id], self.finish_reason, usage, timings, listed, self._stops.which)

    def _finish_reason(self, ended: bool, is_limit: bool) -> FinishReason | None:
        if self._stops.found or (ended and not self._options.ignore_eos):
            return "stop"
        return "length" if is_limit else None


def nothing_yet(request: Request) -> Chunk:
    """A chunk of a step after which no further token is certain."""
    return Chunk("", [], logprobs=None if request.options.listed is None else [])


def nothing_drawn(request: Request) -> Chunk:
    """The only chunk of a completion without tokens."""
    usage = Usage.of(len(request.prompt_ids), 0)
    return Chunk("", [], "length", usage, {"prompt": 0.0, "generate": 0.0}, nothing_yet(request).logprobs)
