"""A GGUF file's vocabulary as a codec, with the roles and chat templates that its metadata names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ringlet.tokenization.byte_pairs import BytePairCodec, SpaceMarkPairCodec
from ringlet.tokenization.codec import Vocabulary
from ringlet.tokenization.end_tokens import settle_ends
from ringlet.tokenization.gguf_vocabulary import GGUFVocabulary, read_vocabulary
from ringlet.tokenization.sentencepiece import SentencePieceCodec

CODECS: dict[str, type[BytePairCodec] | type[SpaceMarkPairCodec] | type[SentencePieceCodec]] = {
    "gpt2": BytePairCodec,
    "llama": SentencePieceCodec,
    "gemma4": SpaceMarkPairCodec,
}
SENTENCEPIECE_IDS = {"bos": 1, "eos": 2}  # what llama.cpp takes where the file names none


def open_vocabulary(metadata: Mapping[str, object], name: str) -> Vocabulary:
    """Raises FormatError for a vocabulary that is broken or unknown."""
    found = read_vocabulary(metadata, name)
    if found.model not in CODECS:
        known = ", ".join(CODECS)
        raise found.error(f"tokenizer.ggml.model is {found.model!r}: this version knows {known}")
    if found.model == "llama":
        found = _with_defaults(found)
    ends, kinds = settle_ends(found)
    codec = CODECS[found.model](replace(found, kinds=kinds))
    return Vocabulary(codec, found.named_ids.get("bos"), ends, _chat_templates(metadata))


def _with_defaults(vocabulary: GGUFVocabulary) -> GGUFVocabulary:
    defaults = {role: token_id for role, token_id in SENTENCEPIECE_IDS.items() if token_id < len(vocabulary.tokens)}
    return replace(vocabulary, named_ids=defaults | vocabulary.named_ids)


def _chat_templates(metadata: Mapping[str, object]) -> dict[str, str]:
    """tokenizer.chat_template is the default one, tokenizer.chat_template.NAME another."""
    key = "tokenizer.chat_template"
    found = {"default": metadata.get(key)}
    found.update({name[len(key) + 1 :]: metadata[name] for name in metadata if name.startswith(f"{key}.")})
    return {name: text for name, text in found.items() if isinstance(text, str)}
