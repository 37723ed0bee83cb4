"""GGUF vocabularies of SentencePiece with scores ("llama")."""

from __future__ import annotations

from ringlet.core.errors import RingletError
from ringlet.tokenization.gguf_codec import SPACE_MARK, GGUFCodec
from ringlet.tokenization.gguf_vocabulary import GGUFVocabulary
from ringlet.tokenization.score_merges import ScoreMerger


class SentencePieceCodec(GGUFCodec):
    """Spaces are "▁"; one is put before a text and after every token cut out of it, unless the file says not to."""

    invalid = "ringlet_replace_each_byte"

    def __init__(self, vocabulary: GGUFVocabulary) -> None:
        super().__init__(vocabulary, adds_bos=True)
        if vocabulary.scores is None:
            raise vocabulary.error("tokenizer.ggml.scores is missing: a SentencePiece vocabulary needs it")
        self._name = vocabulary.name
        self._unknown = vocabulary.named_ids.get("unknown")
        self.strips_space = self._prefixes_space = vocabulary.flags.get("add_space_prefix", True)
        never = frozenset(self._tokens[token_id] for token_id in self.special_ids)
        self._merger = ScoreMerger(vocabulary.ids, vocabulary.scores, never)

    def _encode_part(self, text: str, after_token: bool) -> list[int]:
        if after_token and self._prefixes_space:
            text = " " + text
        ids: list[int] = []
        for found in self._merger.encode(text.replace(" ", SPACE_MARK)):
            ids.extend([found] if isinstance(found, int) else self._byte_ids(found))
        return ids

    def _byte_ids(self, character: str) -> list[int]:
        """Byte tokens for a character that has no token."""
        ids = []
        for byte in character.encode():
            token_id = self._ids.get(f"<0x{byte:02X}>", self._unknown)
            if token_id is None:
                raise RingletError(f"{self._name}: the vocabulary has no token for {character!r}")
            ids.append(token_id)
        return ids

    def _text_bytes(self, text: str) -> bytes:
        return text.replace(SPACE_MARK, " ").encode()
