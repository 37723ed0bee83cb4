"""What a generation gives: a Completion, or its Chunks one by one."""

from __future__ import annotations

import math
import reprlib
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ringlet.core.errors import quoted

FinishReason = Literal["stop", "length"]


class Usage(dict[str, int]):
    """prompt_tokens, completion_tokens and total_tokens, as keys and as attributes."""

    @classmethod
    def of(cls, prompt_tokens: int, completion_tokens: int) -> Usage:
        return cls(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=prompt_tokens + completion_tokens,
        )

    @property
    def prompt_tokens(self) -> int:
        return self["prompt_tokens"]

    @property
    def completion_tokens(self) -> int:
        return self["completion_tokens"]

    @property
    def total_tokens(self) -> int:
        return self["total_tokens"]


@dataclass(frozen=True)
class TokenLogprob:
    """A token and its log-probability, natural, under the model's own distribution: log-softmax of the raw logits.

    text: the token as people read it, such as "<E6 88>" for a part of a character; "" for an id without a token.
    """

    token_id: int
    text: str
    logprob: float


@dataclass(frozen=True)
class TokenLogprobs(TokenLogprob):
    """A token that was drawn. top: the likeliest ones at its place, the likeliest first."""

    top: list[TokenLogprob]


@dataclass(frozen=True)
class Chunk:
    """What one more token brings.

    text: what is certain by now; may be "". token_ids: the ids that are drawn and certain since the last chunk.
    finish_reason, usage, timings: None until the last chunk; see `Completion`. logprobs: one for each id, None where
    they were not asked for. stopped_by: of the last chunk, as in `Completion`.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    timings: dict[str, float] | None = field(default=None, compare=False)
    logprobs: list[TokenLogprobs] | None = None
    stopped_by: str | None = None

    def __repr__(self) -> str:
        ended = "" if self.finish_reason is None else f", {self.finish_reason}"
        return f"<Chunk {quoted(self.text)}, token_ids {reprlib.repr(self.token_ids)}{ended}>"


@dataclass(frozen=True)
class Completion:
    """A finished generation.

    text: the completion only, without end token and stop string. token_ids: all that were drawn, an end token and
    those of a stop string included. finish_reason: "stop" (end token or stop string) or "length" (max_tokens, or the
    context is full). timings: seconds by name: "prompt" until the first token could be drawn, "generate" from then on.
    logprobs: one for each of token_ids, None where they were not asked for. stopped_by: the stop string that ended it,
    None where none did.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    usage: Usage
    timings: dict[str, float] = field(default_factory=dict, compare=False)
    logprobs: list[TokenLogprobs] | None = None
    stopped_by: str | None = None

    def __repr__(self) -> str:
        return f"<Completion {quoted(self.text)}, {len(self.token_ids)} tokens, {self.finish_reason}>"

    @classmethod
    def of_chunks(cls, chunks: list[Chunk]) -> Completion:
        """What the chunks of one generation join to."""
        last = chunks[-1]
        if last.finish_reason is None or last.usage is None or last.timings is None:
            raise ValueError("the last chunk is missing")
        text = "".join(chunk.text for chunk in chunks)
        ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
        logprobs = None if last.logprobs is None else [one for chunk in chunks for one in chunk.logprobs or ()]
        return cls(text, ids, last.finish_reason, last.usage, last.timings, logprobs, last.stopped_by)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, which has no −∞; `logprobs` only where they were asked for."""
        values = {
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason,
            "stopped_by": self.stopped_by,
            "usage": dict(self.usage),
            "timings": self.timings,
        }
        if self.logprobs is None:
            return values
        logprobs = [asdict(one) for one in self.logprobs]
        for one in logprobs:
            if not math.isfinite(one["logprob"]):  # a sampler has brought back what the model excludes
                one["logprob"] = None
        return values | {"logprobs": logprobs}
