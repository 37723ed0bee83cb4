"""A conversation: its messages, what of them the model sees, and the answers it gives."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ringlet.core.chat.respelling import respelled
from ringlet.core.completion import Chunk
from ringlet.core.errors import RingletError
from ringlet.core.session import load_session, save_session

if TYPE_CHECKING:
    from ringlet.core.pipeline import Pipeline
    from ringlet.tokenization.chat.format import ChatFormat

Message = dict[str, Any]
ANSWER_SHARE = 4  # a quarter of the context is kept free for an answer
SEEDS = 1 << 64


@dataclass
class ChatOptions:
    """How answers are drawn; see `Pipeline.generate`. max_tokens: None: as many as the context has."""

    sampler: str | None = None
    seed: int = 0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class TurnFacts:
    """How the last answer went. prompt_tokens, of which known_tokens were in the ring. last: its last chunk, None where
    the answer was stopped. timings: as in a Completion; of a stopped answer up to there.
    """

    prompt_tokens: int
    known_tokens: int
    answer_tokens: int
    last: Chunk | None
    timings: dict[str, float]


class Conversation:
    """messages: all but the system's. left_out: how many of the first ones the model no longer sees.

    Each answer is drawn from the whole conversation, of which the pipeline's ring holds all but the new part. Where a
    ring that does not slide has no room for an answer, the oldest turns are left out, until half of it is free.
    """

    def __init__(
        self, pipe: Pipeline, chat_format: ChatFormat, options: ChatOptions, system: str | None = None
    ) -> None:
        self.pipe, self.options, self.system = pipe, options, system
        self.messages: list[Message] = []
        self.left_out = 0
        self.facts: TurnFacts | None = None
        self._format = chat_format
        self._known: list[int] = []  # what the ring holds, as far as we know
        self._n_answers = 0

    @property
    def max_tokens(self) -> int:
        return self.pipe.layout.context if self.options.max_tokens is None else self.options.max_tokens

    @property
    def n_known(self) -> int:
        """Tokens that the ring holds of the conversation."""
        return len(self._known)

    def ask(self, text: str) -> Generator[str, None, None]:
        """The answer to one more message, piece by piece. Where no word of it comes, the message is taken back.

        Closing it stops the answer, which stays as far as it has come. Raises RingletError.
        """
        self.messages.append({"role": "user", "content": text})
        yield from self._answer(None)

    def retry(self) -> Generator[str, None, None]:
        """Another answer in place of the last one, which stays where no word comes. Raises RingletError."""
        if not self.messages:
            raise RingletError("there is no message yet to answer again")
        yield from self._answer(self.messages.pop())

    def undo(self) -> bool:
        """Take the last message and its answer back; whether there was one."""
        if not self.messages:
            return False
        while self.messages and self.messages.pop()["role"] != "user":
            pass
        if self.left_out >= len(self.messages):
            self.left_out = 0
        return True

    def _answer(self, before: Message | None) -> Generator[str, None, None]:
        """before: the answer whose place it takes."""
        parts: list[str] = []
        drawn: list[int] = []
        last = None
        try:
            ids = self._prompt_ids()
            n_known = self.pipe.idle_ring.n_known(ids)
            seed = (self.options.seed + self._n_answers) % SEEDS
            self._n_answers += 1
            options = self.options
            began = first_came = perf_counter()
            stream = self.pipe.stream(ids, self.max_tokens, options.sampler, seed, options.stop)
            with closing(stream):
                for chunk in stream:
                    first_came = first_came if parts else perf_counter()
                    parts.append(chunk.text)
                    drawn += chunk.token_ids
                    last = chunk if chunk.finish_reason else None
                    yield chunk.text
        finally:
            if last is not None or any(parts):
                self.messages.append({"role": "assistant", "content": "".join(parts)})
                self._known = [*ids, *drawn]
                timings = {"prompt": first_came - began, "generate": perf_counter() - first_came}
                if last is not None and last.timings is not None:
                    timings = last.timings
                self.facts = TurnFacts(len(ids), n_known, len(drawn), last, timings)
            elif before is not None:
                self.messages.append(before)
            else:
                self.messages.pop()

    def _prompt_ids(self) -> list[int]:
        """The ids of what the model is to see."""
        ids = self._encode(self.left_out)
        layout = self.pipe.layout
        if layout.overflow == "slide":
            return ids
        room = min(self.max_tokens, max(1, layout.context // ANSWER_SHARE))
        if len(ids) + room > layout.context:
            left_out = self.left_out
            while len(ids) > layout.context // 2 and (following := self._next_turn(left_out)) is not None:
                left_out = following
                ids = self._encode(left_out)
            if len(ids) >= layout.context:
                raise RingletError(
                    f"the message alone makes {len(ids)} tokens and the context is {layout.context}: shorten it, "
                    "or begin with a larger --context"
                )
            self.left_out = left_out
        return ids

    def _next_turn(self, after: int) -> int | None:
        """Where the turn after the one that begins there begins; None where there is no other."""
        places = range(after + 1, len(self.messages))
        return next((at for at in places if self.messages[at]["role"] == "user"), None)

    def _encode(self, left_out: int) -> list[int]:
        seen = self.messages[left_out:]
        if self.system is not None:
            seen = [{"role": "system", "content": self.system}, *seen]
        return respelled(self._format.encode(seen), self._known, self.pipe.tokenizer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """The messages and the ring, in a session file. Raises RingletError where there is no answer yet."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        save_session(self.pipe, path, [*first, *self.messages], self.left_out)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on with a saved conversation. Raises RingletError for a file that holds none, or does not fit."""
        session = load_session(self.pipe, path)
        messages = session.messages
        if messages is None or not all(isinstance(message.get("content"), str) for message in messages):
            raise RingletError(f"{os.fspath(path)}: it holds a ring, but no conversation")
        has_system = bool(messages) and messages[0].get("role") == "system"
        self.system = messages[0]["content"] if has_system else None
        self.messages = messages[has_system:]
        self.left_out = session.left_out if session.left_out < len(self.messages) else 0
        self._known, self.facts = session.token_ids, None
