"""tokenizer.json: encoding, decoding, streams, special tokens, broken files."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import tokenizer_battery as battery
import tokenizers
from tiny_tokenizers import CORPUS, STYLES, train
from tokenizer_battery import WRITTEN, digest, document
from tokenizers import decoders

from ringlet.core.errors import FormatError, RingletError
from ringlet.tokenization.tokenizer import Tokenizer

FIXTURES = Path(__file__).parent / "fixtures" / "tokenizers"
POET = Path(__file__).parent.parent / "data" / "poet"


@pytest.fixture(scope="module", params=["poet", *STYLES])
def pair(request, tmp_path_factory) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """Ours, and the library's own from the same file."""
    if request.param == "poet":
        return Tokenizer.from_directory(POET), tokenizers.Tokenizer.from_file(str(POET / "tokenizer.json"))
    directory = tmp_path_factory.mktemp(request.param)
    train(request.param).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}}))
    return Tokenizer.from_directory(directory), tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))


def random_ids(library: tokenizers.Tokenizer, seed: int, count: int = 300) -> list[list[int]]:
    rng = random.Random(seed)
    top = max(library.get_vocab().values())
    return [[rng.randint(0, top) for _ in range(rng.randint(0, 12))] for _ in range(count)]


def random_strings(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    blocks = [
        (0, 0x80),
        (0x80, 0x250),
        (0x300, 0x370),
        (0x600, 0x700),
        (0xE00, 0xE80),
        (0x4E00, 0x9FFF),
        (0x1F300, 0x1FAFF),
    ]
    return ["".join(chr(rng.randint(*rng.choice(blocks))) for _ in range(rng.randint(0, 30))) for _ in range(count)]


def test_ids_are_the_library_s(pair):
    ours, library = pair
    for text in [*CORPUS, *random_strings(seed=1, count=200), ""]:
        for add_special in (True, False):
            assert (
                ours.encode(text, add_special=add_special) == library.encode(text, add_special_tokens=add_special).ids
            )


def test_the_embedded_tokenizer_s_ids_are_transformers_s():
    expected = json.loads((FIXTURES / "transformers_ids.json").read_text(encoding="utf-8"))
    poet = Tokenizer.from_directory(POET)
    texts = [*WRITTEN.values(), *battery.random_texts(expected["n_random"])]
    for mode in ("00", "01", "10", "11"):
        ids = (poet.encode(text, add_special=mode[0] == "1", parse_special=mode[1] == "1") for text in texts)
        assert digest(ids) == expected[mode], mode
    assert digest([poet.encode(document(), add_special=False)]) == expected["document"]


def test_special_tokens_in_a_text_are_text_unless_asked(pair):
    ours, library = pair
    special = [token.content for token in library.get_added_tokens_decoder().values() if token.special]
    text = "x" + "y".join(special) + "z"
    unknown = {ours.token_id("<unk>")}
    assert not ours.special_ids - unknown & set(ours.encode(text, add_special=False))
    assert ours.encode(text, parse_special=True) == library.encode(text).ids
    assert {ours.token_id(token) for token in special} <= set(ours.encode(text, parse_special=True))


def test_added_tokens_that_are_not_special_are_always_found(tmp_path):
    library = train("byte_level")
    library.add_tokens(["<tool_call>"])
    library.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_directory(tmp_path)
    found = ours.token_id("<tool_call>")
    assert ours.encode("x<tool_call></s>", add_special=False).count(found) == 1
    assert ours.decode([found]) == "<tool_call>"
    assert found not in ours.special_ids


def mixes_characters_and_invalid_bytes(library: tokenizers.Tokenizer, ids: list[int]) -> bool:
    """Whether a run of byte tokens has both; there the library gives U+FFFD for the characters too."""
    run = b""
    for token in [*(library.id_to_token(i) for i in ids), ""]:
        if token.startswith("<0x"):
            run += bytes([int(token[3:5], 16)])
            continue
        if run.decode(errors="ignore") and "\ufffd" in run.decode(errors="replace"):
            return True
        run = b""
    return False


def test_decode_is_the_library_s(pair):
    ours, library = pair
    encoded = [library.encode(text).ids for text in [*CORPUS, *random_strings(seed=2, count=100)]]
    for ids in [*encoded, *random_ids(library, seed=3)]:
        if not mixes_characters_and_invalid_bytes(library, [i for i in ids if i not in ours.special_ids]):
            assert ours.decode(ids) == library.decode(ids)
            assert ours.decode(ids, skip_special=False) == library.decode(ids, skip_special_tokens=False)


def test_a_stream_joins_to_the_continuation(pair):
    ours, library = pair
    word = library.encode("ring", add_special_tokens=False).ids
    for ids in random_ids(library, seed=4):
        stream = ours.stream_decoder()
        text = "".join(map(stream.push, ids)) + stream.flush()
        assert text.lstrip(" ") == ours.decode(ids).lstrip(" ")
        if "\ufffd" in text:
            continue
        if type(library.model).__name__ in (
            "WordPiece",
            "WordLevel",
        ):  # blanks between words are the decoder's, not the tokens'
            assert text == library.decode(ids)
        else:
            assert text == library.decode(word + ids)[len(library.decode(word)) :]


def n_bytes(token: str) -> int:
    """Bytes of a token: by the byte alphabet a character each, by byte fallback as written."""
    return 1 if token.startswith("<0x") else len(token.replace("▁", " ").encode())


def test_a_stream_gives_each_character_whole_and_at_once(pair):
    ours, library = pair
    if type(library.model).__name__ != "BPE":
        pytest.skip("no token of this model is a part of a character")
    ids = ours.encode("龘👩‍👩‍👧é", add_special=False)
    text = library.decode(library.encode("x龘👩‍👩‍👧é").ids).removeprefix("x")
    assert text == "龘👩‍👩‍👧é"
    lead = " " if library.id_to_token(ids[0]) == "▁" else ""
    stream, given, so_far = ours.stream_decoder(), "", 0
    for token_id in ids:
        token = library.id_to_token(token_id)
        so_far += len(token) if isinstance(library.decoder, decoders.ByteLevel) else n_bytes(token)
        given += stream.push(token_id)
        assert given == (lead + text).encode()[:so_far].decode(errors="ignore")
    assert stream.flush() == ""


def test_bytes_that_are_no_character():
    poet = Tokenizer.from_directory(POET)
    half = [poet.token_id("<0xE6>"), poet.token_id("<0x88>")]
    stream = poet.stream_decoder()
    assert [stream.push(i) for i in half] == ["", ""]
    assert stream.flush() == "\ufffd\ufffd"
    assert stream.push(half[0]) == "", "a flushed decoder is new"
    assert stream.push(poet.token_id("爱")) == "\ufffd爱"


def test_the_embedded_model_s_facts():
    poet = Tokenizer.from_directory(POET)
    assert len(poet.encode("我爱你", add_special=False)) == 3
    assert (poet.bos_id, poet.eos_ids, poet.n_tokens) == (1, {2}, 6144)
    assert poet.special_ids == {0, 1, 2}
    assert poet.has_token(6143)
    assert not poet.has_token(6144)
    assert not poet.has_token(-1)
    assert poet.ids_without_token(6146) == [6144, 6145]
    assert poet.piece(poet.token_id("<0xE6>")) == "<E6>"
    assert poet.piece(2) == "<eos>"


def copy_of_poet(directory: Path, **files: object) -> Path:
    shutil.copy(POET / "tokenizer.json", directory / "tokenizer.json")
    for name, value in files.items():
        (directory / f"{name}.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return directory


@pytest.mark.parametrize("largest", [10, 4_194_300])
def test_ids_without_a_token_are_told_for_the_model_s_ids_alone(largest, tmp_path):
    """However large an id the file names, what is listed is no longer than d_vocab."""
    description = json.loads((POET / "tokenizer.json").read_text(encoding="utf-8"))
    description["model"]["vocab"] = {"a": 5, "b": 9, "c": largest + 1}
    description["model"]["merges"] = []
    description["added_tokens"][1:] = []
    description["added_tokens"][0]["id"] = largest
    description["post_processor"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert tokenizer.n_tokens > largest
    missing = tokenizer.ids_without_token(9)
    assert missing == [index for index in range(9) if not tokenizer.has_token(index)]
    assert {0, 1, 6, 8} <= set(missing)


def test_every_end_that_the_files_name_counts(tmp_path):
    directory = copy_of_poet(
        tmp_path,
        generation_config={"eos_token_id": [5, 6]},
        config={"eos_token_id": 7, "text_config": {"eos_token_id": 8}},
        tokenizer_config={"eos_token": "<eos>", "bos_token": {"content": "<bos>"}},
    )
    tokenizer = Tokenizer.from_directory(directory)
    assert tokenizer.eos_ids == {2, 5, 6, 7, 8}
    assert tokenizer.bos_id == 1


def test_chat_templates_from_every_place(tmp_path):
    templates = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    directory = copy_of_poet(tmp_path, tokenizer_config={"chat_template": templates})
    assert Tokenizer.from_directory(directory).chat_templates == {"default": "a", "tool_use": "b"}
    (directory / "chat_template.jinja").write_text("c")
    assert Tokenizer.from_directory(directory).chat_template == "c"


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"tokenizer": "{"}, "tokenizer.json"),
        ({"tokenizer": '{"model": {}}'}, "tokenizer.json"),
        ({"tokenizer": "[" * 100_000}, "tokenizer.json"),
        ({"config": "{"}, "config.json"),
        ({"config": "[]"}, "config.json"),
        ({"generation_config": {"eos_token_id": "two"}}, "eos_token_id"),
        ({"generation_config": {"eos_token_id": [True]}}, "eos_token_id"),
        ({"config": {"bos_token_id": -1}}, "bos_token_id"),
    ],
)
def test_a_broken_file_is_named_in_one_line(tmp_path, files, named):
    with pytest.raises(FormatError) as caught:
        Tokenizer.from_directory(copy_of_poet(tmp_path, **files))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_directory_without_a_tokenizer(tmp_path):
    with pytest.raises(FormatError, match=r"no tokenizer\.json"):
        Tokenizer.from_directory(tmp_path)
    with pytest.raises(FormatError, match="no such directory"):
        Tokenizer.from_directory(tmp_path / "none")


def test_a_lone_surrogate_is_no_text():
    with pytest.raises(RingletError, match=r"U\+D83D at 1"):
        Tokenizer.from_directory(POET).encode("x\ud83dy")


def test_every_source_of_a_tokenizer(tmp_path):
    assert Tokenizer.from_pretrained().encode("我爱你") == Tokenizer.from_pretrained(POET).encode("我爱你")
    shutil.copy(POET / "tokenizer.json", tmp_path)
    assert Tokenizer.from_pretrained(str(tmp_path)).n_tokens == 6144, "a directory need hold no model"
    with pytest.raises(RingletError, match="no such file"):
        Tokenizer.from_pretrained(tmp_path / "none.gguf")


@pytest.mark.parametrize("text", [b"bytes", None, 3])
def test_only_str_is_text(text):
    with pytest.raises(RingletError, match="str is needed"):
        Tokenizer.from_directory(POET).encode(text)
