"""The tokenizer as users meet it, from a directory, a GGUF file, the Hub or the embedded model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ringlet.core.errors import RingletError
from ringlet.tokenization.codec import ByteCodec, Codec, Vocabulary, check_unicode
from ringlet.tokenization.streaming import StreamDecoder

if TYPE_CHECKING:
    from ringlet.tokenization.chat.format import ChatFormat


class Tokenizer:
    """Text to token ids and back.

    n_tokens: every token's id is below it. bos_id: the token that begins a text, None where there is none. eos_ids:
    every token that ends a generation. special_ids: control tokens, which `decode` skips. chat_templates: Jinja sources
    by name, the usual one "default". special_tokens: texts by the names that these have for them, such as "bos_token".
    """

    def __init__(
        self,
        codec: Codec,
        bos_id: int | None = None,
        eos_ids: Iterable[int] = (),
        chat_templates: Mapping[str, str] | None = None,
        special_tokens: Mapping[str, str] | None = None,
        template_origins: Mapping[str, str] | None = None,
    ) -> None:
        self._codec = codec
        self.bos_id = bos_id
        self.eos_ids = frozenset(eos_ids)
        self.special_ids = codec.special_ids
        self.chat_templates = dict(chat_templates or {})
        self.special_tokens = dict(special_tokens or {})
        self._template_origins = dict(template_origins or {})
        self._chat_formats: dict[str | None, ChatFormat] = {}

    @classmethod
    def from_pretrained(cls, source: str | os.PathLike[str] | None = None) -> Tokenizer:
        """The tokenizer of a model: None for the embedded one, a directory, a GGUF file, or "org/name" of the Hub.

        A GGUF file that holds only a vocabulary will do, and a directory without a model's weights. Raises RingletError
        for a file that is missing or broken.
        """
        from ringlet.core.formats.source import resolve_source

        if source is not None and (folder := Path(source).expanduser()).joinpath("tokenizer.json").is_file():
            return cls.from_directory(folder)
        path = Path(resolve_source(source).path)
        if path.is_dir():
            return cls.from_directory(path)
        from ringlet.core.formats.gguf import open_gguf

        return cls.from_gguf(open_gguf(path).metadata, name=str(path))

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """From tokenizer.json and the configurations beside it."""
        from ringlet.tokenization.directory import open_directory

        return cls._of(open_directory(Path(path)))

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], name: str = "the GGUF file") -> Tokenizer:
        """From a GGUF file's metadata; `name` is what errors call the file."""
        from ringlet.tokenization.gguf import open_vocabulary

        return cls._of(open_vocabulary(metadata, name))

    @classmethod
    def _of(cls, vocabulary: Vocabulary) -> Tokenizer:
        return cls(
            vocabulary.codec,
            vocabulary.bos_id,
            vocabulary.eos_ids,
            vocabulary.chat_templates,
            vocabulary.special_tokens,
            vocabulary.template_origins,
        )

    def __repr__(self) -> str:
        return f"<Tokenizer of {self.n_tokens} tokens: bos_id {self.bos_id}, eos_ids {sorted(self.eos_ids)}>"

    def __deepcopy__(self, memo: dict[int, object]) -> Tokenizer:
        """Nothing in it changes: the copies of a sampler that keeps one share it."""
        return self

    @property
    def n_tokens(self) -> int:
        return self._codec.n_tokens

    def ids_without_token(self, limit: int) -> list[int]:
        """The ids below `limit` that have no token, in order."""
        return self._codec.ids_without_token(limit)

    @property
    def chat_template(self) -> str | None:
        return self.chat_templates.get("default")

    def chat_format(self, template: str | None = None, origin: str = "the chat template") -> ChatFormat:
        """How a conversation becomes token ids.

        template: the name of one of the model's or of ours (see `chat.shipped`), or a Jinja text; None for the model's
        default one. origin: how errors call a text that is given here. Raises RingletError where there is none, or for
        one that cannot be used.
        """
        if template not in self._chat_formats:
            from ringlet.tokenization.chat.format import ChatFormat

            name = "default" if template is None else template
            source, where = self._template_source(name, origin)
            known = self.special_tokens if name in self.chat_templates else self._known_tokens
            self._chat_formats[template] = ChatFormat(self._codec, source, where, known)
        return self._chat_formats[template]

    @cached_property
    def _known_tokens(self) -> dict[str, str]:
        """The special tokens, for a template that is not the model's: with the one that begins a text, which no
        configuration may name."""
        texts = {token_id: text for text, token_id in self._codec.whole_tokens.items()}
        begins = {} if self.bos_id is None or self.bos_id not in texts else {"bos_token": texts[self.bos_id]}
        return begins | self.special_tokens

    def _template_source(self, template: str, origin: str) -> tuple[str, str]:
        """A template's text, and how errors call it."""
        from ringlet.tokenization.chat.shipped import SHIPPED, shipped_template

        if template in self.chat_templates:
            return self.chat_templates[template], self._template_origins.get(template, origin)
        if template in SHIPPED:
            return shipped_template(template), template
        if template != "default":
            return template, origin
        if self.chat_templates:
            own = ", ".join(map(repr, sorted(self.chat_templates)))
            raise RingletError(f"the model has no usual chat template: choose one with --template (its own are {own})")
        raise RingletError(
            "the model has no chat template: choose a model for conversations (--model), or give --template "
            f"(template= in Python): {', '.join(SHIPPED)}, or one of your own"
        )

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of the text.

        add_special: with the tokens that the model wants around a text. parse_special: special tokens written in the
        text become their ids; else they are plain text. Raises RingletError for a text that is no valid Unicode.
        """
        if not isinstance(text, str):
            raise RingletError(f"the text is of type {type(text).__name__}: str is needed")
        check_unicode(text)
        return self._codec.encode(text, add_special, parse_special)

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of the ids; bytes that are no character become U+FFFD, ids without a token nothing.

        The space that a SentencePiece vocabulary puts before the first word is dropped; `stream_decoder`, which
        continues a text, keeps it.
        """
        return self._codec.decode([int(i) for i in ids], self.special_ids if skip_special else frozenset())

    def stream_decoder(self) -> StreamDecoder:
        """A decoder for the tokens of one completion, as they come; special tokens are skipped."""
        return self._codec.stream_decoder(self.special_ids)

    def has_token(self, token_id: int) -> bool:
        return self._codec.token_text(token_id) is not None

    def token_bytes(self, token_id: int) -> bytes:
        """A token's share of a text in UTF-8, wherever it stands in it; b"" for an id without a token.

        Raises RingletError for a vocabulary whose tokens have none of their own, such as one of whole words.
        """
        if not isinstance(self._codec, ByteCodec):
            raise RingletError("the tokens of this vocabulary have no bytes of their own")
        return self._codec.token_bytes(token_id)

    def token_id(self, text: str) -> int | None:
        """The id of a token by its text in the vocabulary, such as "<|im_end|>"."""
        return self._codec.token_id(text)

    def piece(self, token_id: int) -> str:
        """A token as people read it: its text, or its bytes as "<E6 88>" where they are only a part of a character.

        Raises RingletError for an id without a token.
        """
        name = self._codec.token_text(token_id)
        if name is None:
            raise RingletError(f"token id {token_id} has no token")
        return self._codec.piece(token_id)
