"""What a vocabulary can do, whichever kind of file it comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringlet.core.errors import RingletError
from ringlet.tokenization.streaming import ByteStreamDecoder, StreamDecoder


def check_unicode(text: str) -> None:
    """Raises RingletError for a text that no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(text[error.start]):04X}"
        raise RingletError(f"the text has the lone surrogate {code} at {error.start}: it is no Unicode text") from None


class Codec(ABC):
    """Text to ids and ids to text. `ringlet.tokenization.tokenizer.Tokenizer` is its face to the user.

    n_tokens: every token's id is below it. special_ids: control tokens, which text is never made of.
    """

    special_ids: frozenset[int]

    @property
    @abstractmethod
    def n_tokens(self) -> int: ...

    def ids_without_token(self, limit: int) -> list[int]:
        """Those below `limit`, which is a model's d_vocab: a file's own ids may be as large as it likes."""
        return list(range(self.n_tokens, limit))

    @abstractmethod
    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Ids of the text, which is valid Unicode."""

    @property
    def whole_tokens(self) -> Mapping[str, int]:
        """Ids by text of the tokens that are never put together, but written whole: control tokens, and added ones."""
        named = {token_id: self.token_text(token_id) for token_id in self.special_ids}
        return {text: token_id for token_id, text in named.items() if text}

    def encode_parts(self, parts: Sequence[str | int], hidden: frozenset[int]) -> list[int]:
        """Ids of texts, and of tokens that stand between them as ids; nothing is put around it.

        In the texts there is no special token, and none of `hidden`: their characters are plain text. Every id among
        the parts is of one of these.
        """
        ids: list[int] = []
        for part in parts:
            ids.extend([part] if isinstance(part, int) else self.encode(part, False, False))
        return ids

    @abstractmethod
    def token_id(self, text: str) -> int | None:
        """The id of a token by its text in the vocabulary."""

    @abstractmethod
    def token_text(self, token_id: int) -> str | None:
        """A token's text in the vocabulary, None where the id has no token."""

    def piece(self, token_id: int) -> str:
        """A token as people read it; "" for an id without one."""
        return self.token_text(token_id) or ""

    @abstractmethod
    def decode(self, ids: Sequence[int], skipped: frozenset[int]) -> str:
        """The text of the ids, those in `skipped` left out."""

    @abstractmethod
    def stream_decoder(self, skipped: frozenset[int]) -> StreamDecoder:
        """A decoder for one completion."""


class ByteCodec(Codec):
    """A codec whose tokens are bytes of UTF-8, whatever stands before them.

    strips_space: `decode` drops one space at the very start, put there by `encode`. invalid: see `ByteStreamDecoder`.
    """

    strips_space = False
    invalid = "replace"

    @abstractmethod
    def token_bytes(self, token_id: int) -> bytes:
        """A token's share of the text; b"" for an id without a token."""

    def decode(self, ids: Sequence[int], skipped: frozenset[int]) -> str:
        stream = self.stream_decoder(skipped)
        text = "".join([stream.push(token_id) for token_id in ids]) + stream.flush()
        return text[1:] if self.strips_space and text.startswith(" ") else text

    def stream_decoder(self, skipped: frozenset[int]) -> StreamDecoder:
        return ByteStreamDecoder(self.token_bytes, skipped, self.invalid)

    def piece(self, token_id: int) -> str:
        if token_id in self.special_ids:
            return self.token_text(token_id) or ""
        data = self.token_bytes(token_id)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return f"<{data.hex(' ').upper()}>"


@dataclass(frozen=True)
class Vocabulary:
    """A codec, and what the files around it say of its tokens; see `ringlet.tokenization.tokenizer.Tokenizer`.

    special_tokens: texts by the names that chat templates have for them. template_origins: how errors call a chat
    template, by its name.
    """

    codec: Codec
    bos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    template_origins: Mapping[str, str] = field(default_factory=dict)
