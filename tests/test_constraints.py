"""Constrained output: every token obeys, on vocabularies of every kind, anywhere in a chain, with every strategy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import tiny_tokenizers
from click.testing import CliRunner
from test_tokenizer_gguf import KINDS, metadata
from tiny_pipeline import D_VOCAB, EOS, LAST, Bytes, byte_model, pipeline_of, random_pipeline, told_pipeline

from ringlet import Pipeline, RingletError, SamplerChain, Tokenizer
from ringlet.cli import main
from ringlet.plugins.backends.numpy import NumpyBackend

pytest.importorskip("llguidance")

HUGGING_FACE = ["byte_level", "byte_fallback", "unigram"]

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["a", "我爱你", 'quoted "b"', None, 7]},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[xy]{1,3}$"}, "maxItems": 3},
        "size": {"anyOf": [{"type": "boolean"}, {"type": "number", "minimum": 1, "maximum": 2}]},
    },
    "required": ["name", "kind", "tags"],
    "additionalProperties": False,
}


def obeys(value: object, schema: dict) -> bool:
    """The part of JSON schema that these tests need, written plainly."""
    if "enum" in schema:
        return value in schema["enum"]
    if "anyOf" in schema:
        return any(obeys(value, each) for each in schema["anyOf"])
    if schema["type"] == "object":
        known = schema["properties"]
        return (
            isinstance(value, dict)
            and set(schema["required"]) <= set(value) <= set(known)
            and all(obeys(each, known[name]) for name, each in value.items())
        )
    if schema["type"] == "array":
        return (
            isinstance(value, list)
            and len(value) <= schema["maxItems"]
            and all(obeys(e, schema["items"]) for e in value)
        )
    if schema["type"] == "string":
        fits = isinstance(value, str) and len(value) <= schema.get("maxLength", 99)
        return fits and re.search(schema.get("pattern", ""), value) is not None
    if schema["type"] == "boolean":
        return isinstance(value, bool)
    numbers = int if schema["type"] == "integer" else (int, float)
    in_range = (
        not isinstance(value, bool) and isinstance(value, numbers) and schema["minimum"] <= value <= schema["maximum"]
    )
    return bool(in_range)


def vocabulary(kind: str, tmp_path: Path) -> Tokenizer:
    """One of each kind of file, with end tokens."""
    if kind == "bytes":
        return Tokenizer(Bytes(), eos_ids=[EOS, LAST])
    if kind in KINDS:
        tokenizer = Tokenizer.from_gguf(metadata(kind))
        return (
            tokenizer if tokenizer.eos_ids else Tokenizer(tokenizer._codec, eos_ids=sorted(tokenizer.special_ids)[:2])
        )
    library = tiny_tokenizers.train(kind)
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
    return Tokenizer.from_directory(tmp_path)


@pytest.fixture(params=["bytes", *HUGGING_FACE, *KINDS])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    return vocabulary(request.param, tmp_path)


def spec(name: str, text: str) -> str:
    return f"{name}({text!r})"


def schema_spec(schema: object = SCHEMA, more: str = "") -> str:
    return f"json_schema({json.dumps(schema)!r}{more})"


def lark_of(texts: list[str]) -> str:
    return "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    stream = tokenizer.stream_decoder()
    return "".join(stream.push(i) for i in ids if i not in tokenizer.eos_ids) + stream.flush()


def sampled(chain: SamplerChain, tokenizer: Tokenizer, most: int = 400, d_vocab: int | None = None) -> list[int]:
    """Ids drawn from random logits until an end token comes."""
    rng, ids = np.random.default_rng(0), [0]
    while len(ids) <= most:
        ids.append(chain.sample(rng.standard_normal(d_vocab or tokenizer.n_tokens), ids))
        if ids[-1] in tokenizer.eos_ids:
            break
    return ids[1:]


# --- Every kind of vocabulary ----------------------------------------------------------------------------------------

TEXTS = ["the ring", "the king", "the", " two  blanks\n", "我爱你", "我", "naïve", "👩", "x = y[0]", '"quoted"']


def test_exactly_the_tokens_that_can_lead_to_a_text_are_left(tokenizer: Tokenizer) -> None:
    """By the bytes of the tokens, and an end token exactly where a text may end: at every place of several texts."""
    texts = [text for text in TEXTS if set(text.encode()) <= bytes_of(tokenizer)]
    assert len(texts) >= 4
    whole = [text.encode() for text in texts]
    tokens = {i: tokenizer.token_bytes(i) for i in range(tokenizer.n_tokens)}
    never = tokenizer.special_ids | tokenizer.eos_ids
    for goal in whole:
        chain, ids, written = SamplerChain(spec("grammar", lark_of(texts)), tokenizer=tokenizer), [0], b""
        while True:
            left = chain.process(np.zeros(tokenizer.n_tokens), ids)
            expected = {
                i
                for i, token in tokens.items()
                if token and i not in never and any(text.startswith(written + token) for text in whole)
            }
            if written in whole:
                expected |= tokenizer.eos_ids
            assert set(np.flatnonzero(left > -np.inf)) == expected
            next_ids = [i for i in sorted(expected - never) if goal.startswith(written + tokens[i])]
            if not next_ids:
                break
            ids.append(next_ids[-1])
            written += tokens[ids[-1]]
        assert written == goal


def bytes_of(tokenizer: Tokenizer) -> set[int]:
    """Bytes that are a token of their own, or a part of a token that is a text on the list."""
    alone = {token[0] for i in range(tokenizer.n_tokens) if len(token := tokenizer.token_bytes(i)) == 1}
    return alone | {byte for text in TEXTS for i in tokenizer.encode(text, False) for byte in tokenizer.token_bytes(i)}


@pytest.mark.parametrize("pattern", ["[a-c]{2,4}[0-9]", "(the|a) (ring|king)s?", "x = y\\[0\\]", "a*", "a/b|\\\\n"])
def test_what_is_drawn_matches_a_regular_expression(tokenizer: Tokenizer, pattern: str) -> None:
    if not set(b"abcdefghijklmnopqrstuvwxyz 0123456789=[]/\\") <= bytes_of(tokenizer):
        pattern = "(the|a)?( ring)+"
    chain = SamplerChain(spec("regex", pattern), seed=1, tokenizer=tokenizer)
    ids = sampled(chain, tokenizer)
    assert ids[-1] in tokenizer.eos_ids
    assert re.fullmatch(pattern, text_of(tokenizer, ids))


@pytest.mark.parametrize("kind", ["bytes", "byte_level", "byte_fallback", *KINDS])
@pytest.mark.parametrize("more", ["", ",any_whitespace=true"])
def test_json_parses_and_obeys(kind: str, more: str, tmp_path: Path) -> None:
    tokenizer = vocabulary(kind, tmp_path)
    for seed in range(6):
        chain = SamplerChain(schema_spec(more=more), seed=seed, tokenizer=tokenizer)
        ids = sampled(chain, tokenizer, most=3000)
        assert ids[-1] in tokenizer.eos_ids
        value = json.loads(text_of(tokenizer, ids))
        assert obeys(value, SCHEMA), value
        if not more:
            assert text_of(tokenizer, ids) == json.dumps(value, ensure_ascii=False) or "." in text_of(tokenizer, ids)


def test_any_json_of_no_schema_and_of_true(tmp_path: Path) -> None:
    tokenizer = vocabulary("bytes", tmp_path)
    (tmp_path / "true.json").write_text(" true\n")
    for chosen in (schema_spec({}), f"json_schema={tmp_path / 'true.json'}"):
        assert (
            json.loads(text_of(tokenizer, sampled(SamplerChain(chosen, seed=3, tokenizer=tokenizer), tokenizer)))
            is not ...
        )


def test_words_have_no_bytes_to_go_by(tmp_path: Path) -> None:
    for kind in ("word_piece", "word_level"):
        chain = SamplerChain("regex=a", tokenizer=vocabulary(kind, tmp_path))
        with pytest.raises(RingletError, match=r"^sampler regex: the tokens of this vocabulary have no bytes"):
            chain.process([0.0, 1.0])


@pytest.mark.parametrize("d_vocab", [100, EOS + 1, LAST + 1, 400])
def test_a_model_may_know_fewer_tokens_than_the_tokenizer_or_more(d_vocab: int) -> None:
    tokenizer = Tokenizer(Bytes(), eos_ids=[EOS])
    left = SamplerChain("regex='[A-z]'", tokenizer=tokenizer).process(np.zeros(d_vocab))
    assert np.flatnonzero(left == 0).tolist() == list(range(ord("A"), min(d_vocab, ord("z") + 1)))


@pytest.mark.parametrize(
    ("eos_ids", "tokenizer_given", "message"),
    [
        ([], True, "the model has no end token"),
        ([900], True, "the model has no end token"),
        ([EOS], False, "a tokenizer is"),
    ],
)
def test_what_a_grammar_needs(eos_ids: list[int], tokenizer_given: bool, message: str) -> None:
    tokenizer = Tokenizer(Bytes(), eos_ids=eos_ids) if tokenizer_given else None
    with pytest.raises(RingletError, match=f"^sampler regex: {message}"):
        SamplerChain("regex=a", tokenizer=tokenizer).process(np.zeros(300))


# --- In a chain ------------------------------------------------------------------------------------------------------

PATTERN = "[a-f]{4}[0-9]"


@pytest.mark.parametrize(
    "chain",
    ["{},top_k=3", "top_k=3,{}", "top_k=1,{}", "{},greedy", "temperature=0,{}", "{},mirostat_v2", "{},mirostat(tau=2)",
     "temperature=9,{},top_p=0.5,greedy", "{},min_new_tokens=3", "min_new_tokens=9,{}",
     "bad_words='a|b',{}", "{},xtc(probability=1,threshold=0)", "repetition_penalty=2,top_k=5,{},typical=0.4", "{},{}"],
)  # fmt: skip
def test_anywhere_in_a_chain(chain: str) -> None:
    """What stands before it may remove every token that obeys, and what stands behind it draws from those alone."""
    written = chain.format(*[spec("regex", PATTERN)] * 2)
    for seed in range(4):
        found = random_pipeline().generate("hello", 40, written, seed)
        assert re.fullmatch(PATTERN, found.text), chain
        assert (found.finish_reason, found.token_ids[-1]) == ("stop", EOS)


def test_where_all_that_obey_are_removed_the_raw_logits_count() -> None:
    tokenizer = Tokenizer(Bytes(), eos_ids=[EOS])
    logits = np.arange(300.0)
    left = SamplerChain("top_k=1," + spec("regex", "[ab]"), tokenizer=tokenizer).process(logits)
    assert np.flatnonzero(left > -np.inf).tolist() == [97, 98]
    assert left[[97, 98]].tolist() == [97, 98]
    left = SamplerChain("temperature=2,top_k=203," + spec("regex", "[ab]"), tokenizer=tokenizer).process(logits)
    assert np.flatnonzero(left > -np.inf).tolist() == [97, 98]
    assert left[98] - left[97] == 0.5  # what the samplers before it have made of them


def test_the_same_text_may_be_asked_about_again() -> None:
    """`process` as often as one likes, after a text that went on otherwise, and after an end."""
    tokenizer = Tokenizer(Bytes(), eos_ids=[EOS, LAST])
    chain = SamplerChain(spec("regex", "ab?c?"), tokenizer=tokenizer)

    def left(text: bytes, *ends: int) -> list[int]:
        return np.flatnonzero(chain.process(np.zeros(300), [7, *text, *ends]) > -np.inf).tolist()

    chain.process(np.zeros(300), [7])
    assert left(b"") == left(b"") == [*b"a"]
    assert left(b"a") == [*b"bc", EOS, LAST]
    assert left(b"ab") == [*b"c", EOS, LAST]
    assert left(b"ac") == [EOS, LAST]
    assert left(b"ac", LAST) == left(b"ac", LAST, EOS) == [EOS, LAST]
    assert left(b"a", EOS) == [EOS, LAST]
    assert left(b"a") == [*b"bc", EOS, LAST]
    with pytest.raises(RingletError, match=r"^sampler regex: the pattern: a token was drawn that the grammar does not"):
        left(b"b")
    with pytest.raises(RingletError, match="a token was drawn that"):
        left(b"a", EOS, ord("b"))
    fork = chain.fork()
    assert left(b"ab") == [*b"c", EOS, LAST]
    assert np.flatnonzero(fork.process(np.zeros(300), [7, *b"ac"]) > -np.inf).tolist() == [EOS, LAST]


# --- In a generation -------------------------------------------------------------------------------------------------


def test_each_completion_obeys_for_itself() -> None:
    found = random_pipeline().generate(["hello", "you"], 40, spec("regex", PATTERN), seed=1, n=5)
    assert all(re.fullmatch(PATTERN, each.text) for each in found)
    assert len({each.text for each in found}) == 10


def test_beams_obey_and_are_as_many_as_there_are_texts() -> None:
    pipe = random_pipeline()
    found = pipe.generate("hello", 40, spec("grammar", lark_of(TEXTS)), strategy="beam_search(beams=16)", n=16)
    assert sorted(each.text for each in found) == sorted(TEXTS)
    assert {each.finish_reason for each in found} == {"stop"}
    found = pipe.generate("hello", 60, schema_spec(), strategy="beam_search(beams=3)", n=3)
    assert all(obeys(json.loads(each.text), SCHEMA) for each in found if each.finish_reason == "stop")


def test_contrastive_search_obeys() -> None:
    found = random_pipeline().generate("hello", 40, spec("regex", PATTERN), strategy="contrastive_search(top_k=8)")
    assert re.fullmatch(PATTERN, found.text)


def test_what_is_cut_short_says_so() -> None:
    wanted = {"sampler": schema_spec(), "seed": 2}
    whole = random_pipeline().generate("hello", 500, **wanted)
    assert obeys(json.loads(whole.text), SCHEMA)
    cut = random_pipeline().generate("hello", 12, **wanted)
    assert (cut.finish_reason, cut.text) == ("length", whole.text[: len(cut.text)])
    stopped = random_pipeline().generate("hello", 500, stop='"kind"', **wanted)
    assert (stopped.finish_reason, stopped.text) == ("stop", whole.text[: whole.text.index('"kind"')])
    full = random_pipeline(context=20).generate("hello", 500, **wanted)
    assert (full.finish_reason, full.usage.total_tokens) == ("length", 20)
    on = random_pipeline().generate("hello", len(whole.token_ids) + 5, ignore_eos=True, **wanted)
    assert (on.text, on.finish_reason, set(on.token_ids[-6:])) == (whole.text, "length", {EOS})


def test_a_model_that_wants_something_else_obeys() -> None:
    found = told_pipeline("go", "I'd rather not.").generate("go", 40, schema_spec() + ",greedy")
    assert found.text.startswith('{"name": " not. ", "')  # as much of it as may be
    found = told_pipeline("go", "x").generate("go", 200, schema_spec(SCHEMA["properties"]["kind"]) + ",greedy")
    assert obeys(json.loads(found.text), SCHEMA["properties"]["kind"])


# --- What bad input gets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ("json_schema=none.json", "sampler json_schema: none.json: no such file"),
        ("json_schema=.", r"sampler json_schema: \.: is a directory"),
        ("json_schema=latin.json", "sampler json_schema: 'latin.json': no UTF-8 text"),
        ("json_schema=broken.json", "sampler json_schema: broken.json: no JSON: .*line 3 column 1"),
        ("json_schema=nan.json", "sampler json_schema: nan.json: no JSON: NaN is no JSON number"),
        ("json_schema=list.json", "sampler json_schema: list.json: a JSON schema is an object"),
        ("json_schema=false.json", "sampler json_schema: false.json: a JSON schema is an object"),
        ("json_schema=deep.json", "sampler json_schema: deep.json: "),
        ("json_schema=huge.json", "sampler json_schema: huge.json: larger than 256 KiB"),
        ("json_schema='{'", "sampler json_schema: the schema: no JSON"),
        (schema_spec({"type": "objct"}), "sampler json_schema: the schema: Invalid type: objct"),
        (schema_spec({"type": "array", "uniqueItems": True}), r'the schema: Unimplemented keys: \["uniqueItems"\]'),
        (schema_spec({"x-guidance": 3}), "the schema: x-guidance is no object"),
        (schema_spec({"$ref": "http://example.com/a"}), "the schema: .*example.com"),
        ("json_schema", r"sampler json_schema needs schema: write json_schema\(schema=…\)"),
        ("regex='('", "sampler regex: the pattern: invalid regular expression: unclosed group"),
        ("regex='(?=a)b'", "sampler regex: the pattern: invalid regular expression: look-around"),
        (spec("regex", "(" * 5000 + ")" * 5000), "sampler regex: the pattern: invalid regular expression: exceed"),
        (spec("regex", "a" * 300_000), "sampler regex: the pattern: larger than 256 KiB"),
        ("grammar=none.lark", "sampler grammar: none.lark: no such file"),
        ("grammar=wrong.lark", 'sampler grammar: wrong.lark: line 3, column 4: unknown name: "nothing"'),
        (spec("grammar", "start: x"), 'sampler grammar: the grammar: line 1, column 8: unknown name: "x"'),
        (spec("grammar", 'start: "a'), "sampler grammar: the grammar: line 1, column 10: lexer error"),
        (spec("grammar", "start: A\nA: B\nB: A"), "sampler grammar: the grammar: line .*circular reference"),
    ],
)
def test_grammars_that_cannot_be(chain: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"enum": ["\xe9"]}')
    (tmp_path / "broken.json").write_text('{\n"type": "object",\n}')
    (tmp_path / "nan.json").write_text('{"const": NaN}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "false.json").write_text("false")
    (tmp_path / "deep.json").write_text('{"items":' * 20_000 + "{}" + "}" * 20_000)
    (tmp_path / "huge.json").write_text(json.dumps({"enum": [str(i) for i in range(50_000)]}))
    (tmp_path / "wrong.lark").write_text('start: a\n\na: "x" | nothing\n')
    with pytest.raises(RingletError, match=f"^{message}" if message.startswith("sampler") else message) as raised:
        random_pipeline().generate("a", sampler=chain)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


ENDLESS = Path("/dev/zero")


@pytest.mark.parametrize("name", ["json_schema", "grammar"])
def test_of_a_file_no_more_is_read_than_a_grammar_may_have(name: str, tmp_path: Path) -> None:
    """Wherever the limit cuts a character, and where a file has no end."""
    long = tmp_path / "long.txt"
    long.write_text("x" + "春" * 100_000, encoding="utf-8")
    for path in (long, *([ENDLESS] if ENDLESS.exists() else [])):
        with pytest.raises(RingletError, match="larger than 256 KiB"):
            SamplerChain(spec(name, str(path)))


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        (schema_spec({"$ref": "#"}), "the schema: no token can follow: the grammar allows no text here"),
        (spec("grammar", "start: /(.*a.{20}){3}/ & /(.*b.{20}){3}/ & /(.*c.{25})/"), "the grammar: "),
        (schema_spec({"anyOf": [{"type": "object", "properties": {f"p{i}": {"type": "null"}}, "required": [f"p{i}"]}
                                for i in range(3000)]}), "the schema: .*Current row has 3000 items; max is 2000"),
    ],
)  # fmt: skip
def test_grammars_that_ask_for_too_much_or_allow_nothing(chain: str, message: str) -> None:
    with pytest.raises(RingletError, match=message) as raised:
        random_pipeline().generate("a", sampler=chain)
    assert "\n" not in str(raised.value)


def test_a_vocabulary_that_lacks_a_letter(tmp_path: Path) -> None:
    tokenizer = vocabulary("unigram", tmp_path)
    assert ord("Z") not in bytes_of(tokenizer)
    with pytest.raises(RingletError, match=r"^sampler regex: the pattern: no token can follow: .*vocabulary lacks it$"):
        SamplerChain("regex=Z", tokenizer=tokenizer).process(np.zeros(tokenizer.n_tokens))


HOSTILE = """
import json, sys, time
import numpy as np

from ringlet import RingletError, SamplerChain, Tokenizer
from ringlet.plugins.constraints import building

building.LONGEST_SECONDS = 1.0
names = lambda n: [f"r{i}" for i in range(n)]
chained = "\\n".join(["start: r0", *(f"{a}: {b}" for a, b in zip(names(16000), names(16001)[1:])), 'r16000: "a"'])
nested = "\\n".join(["start: R0", *(f'R{i}: ("a" R{i + 1} "c"|"b")*' for i in range(8000)), 'R8000: "a"'])
refs = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(5000)} | {"a5000": {"type": "null"}}
for name, text in (
    ("grammar", chained), ("grammar", nested), ("grammar", "start: " + "(" * 99999),
    ("json_schema", json.dumps({"$defs": refs, "$ref": "#/$defs/a0"})),
    ("regex", "((a{1,1000}){1,1000}){1,1000}"), ("regex", "(a|b)*a(a|b){2000}"),
    ("json_schema", json.dumps({"type": "integer", "multipleOf": 30000001})),
):
    began = time.time()
    try:
        SamplerChain(f"{name}({text!r})", tokenizer=Tokenizer.from_pretrained()).process(np.zeros(6144))
        print("fine", file=sys.stderr)
    except RingletError as error:
        print(str(error)[:200], file=sys.stderr)
    assert time.time() - began < 30
"""


def test_hostile_grammars_end_in_time_and_end_no_process() -> None:
    """Rules that lead from one to the next thousands of times, and a schema that takes minutes to prepare."""
    done = subprocess.run([sys.executable, "-c", HOSTILE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line for line in lines if line != "fine"] == [
        "sampler grammar: the grammar: line 1, column 37: lark grammar too deeply nested (at \"(\" ('('))",
        "sampler json_schema: the schema: not ready after 1 seconds: a simpler one is needed",
    ]
    assert len(lines) == 7


def test_without_the_library_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringlet.plugins.samplers.grammar.find_spec", lambda name: None)
    for chain in ("regex=a", schema_spec(), "grammar=a.lark"):
        with pytest.raises(RingletError, match="llguidance is not installed: pip install llguidance, or"):
            SamplerChain(chain)


# --- The command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(NumpyBackend, "rank", 1000)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "two words.lark").write_text('start: "春" "风"{2,3}')
    return lambda *arguments: CliRunner().invoke(main, ["generate", "春", "--seed", "3", *arguments])


def test_the_options(run) -> None:
    done = run("--json-schema", "schema.json", "--max-tokens", "400")
    assert (done.exit_code, done.stderr) == (0, "")
    assert obeys(json.loads(done.stdout), SCHEMA)
    done = run("--regex", "\\p{Han}{3}，", "--sampler", "")
    assert re.fullmatch(r"\w{3}，\n", done.stdout)
    options = ["--grammar", "two words.lark", "--strategy", "beam_search(beams=9)", "--n", "9"]
    texts = [value["text"] for value in json.loads(run(*options, "--json").stdout)]
    assert set(texts) <= {"春风风", "春风风风"}  # in more ways than one
    assert len(texts) == 9
    assert run(*options).stdout == "\n\n".join(texts) + "\n"
    done = run("--best-of", "5", "--max-tokens", "4", "--json", "--logprobs", "1")
    assert len(json.loads(done.stdout)["logprobs"]) == 4
    done = run("--n", "3", "--best-of", "5", "--max-tokens", "4", "--json")
    assert len(json.loads(done.stdout)) == 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes by name here")
def test_a_pipe_is_read_once_for_all_completions(run, tmp_path: Path) -> None:
    """As a shell's <(…) gives one."""
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=(tmp_path / "pipe").write_text, args=(json.dumps({"const": [1, 2]}),), daemon=True)
    writer.start()
    done = run("--json-schema", "pipe", "--n", "3", "--json")
    assert [value["text"] for value in json.loads(done.stdout)] == ["[1, 2]"] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json-schema", "none.json"], "sampler json_schema: none.json: no such file or directory"),
        (["--regex", "a", "--grammar", "two words.lark"], "--regex and --grammar: give one of them"),
        (["--regex", "("], "sampler regex: the pattern: invalid regular expression: unclosed group"),
        (["--regex", "a", "--sampler", "greedy", "--strategy", "beam_search"], "sampler greedy chooses the token"),
        (["--strategy", "beam"], "unknown strategy 'beam'"),
        (["--strategy", "beam_search", "--best-of", "3"], "best_of is 3"),
        (["--logprobs", "3"], "--logprobs is shown by --json: give both"),
        (["--n", "0"], "n is 0"),
    ],
)
def test_the_options_that_cannot_be(run, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it before a model is loaded."""
    monkeypatch.setattr("ringlet.core.model.load_model", lambda *_, **__: pytest.fail("the model is loaded"))
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {message}")
    assert done.stderr.count("\n") == 1


# --- Real models -----------------------------------------------------------------------------------------------------


@pytest.mark.real_model
@pytest.mark.parametrize("model", ["smollm2_path", "gemma_path"])
def test_real_models_obey(model: str, request: pytest.FixtureRequest) -> None:
    pipe = Pipeline.from_pretrained(request.getfixturevalue(model), backend="cpu")
    prompt = "Alice, aged 29, writes Python. As JSON: "
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "kind": {"enum": ["person", "我爱你"]},
            "tags": {"type": "array", "items": {"enum": ["Python", "C"]}, "maxItems": 2},
        },
        "required": ["name", "age", "kind", "tags"],
        "additionalProperties": False,
    }
    for chain, more in (("top_k=40", {"n": 3}), ("greedy", {}), ("", {"strategy": "beam_search(beams=2)", "n": 2})):
        found = pipe.generate(prompt, 100, ",".join(filter(None, [schema_spec(schema), chain])), seed=1, **more)
        for each in found if isinstance(found, list) else [found]:
            assert each.finish_reason == "stop"
            assert obeys(json.loads(each.text), schema)
    found = pipe.generate(
        "The capital of China is", 30, spec("regex", " \\p{Lu}\\p{Ll}+ \\(\\p{Han}{2}\\)\\.") + ",top_k=40"
    )
    assert re.fullmatch(r" [^\W\d_]+ \(\w\w\)\.", found.text)


def test_d_vocab_of_the_tiny_model() -> None:
    """It has ids beyond the tokenizer's, which no grammar lets through."""
    assert Bytes.n_tokens < D_VOCAB
    pipe = pipeline_of(NumpyBackend(*byte_model()))
    assert re.fullmatch(PATTERN, pipe.generate("a", 20, "temperature=99," + spec("regex", PATTERN)).text)
