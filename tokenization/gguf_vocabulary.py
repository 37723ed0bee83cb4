"""A GGUF file's vocabulary, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ringlet.core.errors import FormatError, quoted
from ringlet.core.formats.gguf_metadata import Metadata

# A little more than the largest vocabularies have: each costs many times more memory than the file has bytes for it.
MOST_TOKENS, MOST_MERGES = 5 << 16, 1 << 19
MOST_WHOLE_TOKENS = 1 << 16  # of the kinds that a text is searched for

# Kinds of tokens, tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@dataclass(frozen=True, eq=False)
class GGUFVocabulary:
    """name: what errors call the file. pre: "" where the file names no pre-tokenizer. kinds: one a token.

    scores: float32, one a token, None where there are none. merges: "left right", best first. ids: by a token's text.
    named_ids: the ids that the file gives a role, such as "bos" and "eos".
    """

    name: str
    model: str
    pre: str
    tokens: list[str]
    kinds: np.ndarray
    scores: np.ndarray | None
    merges: list[str]
    ids: dict[str, int]
    named_ids: dict[str, int]
    flags: dict[str, bool] = field(default_factory=dict)

    def error(self, message: str) -> FormatError:
        return FormatError(f"{self.name}: {message}")


ROLES = {
    "bos": "bos", "eos": "eos", "eot": "eot", "eom": "eom", "unknown": "unknown",
    "fim_pre": "fim_pre", "fim_suf": "fim_suf", "fim_mid": "fim_mid",
    "fim_pad": "fim_pad", "fim_rep": "fim_rep", "fim_sep": "fim_sep",
    "prefix": "fim_pre", "suffix": "fim_suf", "middle": "fim_mid",
}  # fmt: skip
FLAGS = ("add_bos_token", "add_eos_token", "add_space_prefix")


def read_vocabulary(metadata: Mapping[str, object], name: str) -> GGUFVocabulary:
    """Raises FormatError for what is missing, of the wrong type or length, or names no token."""

    def fail(key: str, message: str) -> FormatError:
        return FormatError(f"{name}: tokenizer.ggml.{key} {message}")

    def text(key: str) -> str:
        value = metadata.get(f"tokenizer.ggml.{key}", "")
        if not isinstance(value, str):
            raise fail(key, f"is of type {type(value).__name__}: a text is needed")
        return value

    def texts(key: str, most: int) -> list[str]:
        count = metadata.count(f"tokenizer.ggml.{key}") if isinstance(metadata, Metadata) else 0
        if count > most:
            raise fail(key, f"has {count} entries: {most} are possible")
        value: Any = metadata.get(f"tokenizer.ggml.{key}")
        found = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
        if isinstance(value, str) or not set(map(type, found)) <= {str}:
            raise fail(key, "is missing or not a list of texts")
        return found

    def numbers(key: str, kinds: str, count: int) -> np.ndarray | None:
        if (value := metadata.get(f"tokenizer.ggml.{key}")) is None:
            return None
        array = np.asarray(value)
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise fail(key, "is not a list of numbers of the kind it needs")
        if len(array) != count:
            raise fail(key, f"has {len(array)} entries for {count} tokens")
        return array

    model = text("model")
    if not model:
        raise fail("model", "is missing: the file holds no vocabulary")
    tokens = texts("tokens", MOST_TOKENS)
    if not tokens:
        raise fail("tokens", "is empty")
    if "" in tokens:
        tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) != len(tokens):
        double = next(token for index, token in enumerate(tokens) if ids[token] != index)
        raise fail("tokens", f"has {quoted(double)} twice")
    kinds = numbers("token_type", "iu", len(tokens))
    if kinds is not None and np.isin(kinds, (UNKNOWN, CONTROL, USER_DEFINED)).sum() > MOST_WHOLE_TOKENS:
        raise fail("token_type", f"has more than {MOST_WHOLE_TOKENS} control and user-defined tokens")
    scores = numbers("scores", "fiu", len(tokens))
    if scores is not None and np.isnan(scores).any():
        raise fail("scores", "has a score that is no number")
    return GGUFVocabulary(
        name=name,
        model=model,
        pre=text("pre"),
        tokens=tokens,
        kinds=np.full(len(tokens), NORMAL) if kinds is None else kinds.astype(np.int64),
        scores=None if scores is None else scores.astype(np.float32),
        merges=texts("merges", MOST_MERGES) if model in ("gpt2", "gemma4") else [],
        ids=ids,
        named_ids=_named_ids(metadata, len(tokens), fail),
        flags=_flags(metadata, fail),
    )


def _named_ids(metadata: Mapping[str, object], n_tokens: int, fail: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, role in ROLES.items():
        value: Any = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < n_tokens:
            raise fail(f"{key}_token_id", f"is {quoted(value)}: an id from 0 to {n_tokens - 1} is needed")
        found.setdefault(role, int(value))
    return found


def _flags(metadata: Mapping[str, object], fail: Any) -> dict[str, bool]:
    found = {}
    for key in FLAGS:
        value = metadata.get(f"tokenizer.ggml.{key}")
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise fail(key, f"is {quoted(value)}: true or false is needed")
        if value is not None:
            found[key] = bool(value)
    return found
