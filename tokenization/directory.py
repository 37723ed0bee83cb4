"""A HuggingFace directory: tokenizer.json, and what the configurations beside it say about it."""

from __future__ import annotations

from pathlib import Path
from reprlib import repr as short
from typing import Any

from ringlet.core.config import LARGEST_SIZE
from ringlet.core.errors import FormatError
from ringlet.core.formats.json_object import read_json_object
from ringlet.tokenization.codec import Codec, Vocabulary
from ringlet.tokenization.huggingface import open_tokenizer_json

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def open_directory(directory: Path) -> Vocabulary:
    """Raises FormatError for a missing or broken file."""
    if not directory.is_dir():
        raise FormatError(f"{directory}: no such directory")
    codec = open_tokenizer_json(directory / "tokenizer.json")
    config = _read_json(directory / "config.json")
    generation = _read_json(directory / "generation_config.json")
    names = {**_read_json(directory / "special_tokens_map.json"), **_read_json(directory / "tokenizer_config.json")}
    numbered = {
        "generation_config.json": generation,
        "config.json": config,
        "config.json text_config": config.get("text_config"),
    }

    eos_ids: set[int] = set()
    bos_ids: list[int] = []
    for where, values in numbered.items():
        if isinstance(values, dict):
            eos_ids.update(_ids(values, "eos_token_id", f"{directory}: {where}"))
            bos_ids.extend(_ids(values, "bos_token_id", f"{directory}: {where}"))
    eos_ids.update(_named(codec, names, "eos_token"))
    bos_ids = [*_named(codec, names, "bos_token"), *bos_ids]
    bos_id = next((i for i in bos_ids if codec.token_text(i) is not None), None)
    templates = _chat_templates(directory, names)
    return Vocabulary(
        codec,
        bos_id,
        frozenset(eos_ids),
        chat_templates={name: text for name, (text, _) in templates.items()},
        special_tokens={key: text for key in SPECIAL_TOKENS if (text := _text(names.get(key))) is not None},
        template_origins={name: origin for name, (_, origin) in templates.items()},
    )


def _read_json(path: Path) -> dict[str, Any]:
    return read_json_object(path) if path.is_file() else {}


def _ids(values: dict[str, Any], key: str, where: str) -> list[int]:
    """One id, a list of ids or null."""
    found = values.get(key)
    ids = found if isinstance(found, list) else [] if found is None else [found]
    for index in ids:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < LARGEST_SIZE:
            raise FormatError(f"{where}: {key} is {short(found)}: a token id or a list of token ids is needed")
    return ids


def _named(codec: Codec, names: dict[str, Any], key: str) -> list[int]:
    """A token given by its text, or by an object that has it as "content"."""
    text = _text(names.get(key))
    index = None if text is None else codec.token_id(text)
    return [] if index is None else [index]


def _text(value: Any) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _chat_templates(directory: Path, names: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """By name, with how errors call it: a text or a list of {name, template} in tokenizer_config.json; files win."""
    value, origin = names.get("chat_template"), f"{directory / 'tokenizer_config.json'}: chat_template"
    templates = {"default": (value, origin)} if isinstance(value, str) else {}
    for entry in value if isinstance(value, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str):
            templates[entry["name"]] = entry["template"], f"{origin} {entry['name']!r}"
    files = {"default": directory / "chat_template.jinja"}
    files.update({path.stem: path for path in sorted(directory.glob("additional_chat_templates/*.jinja"))})
    for name, path in files.items():
        if path.is_file():
            try:
                templates[name] = path.read_text(encoding="utf-8"), str(path)
            except (OSError, UnicodeDecodeError) as error:
                raise FormatError(f"{path}: not readable as UTF-8 text: {error}") from None
    return templates
