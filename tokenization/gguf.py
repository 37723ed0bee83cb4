"""A GGUF file's vocabulary as a codec, with the roles and chat templates that its metadata names."""

from __future__ import annotations

from collections.abc import Mapping

from ringlet.tokenization.byte_pairs import BytePairCodec, SpaceMarkPairCodec
from ringlet.tokenization.end_tokens import settle_ends
from ringlet.tokenization.gguf_codec import GGUFCodec
from ringlet.tokenization.gguf_vocabulary import GGUFVocabulary, read_vocabulary
from ringlet.tokenization.sentencepiece import SentencePieceCodec

CODECS: dict[str, type[BytePairCodec] | type[SpaceMarkPairCodec] | type[SentencePieceCodec]] = {
    "gpt2": BytePairCodec,
    "llama": SentencePieceCodec,
    "gemma4": SpaceMarkPairCodec,
}
SENTENCEPIECE_IDS = {"bos": 1, "eos": 2}  # what llama.cpp takes where the file names none


def open_vocabulary(
    metadata: Mapping[str, object], name: str
) -> tuple[GGUFCodec, int | None, frozenset[int], dict[str, str]]:
    """The codec, bos_id, eos_ids and chat templates. Raises FormatError for a vocabulary that is broken or unknown."""
    vocabulary = read_vocabulary(metadata, name)
    if vocabulary.model not in CODECS:
        known = ", ".join(CODECS)
        raise vocabulary.error(f"tokenizer.ggml.model is {vocabulary.model!r}: this version knows {known}")
    if vocabulary.model == "llama":
        _take_defaults(vocabulary)
    ends = settle_ends(vocabulary)
    return CODECS[vocabulary.model](vocabulary), vocabulary.named_ids.get("bos"), ends, _chat_templates(metadata)


def _take_defaults(vocabulary: GGUFVocabulary) -> None:
    for role, token_id in SENTENCEPIECE_IDS.items():
        if token_id < len(vocabulary.tokens):
            vocabulary.named_ids.setdefault(role, token_id)


def _chat_templates(metadata: Mapping[str, object]) -> dict[str, str]:
    """tokenizer.chat_template is the default one, tokenizer.chat_template.NAME another."""
    key = "tokenizer.chat_template"
    found = {"default": metadata.get(key)}
    found.update({name[len(key) + 1 :]: metadata[name] for name in metadata if name.startswith(f"{key}.")})
    return {name: text for name, text in found.items() if isinstance(text, str)}
