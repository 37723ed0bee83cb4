"""What all GGUF vocabularies share: tokens that are cut out of a text first, and tokens around it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from ringlet.tokenization.codec import ByteCodec
from ringlet.tokenization.gguf_vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, GGUFVocabulary
from ringlet.tokenization.huggingface_json import is_byte_token

SPACE_MARK = "▁"  # U+2581, a space in SentencePiece's vocabularies


class GGUFCodec(ByteCodec):
    """Cuts whole tokens out of a text as llama.cpp does: the longest first, each wherever it stands in what is left.

    adds_bos: whether a text begins with the bos token where the file does not say. heeds_bos_flag: whether it is heard.
    """

    def __init__(self, vocabulary: GGUFVocabulary, adds_bos: bool, heeds_bos_flag: bool = True) -> None:
        self._tokens, self._ids, self._kinds = vocabulary.tokens, vocabulary.ids, vocabulary.kinds
        self.special_ids = frozenset(self._of_kind(CONTROL, UNKNOWN))
        self._user_defined = frozenset(self._of_kind(USER_DEFINED))
        self._whole = _TokenFinder(self._tokens[i] for i in self._user_defined)
        self._whole_and_special = _TokenFinder(self._tokens[i] for i in self._of_kind(USER_DEFINED, CONTROL, UNKNOWN))
        said = vocabulary.flags.get("add_bos_token") if heeds_bos_flag else None
        self._before = _edge(vocabulary, "bos", said, adds_bos)
        self._after = _edge(vocabulary, "eos", vocabulary.flags.get("add_eos_token"), False)
        self._bytes: dict[int, bytes] = {}

    @property
    def n_tokens(self) -> int:
        return len(self._tokens)

    def _of_kind(self, *kinds: int) -> list[int]:
        return np.nonzero(np.isin(self._kinds, kinds))[0].tolist()

    @property
    def whole_tokens(self) -> Mapping[str, int]:
        return {self._tokens[i]: i for i in (*self.special_ids, *self._user_defined)}

    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        finder = self._whole_and_special if parse_special else self._whole
        ids = self._encode_split(finder.split(text))
        return [*self._before, *ids, *self._after] if add_special else ids

    def encode_parts(self, parts: Sequence[str | int], hidden: frozenset[int]) -> list[int]:
        finder = _TokenFinder(self._tokens[i] for i in self._user_defined - hidden)
        split = ([(self._tokens[p], True)] if isinstance(p, int) else finder.split(p) for p in parts)
        return self._encode_split(chain.from_iterable(split))

    def _encode_split(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Of parts of a text in order, with whether each is a whole token."""
        ids: list[int] = []
        after_token = True
        for part, is_token in parts:
            if is_token:
                ids.append(self._ids[part])
            else:
                ids.extend(self._encode_part(part, after_token))
            after_token = is_token
        return ids

    @abstractmethod
    def _encode_part(self, text: str, after_token: bool) -> list[int]:
        """Ids of a text that holds no whole token; after_token: it begins the text or follows one."""

    @abstractmethod
    def _text_bytes(self, text: str) -> bytes:
        """The bytes of a normal token."""

    def _bytes_of(self, token_id: int) -> bytes:
        text, kind = self._tokens[token_id], self._kinds[token_id]
        if kind == NORMAL:
            return self._text_bytes(text)
        if kind == BYTE and is_byte_token(text):
            return bytes([int(text[3:5], 16)])
        return text.encode() if kind in (USER_DEFINED, CONTROL, UNKNOWN) else b""

    def token_bytes(self, token_id: int) -> bytes:
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._bytes_of(token_id) if 0 <= token_id < self.n_tokens else b""
        return known

    def token_id(self, text: str) -> int | None:
        return self._ids.get(text)

    def token_text(self, token_id: int) -> str | None:
        return self._tokens[token_id] if 0 <= token_id < self.n_tokens else None


def _edge(vocabulary: GGUFVocabulary, role: str, wanted: bool | None, default: bool) -> tuple[int, ...]:
    """The token that begins or ends a text, or none. wanted: what the file says, None for nothing."""
    token_id = vocabulary.named_ids.get(role)
    if wanted and token_id is None:
        raise vocabulary.error(f"tokenizer.ggml.add_{role}_token is true, but no {role}_token_id says which token")
    return (token_id,) if token_id is not None and (default if wanted is None else wanted) else ()


class _TokenFinder:
    """Finds tokens that stand in a text as they are."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._order = sorted(tokens, key=lambda token: -len(token.encode()))
        self._rank = {token: rank for rank, token in enumerate(self._order)}
        self._by_head: dict[str, list[str]] = {}  # thousands of tokens share few beginnings
        for token in self._order:
            self._by_head.setdefault(token[:3], []).append(token)

    def split(self, text: str) -> Iterator[tuple[str, bool]]:
        """The parts of the text in order, with whether each is one of the tokens."""
        heads = [tokens for head, tokens in self._by_head.items() if head in text]
        found = sorted((token for tokens in heads for token in tokens if token in text), key=self._rank.__getitem__)
        parts = [(text, False)] if text else []
        for token in found:
            parts = [piece for part in parts for piece in ([part] if part[1] else _cut(part[0], token))]
        return iter(parts)


def _cut(text: str, token: str) -> list[tuple[str, bool]]:
    pieces: list[tuple[str, bool]] = []
    for index, between in enumerate(text.split(token)):
        if index:
            pieces.append((token, True))
        if between:
            pieces.append((between, False))
    return pieces
