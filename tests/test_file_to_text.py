"""From files to text: a GGUF file with a vocabulary, a directory in shards, a tokenizer that does not fit d_vocab."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from whole_models import D_VOCAB, TOKENS, split_into_shards, write_whole_directory, write_whole_gguf

from ringlet import Pipeline, RingletError

GREEDY = {"sampler": "greedy", "max_tokens": 24, "ignore_eos": True}


def continued(pipe: Pipeline, ids: list[int], n: int) -> list[int]:
    """Greedy, a whole prompt at a time, without ring reuse or sampler."""
    for _ in range(n):
        ids = [*ids, int(pipe.logits(ids)[-1].argmax())]
    return ids[-n:]


def text_of(ids: list[int]) -> str:
    """The tokens' texts by hand: "▁" is a space, "<0x41>" a byte, special tokens are no text."""
    texts = [TOKENS[i] for i in ids if i > 2]
    return "".join(chr(int(text[3:5], 16)) if text.startswith("<0x") else text.replace("▁", " ") for text in texts)


def test_a_gguf_file_to_text(tmp_path: Path) -> None:
    """The same weights as safetensors, in Hugging Face's order, say which tokens come."""
    pipe = Pipeline.from_pretrained(write_whole_gguf(tmp_path / "tiny.gguf"), backend="numpy")
    ids = [1, TOKENS.index("▁the"), TOKENS.index("▁king")]
    assert pipe.tokenizer.encode("the king") == ids
    reference = Pipeline.from_pretrained(write_whole_directory(tmp_path / "hf"), backend="numpy")
    expected = continued(reference, ids, 24)
    completion = pipe.generate("the king", **GREEDY)
    assert completion.token_ids == expected
    assert completion.text == text_of(expected)
    assert len(completion.text) > 10
    assert "".join(chunk.text for chunk in pipe.stream("the king", **GREEDY)) == completion.text


def test_a_directory_in_shards_to_text(tmp_path: Path) -> None:
    whole = Pipeline.from_pretrained(write_whole_directory(tmp_path / "whole"), backend="numpy")
    folder = split_into_shards(Path(shutil.copytree(tmp_path / "whole", tmp_path / "shards")))
    assert len(list(folder.glob("*.safetensors"))) == 3
    for mmap in (True, False):
        pipe = Pipeline.from_pretrained(folder, backend="numpy", mmap=mmap)
        completion = pipe.generate("the ring", **GREEDY)
        assert completion == whole.generate("the ring", **GREEDY)
        assert completion.text
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(RingletError, match=r"the shard model-00002-of-00003\.safetensors is missing"):
        Pipeline.from_pretrained(folder, backend="numpy")


def test_a_tokenizer_larger_than_the_models_vocabulary(tmp_path: Path) -> None:
    """A text that needs an id beyond d_vocab is refused; any other works, and only ids below it are drawn."""
    pipe = Pipeline.from_pretrained(write_whole_directory(tmp_path, style="byte_level"), backend="numpy")
    assert pipe.tokenizer.n_tokens > D_VOCAB == pipe.model.config.d_vocab
    inside, beyond = "abc", "我"
    assert max(pipe.tokenizer.encode(inside)) < D_VOCAB
    first = next(token_id for token_id in pipe.tokenizer.encode(beyond) if token_id >= D_VOCAB)
    assert len(pipe.generate(inside, **GREEDY).token_ids) == 24
    with pytest.raises(RingletError, match=rf"^the prompt holds the token id {first}: the model's vocabulary has 128$"):
        pipe.generate(beyond)


def test_a_tokenizer_smaller_than_the_models_vocabulary(tmp_path: Path) -> None:
    pipe = Pipeline.from_pretrained(write_whole_directory(tmp_path, style="word_level"), backend="numpy")
    n_tokens = pipe.tokenizer.n_tokens
    assert n_tokens < D_VOCAB
    drawn = pipe.generate("the ring", sampler="temperature=9", seed=1, max_tokens=60, ignore_eos=True).token_ids
    assert max(drawn) < n_tokens


NO_NETWORK = """
import socket, sys

def refused(*arguments, **options):
    raise AssertionError("the network is used")

class Refused(socket.socket):
    __init__ = connect = refused

socket.socket = Refused
socket.create_connection = socket.getaddrinfo = refused
from ringlet.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_no_network_is_used(backend: str, tmp_path: Path) -> None:
    """Neither by the embedded model nor by one on disk."""
    folder = write_whole_directory(tmp_path)
    for source, prompt in ([], "我爱你"), (["--model", str(folder)], "the ring"):
        arguments = ["generate", prompt, *source, "--backend", backend, "--max-tokens", "4", "--seed", "1", "--json"]
        ran = subprocess.run([sys.executable, "-c", NO_NETWORK, *arguments], capture_output=True, timeout=300)
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert json.loads(ran.stdout)["usage"]["completion_tokens"] > 0
    named = [sys.executable, "-c", NO_NETWORK, "generate", "x", "--model", "org/name"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "0"}
    ran = subprocess.run(named, capture_output=True, env=environment, timeout=60)
    assert b"the network is used" in ran.stderr  # the guard works: this one needs it
