"""Tokens to text as they come: what is certain is given out at once, half a character never."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

REPLACEMENT = "\ufffd"


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return REPLACEMENT * (error.end - error.start), error.end


# HuggingFace's ByteFallback gives one U+FFFD for each byte that is no part of a character, its ByteLevel one for each
# maximal subpart of a character, as Python's "replace" does.
codecs.register_error("ringlet_replace_each_byte", _replace_each_byte)
_new_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class StreamDecoder(ABC):
    """The text of one completion, piece by piece. The pieces and the flush join to the text of all its tokens.

    It continues a text, so a leading space is kept: " world" after "hello", where `Tokenizer.decode` of the same ids
    may strip the space that a tokenizer puts before the first word.
    """

    @abstractmethod
    def push(self, token_id: int) -> str:
        """The text that this token makes certain; "" while a character is incomplete, and for a special token."""

    @abstractmethod
    def flush(self) -> str:
        """What was held back, U+FFFD where a character never came to its end. The decoder is new after it."""


class ByteStreamDecoder(StreamDecoder):
    """For vocabularies whose tokens are bytes of UTF-8.

    token_bytes: the bytes of a token, b"" for an id without one. invalid: how bytes that are no character become
    U+FFFD, the name of an error handler of Python's codecs.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], skipped: Collection[int], invalid: str) -> None:
        self._token_bytes, self._skipped = token_bytes, skipped
        self._decoder = _new_utf8_decoder(invalid)

    def push(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        return self._decoder.decode(self._token_bytes(token_id))

    def flush(self) -> str:
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


class TextStreamDecoder(StreamDecoder):
    """For any other vocabulary: the text grows by what one more token adds to the text of the few before it.

    decode: the text of a list of ids. Text that ends in U+FFFD waits for the next token.
    """

    def __init__(self, decode: Callable[[list[int]], str], skipped: Collection[int]) -> None:
        self._decode, self._skipped = decode, skipped
        self._context: list[int] = []  # the tokens that gave the last piece: what follows is spaced after them
        self._held: list[int] = []

    def push(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        self._held.append(token_id)
        return self._take(final=False)

    def flush(self) -> str:
        text = self._take(final=True)
        self._context = []
        return text

    def _take(self, final: bool) -> str:
        known = self._decode(self._context)
        text = self._decode(self._context + self._held)
        if not final and (text.endswith(REPLACEMENT) or not text.startswith(known)):
            return ""
        piece = text[len(known) :] if text.startswith(known) else self._decode(self._held)
        self._context, self._held = self._held or self._context, []
        return piece
