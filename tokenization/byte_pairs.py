"""GGUF vocabularies with merges ("gpt2" and "gemma4"), rebuilt into HuggingFace's BPE."""

from __future__ import annotations

import re

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from ringlet.tokenization.byte_alphabet import bytes_of_alphabet
from ringlet.tokenization.gguf_codec import GGUFCodec
from ringlet.tokenization.gguf_vocabulary import BYTE, NORMAL, GGUFVocabulary
from ringlet.tokenization.huggingface import guarded
from ringlet.tokenization.huggingface_json import is_byte_token
from ringlet.tokenization.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

SPACE_MARK = "▁"  # U+2581
_NEWLINES = re.compile("(\n+)")


class BytePairCodec(GGUFCodec):
    """Merges over GPT-2's byte alphabet, in the splits of one of the pre-tokenizers."""

    def __init__(self, vocabulary: GGUFVocabulary) -> None:
        kind = _pre_tokenizer(vocabulary)
        super().__init__(vocabulary, kind.adds_bos)
        self._library = tokenizers.Tokenizer(
            _merges_model(vocabulary, self.special_ids, ignore_merges=kind.whole_words)
        )
        splits = [pre_tokenizers.Split(Regex(split), "isolated") for split in kind.splits]
        to_alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._library.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_alphabet])

    def _encode_part(self, text: str, after_token: bool) -> list[int]:
        return self._library.encode(text, add_special_tokens=False).ids

    def _bytes_of(self, token_id: int) -> bytes:
        text = self._tokens[token_id]
        return bytes_of_alphabet(text) if self._kinds[token_id] == NORMAL else text.encode()


class SpaceMarkPairCodec(GGUFCodec):
    """Gemma 4's merges over characters, spaces as "▁", in runs of newlines and of anything else; bytes as "<0xE6>"."""

    invalid = "ringlet_replace_each_byte"

    def __init__(self, vocabulary: GGUFVocabulary) -> None:
        super().__init__(vocabulary, adds_bos=True)
        self._library = tokenizers.Tokenizer(_merges_model(vocabulary, self.special_ids, byte_fallback=True))

    def _encode_part(self, text: str, after_token: bool) -> list[int]:
        ids: list[int] = []
        for part in _NEWLINES.split(text.replace(" ", SPACE_MARK)):
            newlines = self._ids.get(part) if part.startswith("\n") else None
            ids.extend(self._library.encode(part, add_special_tokens=False).ids if newlines is None else [newlines])
        return ids

    def _bytes_of(self, token_id: int) -> bytes:
        text, kind = self._tokens[token_id], self._kinds[token_id]
        if kind == BYTE and is_byte_token(text):
            return bytes([int(text[3:5], 16)])
        return (text.replace(SPACE_MARK, " ") if kind == NORMAL else text).encode()


def _pre_tokenizer(vocabulary: GGUFVocabulary) -> PreTokenizer:
    name = vocabulary.pre or "default"
    if name not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise vocabulary.error(f"tokenizer.ggml.pre is {name!r}, which this version does not know; it knows {known}")
    return PRE_TOKENIZERS[name]


def _merges_model(vocabulary: GGUFVocabulary, special_ids: frozenset[int], **options: bool) -> models.BPE:
    """The library's model, without the control tokens, which no text may become."""
    ids = vocabulary.ids
    usable = dict(ids)
    for token_id in special_ids:
        del usable[vocabulary.tokens[token_id]]
    merges = []
    for merge in dict.fromkeys(vocabulary.merges):
        at = merge.find(" ", 1)
        left, right = merge[:at], merge[at + 1 :]
        if at < 0 or left not in ids or right not in ids or left + right not in ids:
            raise vocabulary.error(f"tokenizer.ggml.merges has {merge!r}, which joins no two tokens to a third")
        if left in usable and right in usable and left + right in usable:
            merges.append((left, right))
    what = f"{vocabulary.name}: tokenizer.ggml.merges are not what `tokenizers` {tokenizers.__version__} reads"
    return guarded(lambda: models.BPE(usable, merges, **options), what)
