"""Makes tests/fixtures/tokenizers: small GGUF vocabularies, and the ids that llama.cpp itself gives for the battery.

    python tests/make_fixtures/tokenizer_ids.py [SmolLM2.gguf gemma.gguf]

Needs llama-cpp-python (the fixtures were made with 0.3.36) and gguf. The small vocabularies are made here, so that
tests need no model: their merges cross every border that a pre-tokenizer could draw, so each border shows in the ids.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import gguf
import llama_cpp
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS)]

from tokenizer_battery import WRITTEN, bytes_digest, digest, document, random_texts  # noqa: E402

from ringlet.tokenization.pre_tokenizers import PRE_TOKENIZERS  # noqa: E402

FIXTURES = TESTS / "fixtures" / "tokenizers"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
NAMES_IN_FULL = (
    "default", "gpt-2", "llama-bpe", "qwen2", "qwen35", "smollm", "deepseek-llm", "deepseek-coder", "starcoder",
    "refact", "falcon", "mpt", "command-r", "gpt-4o",
)  # fmt: skip
CORPUS = [*WRITTEN.values(), *random_texts(200, seed=23)]


def train(texts: list[str], pre_tokenizer, alphabet: list[str], size: int) -> tuple[list[str], list[str]]:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=1,
        initial_alphabet=alphabet,
        limit_alphabet=600,
        max_token_length=12,
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    model = json.loads(library.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [" ".join(pair) for pair in model["merges"]]


def vocabulary(model: str, groups: list[tuple[int, list[str]]], **others: object) -> dict:
    """Metadata without its "tokenizer.ggml." from (token type, tokens) groups; a token that came before is left out."""
    kinds: dict[str, int] = {}
    for kind, tokens in groups:
        for token in tokens:
            kinds.setdefault(token, kind)
    return {"model": model, "tokens": list(kinds), "token_type": list(kinds.values()), **others}


def byte_pairs() -> dict:
    """GPT-2's kind, without a token for byte 6, so that text may hold what no token can."""
    alphabet = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - {"Ć"})
    whole_texts = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokens, merges = train([text for text in CORPUS if "\x06" not in text], whole_texts, alphabet, 2200)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<reponame>"]
    cut_out = ["x=y", "=y[0]", "<table>", "    ", "é"]
    groups = [(CONTROL, special), (NORMAL, tokens), (USER_DEFINED, cut_out)]
    return vocabulary("gpt2", groups, merges=merges, bos_token_id=1, eos_token_id=2)


def sentencepiece(**flags: bool) -> dict:
    """Runs of up to six characters, many with the same score, not every one made of two others."""
    counts: Counter[str] = Counter()
    for text in CORPUS:
        marked = text.replace(" ", "▁")
        counts.update(marked[i : i + n] for n in range(1, 7) for i in range(len(marked) - n + 1))
    pieces = sorted((piece for piece in counts if "\0" not in piece), key=lambda piece: (-counts[piece], piece))
    groups = [
        (UNKNOWN, ["<unk>"]), (CONTROL, ["<s>", "</s>", "<unused3>"]), (BYTE, BYTE_TOKENS),
        (USER_DEFINED, ["\n", "\n\n", "\n\n\n", "<b>", "x=y", "=y[0]"]), (NORMAL, pieces[:1500]),
    ]  # fmt: skip
    found = vocabulary("llama", groups, bos_token_id=1, eos_token_id=2, unknown_token_id=0, **flags)
    found["scores"] = [-float(counts[token] % 40) for token in found["tokens"]]
    return found


def space_mark_pairs() -> dict:
    """Gemma 4's kind."""
    runs = pre_tokenizers.Split(Regex("[^\n]+|[\n]+"), "isolated")
    texts = [text.replace(" ", "▁") for text in CORPUS if "\0" not in text]  # llama.cpp cuts a token's text at NUL
    tokens, merges = train(texts, runs, [], 1500)
    special = ["<pad>", "<eos>", "<bos>", "<turn|>", "<|tool_response>"]
    groups = [
        (CONTROL, special), (UNKNOWN, ["<unk>"]), (BYTE, BYTE_TOKENS), (NORMAL, tokens),
        (NORMAL, ["\n" * 31, "</s>"]), (USER_DEFINED, ["<b>", "  "]),
    ]  # fmt: skip
    return vocabulary("gemma4", groups, merges=merges, bos_token_id=2, eos_token_id=1, unknown_token_id=5)


def write_gguf(path: Path, metadata: dict) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def token_bytes(vocab: object, token_id: int) -> bytes:
    buffer = ctypes.create_string_buffer(4096)
    length = llama_cpp.llama_token_to_piece(vocab, token_id, buffer, len(buffer), 0, True)
    return buffer.raw[:length]


def reference(path: Path, n_random: int, with_document: bool) -> dict:
    """What llama.cpp says: digests by mode, "add_special parse_special" as 0 and 1."""
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    vocab, found = model._model.vocab, {}
    texts = [*WRITTEN.values(), *random_texts(n_random)]
    for mode in ("00", "01", "10", "11"):
        add_special, parse_special = mode[0] == "1", mode[1] == "1"
        ids = [model.tokenize(text.encode(), add_bos=add_special, special=parse_special) for text in texts]
        found[mode] = digest(ids)
        if mode == "00":
            found["written"] = [digest([one])[:8] for one in ids[: len(WRITTEN)]]
    n_tokens = llama_cpp.llama_vocab_n_tokens(vocab)
    found["n_random"] = n_random
    found["eos_ids"] = [i for i in range(n_tokens) if llama_cpp.llama_vocab_is_eog(vocab, i)]
    special = llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN | llama_cpp.LLAMA_TOKEN_ATTR_CONTROL
    found["special_ids"] = digest([[i for i in range(n_tokens) if llama_cpp.llama_vocab_get_attr(vocab, i) & special]])
    found["token_bytes"] = bytes_digest(token_bytes(vocab, i) for i in range(n_tokens))
    if with_document:
        found["document"] = digest([model.tokenize(document().encode(), add_bos=False, special=False)])
    return found


def main() -> None:
    vocabularies = {
        "byte_pairs": byte_pairs(),
        "sentencepiece": sentencepiece(),
        "space_mark_pairs": space_mark_pairs(),
    }
    no_prefix = {"add_space_prefix": False, "add_bos_token": False, "add_eos_token": True}
    cases: dict[str, tuple[str, dict]] = {f"byte_pairs {pre}": ("byte_pairs", {"pre": pre}) for pre in PRE_TOKENIZERS}
    cases["sentencepiece"] = ("sentencepiece", {})
    cases["sentencepiece without prefix"] = ("sentencepiece", no_prefix)
    cases["space_mark_pairs"] = ("space_mark_pairs", {"add_bos_token": False})
    in_full = {f"byte_pairs {pre}" for pre in NAMES_IN_FULL}
    # Of the others, names that split in the same way as an earlier one get fewer texts.
    first_names = {
        f"byte_pairs {pre}" for pre in {kind: pre for pre, kind in reversed(PRE_TOKENIZERS.items())}.values()
    }
    expected = {}
    FIXTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, (base, changes) in cases.items():
            path = Path(folder) / "vocabulary.gguf"
            write_gguf(path, {**vocabularies[base], **changes})
            full = base != "byte_pairs" or name in in_full
            n_random = 2000 if full else 400 if name in first_names else 40
            ids = reference(path, n_random, with_document=full)
            expected[name] = {"vocabulary": base, "changes": changes, **ids}
            print(name)
    for name, path in zip(("smollm2", "gemma"), sys.argv[1:], strict=False):
        expected[name] = reference(Path(path), 2000, with_document=True)
    compact = json.dumps(vocabularies, ensure_ascii=False, separators=(",", ":"))
    (FIXTURES / "vocabularies.json").write_text(compact + "\n", encoding="utf-8")
    (FIXTURES / "llama_cpp_ids.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
