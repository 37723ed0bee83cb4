"""A tokenizer.json as it is, through HuggingFace's `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import tokenizers

from ringlet.core.errors import FormatError
from ringlet.core.formats.file_bytes import file_bytes
from ringlet.tokenization.codec import ByteCodec, Codec
from ringlet.tokenization.hostile_json import check_growth, check_text
from ringlet.tokenization.huggingface_json import DecoderKind, decoder_kind, rename_tokens
from ringlet.tokenization.streaming import StreamDecoder, TextStreamDecoder

Result = TypeVar("Result")
LARGEST_ID = 1 << 22  # where it writes a tokenizer down, the library takes memory for every id without a token
CANNOT_ENCODE = "the tokenizer cannot encode this text"
NO_TOKENIZER = "no tokenizer.json: save one with transformers, AutoTokenizer.from_pretrained(…).save_pretrained(…)"


def open_tokenizer_json(path: Path) -> Codec:
    """Raises FormatError for a file that is missing or broken."""
    if not path.is_file():
        raise FormatError(f"{path.parent}: {NO_TOKENIZER}")
    check_text(file_bytes(path).tobytes(), str(path))
    what = f"{path}: not a tokenizer that `tokenizers` {tokenizers.__version__} reads"
    library = guarded(lambda: tokenizers.Tokenizer.from_file(str(path)), what)
    check_growth(library, str(path))
    kind = decoder_kind(library.decoder)
    codec = HuggingFaceTextCodec(library) if kind is None else HuggingFaceByteCodec(library, kind)
    if codec.n_tokens > LARGEST_ID:
        raise FormatError(f"{path}: a token has the id {codec.n_tokens - 1}: up to {LARGEST_ID - 1} are possible")
    return codec


def guarded(call: Callable[[], Result], what: str) -> Result:
    """The call's result; whatever the library raises, a panic of its Rust code included, becomes a FormatError."""
    try:
        return call()
    except BaseException as error:
        # pyo3's PanicException is a BaseException that no module exports.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            reason = "".join(mark if mark.isprintable() else "?" for mark in " ".join(str(error).split())[:200])
            raise FormatError(f"{what}: {reason}") from None
        raise


class HuggingFaceCodec(Codec):
    """Encoding, which is the same whatever the decoder."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True  # special tokens in a text are plain text
        self._library = library
        added = library.get_added_tokens_decoder()
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self._renamed: dict[frozenset[int], tuple[tokenizers.Tokenizer, dict[int, str]]] = {}

    @property
    def whole_tokens(self) -> Mapping[str, int]:
        return {token.content: index for index, token in self._library.get_added_tokens_decoder().items()}

    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        library = self._parsing if parse_special else self._plain
        return guarded(lambda: library.encode(text, add_special_tokens=add_special).ids, CANNOT_ENCODE)

    def encode_parts(self, parts: Sequence[str | int], hidden: frozenset[int]) -> list[int]:
        """In one text, so that spaces and neighbours are as the library has them; tokens go by names no text has."""
        if hidden not in self._renamed:
            self._renamed[hidden] = self._with_secret_names(hidden | self.special_ids)
        library, names = self._renamed[hidden]
        text = "".join(part if isinstance(part, str) else names[part] for part in parts)
        return guarded(lambda: library.encode(text, add_special_tokens=False).ids, CANNOT_ENCODE)

    def _with_secret_names(self, ids: frozenset[int]) -> tuple[tokenizers.Tokenizer, dict[int, str]]:
        """A copy to which these tokens are known by other names only, and the names."""
        secret = token_hex(16)
        names = {index: f"\U0010fffe{secret}{index}\U0010ffff" for index in ids}
        renamed = rename_tokens(json.loads(self._library.to_str()), names)
        return tokenizers.Tokenizer.from_str(json.dumps(renamed)), names

    @cached_property
    def _parsing(self) -> tokenizers.Tokenizer:
        """A second tokenizer, for the setting is no argument of `encode` and threads may share a tokenizer."""
        return tokenizers.Tokenizer.from_str(self._library.to_str())

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """The tokenizer to which special tokens in a text are plain text, where the library's setting is not enough."""
        if type(self._library.model).__name__ == "BPE":
            return self._library
        return self._with_secret_names(self.special_ids)[0]

    @cached_property
    def _known_ids(self) -> frozenset[int]:
        return frozenset(self._library.get_vocab(with_added_tokens=True).values())

    @cached_property
    def n_tokens(self) -> int:
        return max(self._known_ids, default=-1) + 1

    def ids_without_token(self, limit: int) -> list[int]:
        return sorted(set(range(limit)) - self._known_ids)

    def token_id(self, text: str) -> int | None:
        return self._library.token_to_id(text)

    def token_text(self, token_id: int) -> str | None:
        return self._library.id_to_token(token_id) if 0 <= token_id < 1 << 32 else None

    def decode(self, ids: Sequence[int], skipped: frozenset[int]) -> str:
        return self._library.decode([i for i in ids if i not in skipped], skip_special_tokens=False)


class HuggingFaceTextCodec(HuggingFaceCodec):
    """For decoders whose tokens have no text of their own, such as WordPiece."""

    def stream_decoder(self, skipped: frozenset[int]) -> StreamDecoder:
        return TextStreamDecoder(lambda ids: self.decode(ids, frozenset()), skipped)


class HuggingFaceByteCodec(HuggingFaceCodec, ByteCodec):
    """For the decoders ByteLevel, Metaspace, and SentencePiece's chain with or without ByteFallback."""

    def __init__(self, library: tokenizers.Tokenizer, kind: DecoderKind) -> None:
        super().__init__(library)
        self._kind = kind
        self.strips_space = kind.strips_space
        self.invalid = "ringlet_replace_each_byte" if kind.byte_fallback else "replace"
        self._bytes: dict[int, bytes] = {}

    def token_bytes(self, token_id: int) -> bytes:
        known = self._bytes.get(token_id)
        if known is None:
            text = self.token_text(token_id)
            known = self._bytes[token_id] = b"" if text is None else self._kind.token_bytes(text)
        return known

    def decode(self, ids: Sequence[int], skipped: frozenset[int]) -> str:
        """As the library does, but that a run of byte tokens keeps its characters where some bytes are none."""
        if self._kind.byte_fallback:
            return ByteCodec.decode(self, ids, skipped)
        return super().decode(ids, skipped)
