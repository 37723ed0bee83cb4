"""What a tokenizer.json says, where the library has no call for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringlet.tokenization.byte_alphabet import bytes_of_alphabet


@dataclass(frozen=True)
class DecoderKind:
    """How a decoder turns a token's text into bytes.

    byte_level: the text is in GPT-2's byte alphabet. byte_fallback: "<0xE6>" is one byte. spaces: the texts that stand
    for a space. strips_space: one space at the very start is dropped.
    """

    byte_level: bool = False
    byte_fallback: bool = False
    spaces: tuple[tuple[str, str], ...] = ()
    strips_space: bool = False

    def token_bytes(self, text: str) -> bytes:
        if self.byte_level:
            return bytes_of_alphabet(text)
        if self.byte_fallback and is_byte_token(text):
            return bytes([int(text[3:5], 16)])
        for mark, meaning in self.spaces:
            text = text.replace(mark, meaning)
        return text.encode()


def is_byte_token(text: str) -> bool:
    """Whether the text is "<0x00>" to "<0xFF>"."""
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">") and _is_hex(text[3:5])


def _is_hex(text: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in text)


def decoder_kind(decoder: Any) -> DecoderKind | None:
    """The kind of one of the library's decoders; None where its tokens have no bytes of their own."""
    if decoder is None:
        return None
    description = json.loads(decoder.__getstate__())
    chain = description["decoders"] if description["type"] == "Sequence" else [description]
    steps = [step["type"] for step in chain]
    if steps == ["ByteLevel"]:
        return DecoderKind(byte_level=True)
    if steps == ["Metaspace"]:
        return DecoderKind(spaces=((chain[0]["replacement"], " "),))
    return _sentencepiece_kind(chain)


def _sentencepiece_kind(chain: list[dict]) -> DecoderKind | None:
    """Replace…, ByteFallback, Fuse, Strip, in this order, each of them optional; None for any other chain."""
    steps = [step["type"] for step in chain]
    order = [
        ("Replace", "ByteFallback", "Fuse", "Strip").index(step) if step in _SENTENCEPIECE else -1 for step in steps
    ]
    if -1 in order or order != sorted(order) or "Fuse" not in steps or steps.count("Strip") > 1:
        return None
    spaces = []
    for step in chain:
        if step["type"] == "Replace":
            if "String" not in step["pattern"]:
                return None
            spaces.append((step["pattern"]["String"], step["content"]))
        if step["type"] == "Strip" and (step["content"], step["start"], step["stop"]) != (" ", 1, 0):
            return None
    return DecoderKind(byte_fallback="ByteFallback" in steps, spaces=tuple(spaces), strips_space="Strip" in steps)


_SENTENCEPIECE = frozenset(("Replace", "ByteFallback", "Fuse", "Strip"))


def rename_tokens(description: dict, names: Mapping[int, str]) -> dict:
    """The tokenizer.json in which these tokens, by id, have other texts; no merge makes one of them. Ids stay."""
    model = description["model"]
    renamed = {token["content"]: names[token["id"]] for token in description["added_tokens"] if token["id"] in names}

    def name(text: str) -> str:
        return renamed.get(text, text)

    for token in description["added_tokens"]:
        token["content"] = name(token["content"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {name(text): index for text, index in model["vocab"].items()}
    else:
        model["vocab"] = [[name(text), score] for text, score in model["vocab"]]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = name(model["unk_token"])
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if not _sides_and_result(merge) & renamed.keys()]
    return description


def _sides_and_result(merge: str | list[str]) -> set[str]:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return {left, right, left + right}
