"""A GGUF file's vocabulary as a codec, with the roles and chat templates that its metadata names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ringlet.core.errors import quoted
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
NAMED_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown"}
OTHER_ROLES = {
    "sep_token": "tokenizer.ggml.seperator_token_id",  # as the format spells it
    "pad_token": "tokenizer.ggml.padding_token_id",
    "cls_token": "tokenizer.ggml.cls_token_id",
    "mask_token": "tokenizer.ggml.mask_token_id",
}
SENTENCEPIECE_IDS = {"bos": 1, "eos": 2}  # what llama.cpp takes where the file names none


def open_vocabulary(metadata: Mapping[str, object], name: str) -> Vocabulary:
    """Raises FormatError for a vocabulary that is broken or unknown."""
    found = read_vocabulary(metadata, name)
    if found.model not in CODECS:
        known = ", ".join(CODECS)
        raise found.error(f"tokenizer.ggml.model is {quoted(found.model)}: this version knows {known}")
    if found.model == "llama":
        found = _with_defaults(found)
    ends, kinds = settle_ends(found)
    codec = CODECS[found.model](replace(found, kinds=kinds))
    templates = _chat_templates(metadata)
    return Vocabulary(
        codec,
        found.named_ids.get("bos"),
        ends,
        chat_templates={template: text for template, (text, _) in templates.items()},
        special_tokens=_special_tokens(metadata, found),
        template_origins={template: f"{name}: {key}" for template, (_, key) in templates.items()},
    )


def _with_defaults(vocabulary: GGUFVocabulary) -> GGUFVocabulary:
    defaults = {role: token_id for role, token_id in SENTENCEPIECE_IDS.items() if token_id < len(vocabulary.tokens)}
    return replace(vocabulary, named_ids=defaults | vocabulary.named_ids)


def _chat_templates(metadata: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """By name, with its key: tokenizer.chat_template is the default one, tokenizer.chat_template.NAME another."""
    key = "tokenizer.chat_template"
    keys = {"default": key} | {name[len(key) + 1 :]: name for name in metadata if name.startswith(f"{key}.")}
    return {name: (text, at) for name, at in keys.items() if isinstance(text := metadata.get(at), str)}


def _special_tokens(metadata: Mapping[str, object], found: GGUFVocabulary) -> dict[str, str]:
    """The texts of the tokens that have a role in chat templates."""
    ids: dict[str, object] = {name: found.named_ids.get(role) for name, role in NAMED_ROLES.items()}
    ids |= {name: metadata.get(key) for name, key in OTHER_ROLES.items()}  # only a template asks for these
    known = {name: index for name, index in ids.items() if isinstance(index, int) and 0 <= index < len(found.tokens)}
    return {name: found.tokens[index] for name, index in known.items()}
