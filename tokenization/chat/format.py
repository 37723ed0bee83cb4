"""Conversations to token ids: a template's text, in which only its own control tokens are control tokens.

Where no message holds the text of a control token, the ids are those of the text as the tokenizer reads it whole, with
special tokens in it. Where one does, the template's own are cut out, and everything between is plain text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ringlet.tokenization.chat.template import ChatTemplate
from ringlet.tokenization.chat.text import ANSWER, TEMPLATE, Text
from ringlet.tokenization.codec import Codec, check_unicode

HEAD = 3  # characters by which control tokens are looked up: thousands share a few beginnings


@dataclass(frozen=True)
class Control:
    """A control token. trusted: the least trusted origin that a character of it may have."""

    token_id: int
    trusted: int


class ChatFormat:
    """A template and the codec of its model.

    Control tokens are the special ones, and added ones that the template names, such as "<tool_response>"; these latter
    a model may write itself, so they are control tokens in an assistant's message too.
    """

    def __init__(self, codec: Codec, source: str, name: str, special_tokens: Mapping[str, str]) -> None:
        self._codec = codec
        self.template = ChatTemplate(source, name, special_tokens)
        self._controls: dict[str, Control] = {}
        for text, token_id in codec.whole_tokens.items():
            if token_id in codec.special_ids:
                self._controls[text] = Control(token_id, TEMPLATE)
            elif text in source and not text.isspace():  # Gemma has tokens for line breaks
                self._controls[text] = Control(token_id, ANSWER)
        self._lengths: dict[str, set[int]] = {}
        for text in self._controls:
            self._lengths.setdefault(text[:HEAD], set()).add(len(text))

    def render(
        self, messages: Any, add_generation_prompt: bool = True, variables: Mapping[str, Any] | None = None
    ) -> str:
        """The text of a conversation; see `ChatTemplate.render`."""
        return str.__str__(self.template.render(messages, add_generation_prompt, variables))

    def encode(
        self, messages: Any, add_generation_prompt: bool = True, variables: Mapping[str, Any] | None = None
    ) -> list[int]:
        """The token ids of a conversation; the arguments are those of `ChatTemplate.render`."""
        text = self.template.render(messages, add_generation_prompt, variables)
        check_unicode(text)
        if not isinstance(text, Text):
            return self._codec.encode(text, False, True)
        found = list(self._occurrences(text))
        if all(max(text.origins[start:stop]) <= control.trusted for start, stop, control in found):
            return self._codec.encode(str.__str__(text), False, True)
        return self._encode_apart(text, found)

    def _encode_apart(self, text: Text, found: list[tuple[int, int, Control]]) -> list[int]:
        """The template's control tokens are cut out; what looks like one and is not stays in the texts between."""
        parts: list[str | int] = []
        at = 0
        for start, stop, control in found:
            if start >= at and max(text.origins[start:stop]) <= control.trusted:
                parts += [str.__str__(text[at:start])] if start > at else []
                parts.append(control.token_id)
                at = stop
        parts += [str.__str__(text[at:])] if at < len(text) else []
        hidden = frozenset(control.token_id for control in self._controls.values())
        return self._codec.encode_parts(parts, hidden)

    def _occurrences(self, text: str) -> Iterator[tuple[int, int, Control]]:
        """Where a control token's text stands, in order: (start, stop, which); the longest first at one place."""
        text = str.__str__(text)
        places = sorted((at, head) for head in self._lengths for at in _places(text, head))
        for at, head in places:
            for length in sorted(self._lengths[head], reverse=True):
                control = self._controls.get(text[at : at + length])
                if control is not None:
                    yield at, at + length, control


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
