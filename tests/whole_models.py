"""The tiny models of tests/fixtures/models with a tokenizer, as whole models that a user could name."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
from safetensors.numpy import load_file, save_file
from tiny_models import FOLDER, copy_model
from tiny_tokenizers import train

MERGED = ["he", "▁t", "▁the", "in", "▁k", "▁kin", "▁king"]  # best first
LETTERS = ["▁", *map(chr, range(ord("a"), ord("z") + 1))]
D_VOCAB = 128  # of the fixture "llama"
BYTES = [f"<0x{byte:02X}>" for byte in range(D_VOCAB - 3 - len(MERGED) - len(LETTERS))]  # ASCII, so each a character
TOKENS = ["<unk>", "<s>", "</s>", *MERGED, *LETTERS, *BYTES]


def write_whole_gguf(path: Path) -> Path:
    """The fixture "llama" as a GGUF file with a SentencePiece vocabulary."""
    reader = gguf.GGUFReader(FOLDER / "llama" / "model.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "general.architecture")):
            writer.add_key_value(name, field.contents(), field.types[0])
    kinds = [2, 3, 3, *[1] * (len(MERGED) + len(LETTERS)), *[6] * len(BYTES)]
    scores = [0.0] * 3 + [-float(rank) for rank in range(len(MERGED))] + [-100.0] * (len(LETTERS) + len(BYTES))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_whole_directory(folder: Path, name: str = "llama", style: str = "word_piece") -> Path:
    """A fixture's directory with a tokenizer.json of one of the styles of `tiny_tokenizers`."""
    folder.mkdir(parents=True, exist_ok=True)
    copy_model(name, folder)
    train(style).save(str(folder / "tokenizer.json"))
    return folder


def split_into_shards(folder: Path, n: int = 3) -> Path:
    """The directory's tensors in n files and an index, in place of one file."""
    held = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for at in range(n):
        shard = f"model-{at + 1:05}-of-{n:05}.safetensors"
        part = dict(sorted(held.items())[at::n])
        save_file(part, folder / shard)
        weight_map |= dict.fromkeys(part, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder
