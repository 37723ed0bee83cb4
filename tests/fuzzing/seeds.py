"""The valid models that are mutated: small, of several families, in every kind of file that Ringlet reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from struct import pack

import numpy as np
from tiny_models import FOLDER
from tiny_tokenizers import train
from whole_models import D_VOCAB, split_into_shards, write_whole_directory, write_whole_gguf

from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.testing.random_models import random_blocks

from .gguf_parts import ARRAY, FLOAT32, INT32, TEXT, UINT32, Entry, Parts, Walk, numbers, text, texts

BLOCKS = ["Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K", "BF16"]  # of the matrices of one layer, in turn


@dataclass(frozen=True)
class SeedModel:
    """A model as the contents of its files by name. opened: the file that a user would name, "." for the folder.

    uses: what can be done with it.
    """

    name: str
    files: dict[str, bytes]
    opened: str
    uses: tuple[str, ...] = ("generate", "inspect")

    def write(self, folder: Path) -> Path:
        """What to open, after the files have been written."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder / self.opened


def make_seeds(folder: Path) -> list[SeedModel]:
    """All of them, built in an empty folder."""
    found = [SeedModel(name, {"model.gguf": make()}, "model.gguf") for name, make in GGUF_SEEDS.items()]
    found.append(SeedModel("vocabulary", {"model.gguf": vocabulary_only()}, "model.gguf", ("tokenize",)))
    found.append(split_gguf())
    whole = write_whole_gguf(folder / "llama.gguf").read_bytes()
    found.append(SeedModel("gguf of llama", {"model.gguf": whole}, "model.gguf"))
    for name, style in [
        ("llama", "word_piece"),
        ("qwen2", "byte_level"),
        ("gemma3", "byte_fallback"),
        ("gpt2", "word_level"),
    ]:
        found.append(directory(f"directory of {name}", FOLDER / name, style))
    sharded = split_into_shards(write_whole_directory(folder / "shards"))
    found.append(directory("directory of shards", sharded, "unigram"))
    return found


def directory(name: str, folder: Path, style: str) -> SeedModel:
    """A folder's configuration and safetensors, with a tokenizer of one of the styles of `tiny_tokenizers`."""
    paths = [folder / "config.json", *sorted(folder.glob("model*.safetensors*"))]
    files = {path.name: path.read_bytes() for path in paths}
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "{{ messages[0].content }}"}
    files["tokenizer.json"] = small_tokenizer(style)
    files["tokenizer_config.json"] = json.dumps(settings).encode()
    files["generation_config.json"] = json.dumps({"eos_token_id": [2], "bos_token_id": 1}).encode()
    return SeedModel(name, files, ".")


def small_tokenizer(style: str) -> bytes:
    """A tokenizer.json of no more tokens than the fixtures' embeddings have rows."""
    document = json.loads(train(style).to_str())
    model = document["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = model["vocab"][:D_VOCAB]
    else:
        model["vocab"] = {token: index for token, index in model["vocab"].items() if index < D_VOCAB}
    if "merges" in model:
        known = model["vocab"].keys()
        model["merges"] = [merge for merge in model["merges"] if {*merge, "".join(merge)} <= known]
    return json.dumps(document).encode()


def fixture(name: str) -> Parts:
    return Walk((FOLDER / name / "model.gguf").read_bytes()).parts


def with_merges(name: str) -> bytes:
    """A fixture with a vocabulary of byte pairs, as many tokens as its embedding has rows."""
    parts = fixture(name)
    count = next(entry.sizes[1] for entry in parts.entries if entry.name == b"token_embd.weight")
    pairs = [b"h e", b"t he", b"i n", b"k in", b"kin g", b"a a", b"aa aa"]
    letters = [bytes([code]) for code in range(97, 123)]
    special = [b"<|endoftext|>", b"<|im_start|>"]
    tokens = [*special, *letters, "Ġ".encode(), *(pair.replace(b" ", b"") for pair in pairs)][:count]
    tokens += [f"<unused{index}>".encode() for index in range(count - len(tokens))]
    add_vocabulary(parts, b"gpt2", tokens, [3, 3] + [1] * (count - 2))
    parts.set(b"tokenizer.ggml.pre", TEXT, text(b"gpt-2"))
    parts.set(b"tokenizer.ggml.merges", ARRAY, texts(pairs))
    parts.set(b"tokenizer.ggml.eos_token_id", UINT32, pack("<I", 0))
    return parts.pack()


def with_scores(name: str) -> bytes:
    """A fixture with SentencePiece's kind of vocabulary."""
    parts = fixture(name)
    count = next(entry.sizes[1] for entry in parts.entries if entry.name == b"token_embd.weight")
    add_scores(parts, count)
    return parts.pack()


def add_scores(parts: Parts, count: int) -> None:
    words = [
        b"<unk>",
        b"<s>",
        b"</s>",
        *(bytes([code]) for code in range(97, 123)),
        "▁".encode(),
        b"th",
        b"the",
        b"ri",
        b"ng",
    ]
    tokens = [*words, *(f"<0x{code:02X}>".encode() for code in range(max(0, count - len(words))))][:count]
    kinds = [2, 3, 3, *[1] * (len(words) - 3), *[6] * count][:count]
    add_vocabulary(parts, b"llama", tokens, kinds)
    parts.set(b"tokenizer.ggml.scores", ARRAY, numbers(FLOAT32, [-float(index) for index in range(count)]))


def add_vocabulary(parts: Parts, model: bytes, tokens: list[bytes], kinds: list[int]) -> None:
    for key in (b"tokens", b"token_type"):
        parts.pairs = [pair for pair in parts.pairs if pair.key != b"tokenizer.ggml." + key]
    parts.set(b"tokenizer.ggml.model", TEXT, text(model))
    parts.set(b"tokenizer.ggml.tokens", ARRAY, texts(tokens))
    parts.set(b"tokenizer.ggml.token_type", ARRAY, numbers(INT32, kinds))


def vocabulary_only() -> bytes:
    parts = Parts([], [], b"")
    parts.set(b"general.architecture", TEXT, text(b"llama"))
    add_scores(parts, 200)
    return parts.pack()


def in_blocks() -> bytes:
    """One layer of Llama, its matrices in blocks, each of another format."""
    parts = Parts([], [], b"")
    sizes = {"embedding_length": 256, "feed_forward_length": 256, "block_count": 1, "context_length": 128}
    sizes |= {"attention.head_count": 4, "attention.head_count_kv": 2}
    for key, size in sizes.items():
        parts.set(f"llama.{key}".encode(), UINT32, pack("<I", size))
    parts.set(b"llama.attention.layer_norm_rms_epsilon", FLOAT32, pack("<f", 1e-5))
    parts.set(b"general.architecture", TEXT, text(b"llama"))
    add_scores(parts, 96)
    shapes = {"token_embd": 96, "blk.0.attn_q": 256, "blk.0.attn_k": 128, "blk.0.attn_v": 128, "blk.0.attn_output": 256}
    shapes |= {"blk.0.ffn_gate": 256, "blk.0.ffn_up": 256, "blk.0.ffn_down": 256}
    for index, (name, rows) in enumerate(shapes.items()):
        format = BLOCKS[index % len(BLOCKS)]
        add_tensor(parts, name, [256, rows], BLOCK_FORMATS[format].gguf_type, random_blocks(format, rows, 256, 1e-2))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        add_tensor(parts, name, [256], 0, np.ones(256, np.float32))
    return parts.pack()


def add_tensor(parts: Parts, name: str, sizes: list[int], number: int, values: np.ndarray) -> None:
    parts.entries.append(Entry(f"{name}.weight".encode(), sizes, number, len(parts.data)))
    data = values.tobytes()
    parts.data += data + bytes(-len(data) % parts.alignment)


def split_gguf() -> SeedModel:
    """Llama over two files, half of the tensors in each."""
    parts = fixture("llama")
    count = next(entry.sizes[1] for entry in parts.entries if entry.name == b"token_embd.weight")
    add_scores(parts, count)
    half, cut = len(parts.entries) // 2, parts.entries[len(parts.entries) // 2].offset
    rest = [Entry(entry.name, entry.sizes, entry.number, entry.offset - cut) for entry in parts.entries[half:]]
    pieces = [Parts(parts.pairs, parts.entries[:half], parts.data[:cut]), Parts([], rest, parts.data[cut:])]
    names = [f"model-{number:05}-of-00002.gguf" for number in (1, 2)]
    for index, piece in enumerate(pieces):
        for key, value in (("no", index), ("count", 2), ("tensors.count", len(parts.entries))):
            piece.set(f"split.{key}".encode(), UINT32, pack("<I", value))
    return SeedModel("split gguf", {name: p.pack() for name, p in zip(names, pieces, strict=True)}, names[0])


GGUF_SEEDS: dict[str, Callable[[], bytes]] = {
    "gguf of qwen2": lambda: with_merges("qwen2"),
    "gguf of gpt2": lambda: with_merges("gpt2"),
    "gguf of gemma3": lambda: with_scores("gemma3"),
    "gguf in blocks": in_blocks,
}
