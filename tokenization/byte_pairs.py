"""GGUF vocabularies with merges ("gpt2" and "gemma4"), rebuilt into HuggingFace's BPE."""

from __future__ import annotations

import re
from itertools import chain
from operator import add

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from ringlet.core.errors import quoted
from ringlet.tokenization.byte_alphabet import BYTE_ALPHABET, bytes_of_alphabet
from ringlet.tokenization.gguf_codec import SPACE_MARK, GGUFCodec
from ringlet.tokenization.gguf_vocabulary import GGUFVocabulary
from ringlet.tokenization.huggingface import guarded
from ringlet.tokenization.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

_NEWLINES = re.compile("(\n+)")


class BytePairCodec(GGUFCodec):
    """Merges over GPT-2's byte alphabet, in the splits of one of the pre-tokenizers."""

    def __init__(self, vocabulary: GGUFVocabulary) -> None:
        kind = _pre_tokenizer(vocabulary)
        super().__init__(vocabulary, kind.adds_bos)
        ids = _usable_ids(vocabulary, self.special_ids)
        # A byte without a token keeps its neighbours apart; it leaves the result afterwards.
        missing = [letter for letter in BYTE_ALPHABET if letter not in ids]
        ids.update(zip(missing, range(self.n_tokens, self.n_tokens + len(missing)), strict=True))
        self._lacks_bytes = bool(missing)
        self._library = tokenizers.Tokenizer(_merges_model(vocabulary, ids, ignore_merges=kind.whole_words))
        splits = [pre_tokenizers.Split(Regex(split), "isolated") for split in kind.splits]
        to_alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._library.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_alphabet])

    def _encode_part(self, text: str, after_token: bool) -> list[int]:
        ids = self._library.encode(text, add_special_tokens=False).ids
        return [i for i in ids if i < self.n_tokens] if self._lacks_bytes else ids

    def _text_bytes(self, text: str) -> bytes:
        return bytes_of_alphabet(text)


class SpaceMarkPairCodec(GGUFCodec):
    """Gemma 4's merges over characters, spaces as "▁", in runs of newlines and of anything else; bytes as "<0xE6>"."""

    invalid = "ringlet_replace_each_byte"

    def __init__(self, vocabulary: GGUFVocabulary) -> None:
        # Some files say that a text does not begin with bos, and mean that it does; so llama.cpp hears it.
        super().__init__(vocabulary, adds_bos=True, heeds_bos_flag=False)
        ids = _usable_ids(vocabulary, self.special_ids)
        self._library = tokenizers.Tokenizer(_merges_model(vocabulary, ids, byte_fallback=True))

    def _encode_part(self, text: str, after_token: bool) -> list[int]:
        ids: list[int] = []
        for part in _NEWLINES.split(text.replace(" ", SPACE_MARK)):
            newlines = self._ids.get(part) if part.startswith("\n") else None
            ids.extend(self._library.encode(part, add_special_tokens=False).ids if newlines is None else [newlines])
        return ids

    def _text_bytes(self, text: str) -> bytes:
        return text.replace(SPACE_MARK, " ").encode()


def _pre_tokenizer(vocabulary: GGUFVocabulary) -> PreTokenizer:
    name = vocabulary.pre or "default"
    if name not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise vocabulary.error(
            f"tokenizer.ggml.pre is {quoted(name)}, which this version does not know; it knows {known}"
        )
    return PRE_TOKENIZERS[name]


def _usable_ids(vocabulary: GGUFVocabulary, special_ids: frozenset[int]) -> dict[str, int]:
    """Ids by text of the tokens that a text may become: all but control tokens."""
    ids = dict(vocabulary.ids)
    for token_id in special_ids:
        del ids[vocabulary.tokens[token_id]]
    return ids


def _merges_model(vocabulary: GGUFVocabulary, ids: dict[str, int], **options: bool) -> models.BPE:
    """The library's model of these tokens and of the merges among them.

    Hundreds of thousands of merges pass here at each start, so they pass all at once. A cache would save little: the
    library is hardly quicker at reading its own JSON back.
    """
    merges = list(dict.fromkeys(vocabulary.merges))
    sides = " ".join(merges).split(" ") if merges else []
    left, right = sides[0::2], sides[1::2]
    if len(sides) != 2 * len(merges) or not all(map(ids.__contains__, chain(left, right, map(add, left, right)))):
        left, right = _checked_sides(vocabulary, merges, ids)
    what = f"{vocabulary.name}: tokenizer.ggml.merges are not what `tokenizers` {tokenizers.__version__} reads"
    return guarded(lambda: models.BPE(ids, list(zip(left, right, strict=True)), **options), what)


def _checked_sides(vocabulary: GGUFVocabulary, merges: list[str], ids: dict[str, int]) -> tuple[list[str], list[str]]:
    """Both sides of the merges, one by one: those of control tokens are left out, those of no tokens refused."""
    left, right = [], []
    for merge in merges:
        first, blank, second = merge.partition(" ")
        names = {first, second, first + second}
        if not blank or not names <= vocabulary.ids.keys():
            raise vocabulary.error(f"tokenizer.ggml.merges has {quoted(merge)}, which joins no two tokens to a third")
        if names <= ids.keys():
            left.append(first)
            right.append(second)
    return left, right
