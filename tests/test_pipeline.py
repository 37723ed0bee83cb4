"""Text in, text out: what a generation gives, when it ends, what streams, and what is computed at all."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_pipeline import D_VOCAB, EOS, HOLE, LAST, byte_model, pipeline_of, random_pipeline, told_pipeline

from ringlet import Completion, Pipeline, PluginError, RingletError
from ringlet.core.backend import Backend
from ringlet.core.batch import Batch
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step
from ringlet.plugins.backends.numpy import NumpyBackend

GREEDY = {"sampler": "greedy"}


def drawn(completion: Completion) -> list[int]:
    return completion.token_ids


# --- What a completion holds -----------------------------------------------------------------------------------------


def test_a_completion():
    pipe = told_pipeline("hello", " world")
    completion = pipe.generate("hello", **GREEDY)
    assert completion.text == " world"
    assert completion.token_ids == [*b" world", EOS]
    assert completion.finish_reason == "stop"
    assert completion.usage == {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    assert completion.usage.total_tokens == 12
    assert set(completion.timings) == {"prompt", "generate"}
    assert all(seconds >= 0 for seconds in completion.timings.values())
    assert completion.to_dict()["usage"]["completion_tokens"] == 7


@pytest.mark.parametrize(
    ("options", "text", "n_drawn", "reason"),
    [
        ({"max_tokens": 0}, "", 0, "length"),
        ({"max_tokens": 1}, "a", 1, "length"),
        ({"max_tokens": 3}, "abc", 3, "length"),
        ({"max_tokens": 4}, "abc", 4, "stop"),  # the end token is the last that may be drawn
        ({"max_tokens": 100}, "abc", 4, "stop"),
        ({"max_tokens": 6, "ignore_eos": True}, "abc", 6, "length"),
        ({"stop": "b"}, "a", 2, "stop"),
        ({"stop": ["zz", "c"]}, "ab", 3, "stop"),
        ({"stop": ["cd"]}, "abc", 4, "stop"),
        ({"stop": ["bc"], "max_tokens": 2}, "ab", 2, "length"),
        ({"stop": ["bc"], "max_tokens": 3}, "a", 3, "stop"),
    ],
)
def test_when_it_ends(options, text, n_drawn, reason):
    pipe = told_pipeline("go", "abc")
    completion = pipe.generate("go", **GREEDY, **options)
    assert (completion.text, len(completion.token_ids), completion.finish_reason) == (text, n_drawn, reason)
    assert completion.usage.completion_tokens == n_drawn


@pytest.mark.parametrize("eos", [LAST, ord("!")])
def test_an_end_token_that_is_not_special_leaves_no_text(eos):
    """A generation_config.json, or a GGUF file, may name any token as an end."""
    pipe = told_pipeline("go", [*b"ab", eos, *b"cd"], eos_ids=[EOS, eos])
    assert eos not in pipe.tokenizer.special_ids
    completion = pipe.generate("go", **GREEDY)
    assert (completion.text, completion.token_ids, completion.finish_reason) == ("ab", [*b"ab", eos], "stop")
    assert "".join(chunk.text for chunk in pipe.stream("go", **GREEDY)) == "ab"
    assert pipe.generate("go", ignore_eos=True, max_tokens=5, **GREEDY).text == "abcd"


@pytest.mark.parametrize("prompt_length", [1, 9, 10, 11, 15, 16])
def test_prompt_and_completion_together_never_exceed_the_context(prompt_length):
    """However much of the context the prompt fills, and in whatever chunks."""
    for chunk in (1, 5, 16):
        pipe = random_pipeline(context=16, chunk=chunk)
        completion = pipe.generate([7] * prompt_length, max_tokens=100, ignore_eos=True, **GREEDY)
        assert completion.usage.total_tokens == 16
        assert completion.finish_reason == "length"


def test_a_prompt_longer_than_the_context():
    pipe = random_pipeline(context=16)
    with pytest.raises(RingletError, match=r"the prompt has 17 tokens and the context 16: .*the model's own is 512"):
        pipe.generate([7] * 17)
    with pytest.raises(RingletError, match="17 tokens"):
        pipe.logits([7] * 17)


def test_a_sliding_ring_goes_on():
    pipe = random_pipeline(context=16, sinks=2, overflow="slide", chunk=4)
    completion = pipe.generate([7] * 40, max_tokens=50, ignore_eos=True, **GREEDY)
    assert completion.usage.completion_tokens == 50
    again = pipe.generate(
        [7] * 40, max_tokens=50, ignore_eos=True, **GREEDY
    )  # its ring has turned: all is computed again
    assert again == completion


def test_ids_without_a_token_are_never_drawn():
    pipe = random_pipeline(scale=0.01)
    ids = [
        i for seed in range(40) for i in drawn(pipe.generate("a", max_tokens=40, sampler="temperature=5", seed=seed))
    ]
    assert set(ids) <= {*range(EOS + 1), LAST}
    assert {*ids} & {EOS, LAST}
    assert not {HOLE, LAST + 1, D_VOCAB - 1} & set(ids)
    for told in (HOLE, LAST + 1, D_VOCAB - 1):
        assert told_pipeline("a", [told]).generate("a", max_tokens=1, **GREEDY).token_ids != [told]


# --- Streaming -------------------------------------------------------------------------------------------------------

WORDS = "a爱b\n你é🙂 "


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(alphabet=WORDS, max_size=12),
    stops=st.lists(st.text(alphabet=WORDS, min_size=1, max_size=3), max_size=2),
    max_tokens=st.integers(0, 40),
)
def test_chunks_join_to_the_completion(text, stops, max_tokens):
    """Bytes are the tokens, so that every border between tokens is a border inside a character or stop string."""
    pipe = told_pipeline("x", text)
    options = {"stop": stops, "max_tokens": max_tokens, **GREEDY}
    completion = pipe.generate("x", **options)
    chunks = list(pipe.stream("x", **options))
    assert "".join(chunk.text for chunk in chunks) == completion.text
    assert [i for chunk in chunks for i in chunk.token_ids] == completion.token_ids
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert (chunks[-1].finish_reason, chunks[-1].usage) == (completion.finish_reason, completion.usage)
    said = bytes(i for i in completion.token_ids if i < 256).decode(errors="replace")
    begins = [said.index(stop) for stop in stops if stop in said]
    assert completion.text == said[: min(begins, default=len(said))]


def test_half_a_character_is_never_emitted():
    texts = [chunk.text for chunk in told_pipeline("x", "é爱🙂").stream("x", **GREEDY)]
    assert texts == ["", "é", "", "", "爱", "", "", "", "🙂", ""]


def test_half_a_character_at_the_end_is_marked():
    assert told_pipeline("x", "a爱").generate("x", max_tokens=3, **GREEDY).text == "a\ufffd"
    assert told_pipeline("x", "a爱".encode()[:3]).generate("x", **GREEDY).text == "a\ufffd"


def test_a_prompt_that_ends_in_half_a_character_does_not_spill_into_the_completion():
    prompt = list("爱".encode()[:2])
    pipe = told_pipeline(bytes(prompt), "爱".encode()[2:] + "你".encode())
    assert (
        pipe.generate(prompt, **GREEDY).text == "\ufffd你"
    )  # the completion's own bytes, no character of the prompt's


def test_text_is_held_no_longer_than_it_could_become_a_stop_string():
    texts = [chunk.text for chunk in told_pipeline("x", "a\nb\n\nc").stream("x", stop=["\n\n"], **GREEDY)]
    assert texts == ["a", "", "\nb", "", ""]


def test_closing_a_stream_cancels_it():
    pipe = told_pipeline("x", "abcdefgh")
    stream = pipe.stream("x", **GREEDY)
    assert pipe.backend.n_steps == 0  # nothing runs before it is asked for
    assert [next(stream).text, next(stream).text] == ["a", "b"]
    stream.close()
    assert pipe.backend.n_steps == 2
    assert list(stream) == []
    assert pipe.generate("x", **GREEDY).text == "abcdefgh"


def test_a_stream_checks_its_arguments_at_once():
    with pytest.raises(RingletError, match="max_tokens"):
        told_pipeline("x", "a").stream("x", max_tokens=-1)


# --- Several at once -------------------------------------------------------------------------------------------------

SEED = {"sampler": "temperature=1", "seed": 5, "ignore_eos": True, "max_tokens": 12}


def test_a_list_gives_what_each_gives_alone():
    prompts = ["first", [1, 2, 3], "a longer prompt than a chunk of sixteen tokens holds", "x"]
    alone = [random_pipeline().generate(prompt, **SEED) for prompt in prompts]
    pipe = random_pipeline()
    assert pipe.generate(prompts, **SEED) == alone
    assert max(map(len, pipe.backend.steps)) == 4
    assert pipe.generate(["first"], **SEED) == alone[:1]
    assert pipe.generate([[1, 2, 3]], **SEED) == [alone[1]]


def test_no_prompts_give_no_completions():
    assert random_pipeline().generate([]) == random_pipeline().generate((), n=2) == []


def test_more_prompts_than_run_at_once():
    prompts = [[i, i + 1] for i in range(70)]
    pipe = random_pipeline()
    completions = pipe.generate(prompts, **SEED)
    assert completions == [random_pipeline().generate(prompt, **SEED) for prompt in prompts]
    assert max(map(len, pipe.backend.steps)) == 32
    assert random_pipeline(chunk=1).generate(prompts[:9], **SEED) == completions[:9]


@pytest.mark.parametrize(("n_prompts", "n"), [(1, 70), (8, 20), (3, 33)])
def test_the_crowd_is_never_larger_than_it_may_be(n_prompts, n):
    """Completions of a prompt count as much as prompts, also while the prompt is still being computed."""
    prompts = [[i] * 20 for i in range(n_prompts)]
    pipe = random_pipeline()
    rings: set[int] = set()
    made = pipe.backend.new_ring
    pipe.backend.new_ring = lambda *arguments: rings.add(len(rings)) or made(*arguments)
    options = {**SEED, "max_tokens": 3}
    completions = pipe.generate(prompts, n=n, **options)
    assert max(map(len, pipe.backend.steps)) <= 32
    assert len(rings) <= 32
    alone = [random_pipeline().generate(prompt, n=min(n, 32), **options) for prompt in prompts]
    assert [completions[at * n : at * n + len(found)] for at, found in enumerate(alone)] == alone
    assert len({tuple(completion.token_ids) for completion in completions}) > n_prompts * n // 2


def test_several_completions_of_one_prompt_compute_it_once():
    pipe = random_pipeline()
    completions = pipe.generate("twenty tokens it has", n=4, **SEED)
    assert pipe.backend.steps[:3] == [[16], [4], [1, 1, 1, 1]]
    assert completions[0] == random_pipeline().generate("twenty tokens it has", **SEED)
    assert completions[:2] == random_pipeline().generate("twenty tokens it has", n=2, **SEED)
    assert len({tuple(completion.token_ids) for completion in completions}) == 4
    assert len(pipe.generate(["a", "b"], n=3, **SEED)) == 6
    assert [c.text for c in pipe.generate("a", n=2, sampler="greedy", max_tokens=0)] == ["", ""]


def test_threads_that_stream_at_once_do_not_disturb_each_other():
    pipe = random_pipeline()
    prompts = ["one prompt", "another prompt", "a third, longer prompt than a chunk", "one prompt"]
    expected = [random_pipeline().generate(prompt, **SEED) for prompt in prompts]
    found: dict[int, str] = {}
    start = threading.Barrier(len(prompts))

    def run(index: int) -> None:
        start.wait()
        found[index] = "".join(chunk.text for chunk in pipe.stream(prompts[index], **SEED))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[index] for index in range(len(prompts))] == [completion.text for completion in expected]


def test_streams_that_take_turns():
    pipe = random_pipeline()
    pairs = zip(pipe.stream("one", **SEED), pipe.stream("two", **SEED), strict=True)
    first, second = zip(*pairs, strict=True)
    assert "".join(c.text for c in first) == random_pipeline().generate("one", **SEED).text
    assert "".join(c.text for c in second) == random_pipeline().generate("two", **SEED).text


# --- Reuse of a shared prefix ----------------------------------------------------------------------------------------

PROMPT = "a prompt of more than sixteen tokens"


def test_the_same_prompt_again_computes_nothing_of_it():
    pipe = random_pipeline(chunk=64)
    first = pipe.generate(PROMPT, **SEED)
    pipe.backend.steps.clear()
    assert pipe.generate(PROMPT, **SEED) == first
    assert pipe.backend.steps == [[1]] * 11


def test_a_prompt_that_goes_on_computes_the_rest():
    pipe = random_pipeline(chunk=64)
    answer = pipe.generate(PROMPT, **SEED)
    longer = [*PROMPT.encode(), *answer.token_ids, *b" and on"]
    pipe.backend.steps.clear()
    found = pipe.generate(longer, **SEED)
    assert pipe.backend.steps[0] == [len(b" and on") + 1]  # the last token drawn was never computed
    assert found == random_pipeline().generate(longer, **SEED)


def test_a_prompt_that_is_a_part_of_the_last_one():
    pipe = random_pipeline(chunk=64)
    pipe.generate(PROMPT, **SEED)
    pipe.backend.steps.clear()
    assert pipe.generate(PROMPT[:20], **SEED) == random_pipeline().generate(PROMPT[:20], **SEED)
    assert pipe.backend.steps[0] == [1]


def test_a_prompt_that_shares_little_is_computed_whole():
    pipe = random_pipeline(chunk=64)
    pipe.generate(PROMPT, **SEED)
    pipe.backend.steps.clear()
    assert pipe.generate("a prompt, another", **SEED) == random_pipeline().generate("a prompt, another", **SEED)
    assert pipe.backend.steps[0] == [17]


@settings(max_examples=25, deadline=None)
@given(
    prompts=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(1, 30)), min_size=2, max_size=5),
    overflow=st.sampled_from(["stop", "slide"]),
    window=st.sampled_from([None, 5]),
)
def test_reuse_changes_no_token(prompts, overflow, window):
    """Prompts with common beginnings, one after another, in rings that stop and rings that turn."""
    options = {"overflow": overflow, "window": window, "context": 120 if overflow == "stop" else 48, "chunk": 8}
    pipe = random_pipeline(**options)
    for shared, own, max_tokens in prompts:
        ids = [*range(shared), *range(100, 100 + own)]
        wanted = {"max_tokens": max_tokens, "ignore_eos": True, **GREEDY}
        assert pipe.generate(ids, **wanted) == random_pipeline(**options).generate(ids, **wanted)


def test_a_cancelled_stream_leaves_its_ring_to_the_next():
    pipe = random_pipeline(chunk=64)
    stream = pipe.stream(PROMPT, **SEED)
    next(stream)
    stream.close()
    pipe.backend.steps.clear()
    assert pipe.generate(PROMPT, **SEED) == random_pipeline().generate(PROMPT, **SEED)
    assert pipe.backend.steps[0] == [1]


# --- Logits ----------------------------------------------------------------------------------------------------------


def test_logits_in_chunks_are_those_of_one_piece():
    ids = list(range(50))
    whole = random_pipeline(chunk=64).logits(ids)
    assert whole.shape == (50, D_VOCAB)
    assert whole.dtype == np.float32
    assert np.allclose(random_pipeline(chunk=7).logits(np.array(ids)), whole, atol=1e-5)
    backend = NumpyBackend(*byte_model())
    ring = backend.new_ring(RingLayout.of(backend.config, 64, chunk=50), "f32")
    assert np.array_equal(whole, run_step(backend, [(ring, ids, "all")]))


# --- What bad input gets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the prompt is empty"),
        (np.array([], np.int64), "^the prompt is empty"),
        ([[]], r"^prompts\[0\]: the prompt is empty"),
        (["a", ""], r"^prompts\[1\]: the prompt is empty"),
        (["a", "b" * 1000], r"^prompts\[1\]: the prompt has 1000 tokens and the context"),
        ([D_VOCAB], f"the token id {D_VOCAB}: the model's vocabulary has {D_VOCAB}"),
        ([-1], "the token id -1"),
        ([1, 2.5], "holds 2.5"),
        ([True], "holds True"),
        (5, "of type int"),
        (None, "of type NoneType"),
        (b"bytes", "of type bytes"),
        ({1, 2}, "of type set"),
        (["a", 5], "of type int"),
        ([["a"]], "holds 'a'"),
        (np.array(5), "of type ndarray"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_prompts_that_cannot_be(prompt, message):
    with pytest.raises(RingletError, match=message) as raised:
        random_pipeline().generate(prompt)
    assert "\n" not in str(raised.value)


def test_logits_of_nothing():
    with pytest.raises(RingletError, match="the prompt is empty"):
        random_pipeline().logits([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": -1}, "max_tokens is -1: a whole number from 0"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"n": 0}, "n is 0: a whole number from 1"),
        ({"n": 10**9}, "n is 1000000000: a whole number from 1 to 65536"),
        ({"best_of": 10**9}, "best_of is 1000000000: a whole number from 1 to 65536"),
        ({"seed": -1}, "seed is -1"),
        ({"sampler": "tpo_k=4"}, "unknown sampler 'tpo_k': did you mean top_k"),
        ({"sampler": "temperature=-1"}, "temperature is -1"),
        ({"stop": [""]}, "stop holds ''"),
        ({"stop": [3]}, "stop holds 3"),
        ({"stop": 3}, "stop holds 3"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(RingletError, match=message) as raised:
        random_pipeline().generate("a", **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "nmpy"}, "unknown backend 'nmpy': did you mean numpy"),
        ({"context": 0}, "context is 0"),
        ({"context": 2.5}, "context is 2.5"),
        ({"sinks": -1}, "sinks is -1"),
        ({"context": 8, "sinks": 8}, "sinks is 8: from 0 to context - 1"),
        ({"overflow": "wrap"}, "overflow is 'wrap'"),
        ({"kv_dtype": "f64"}, "kv_dtype is 'f64': choose from auto, f32, f16"),
        ({"kv_dtype": "q5"}, "kv_dtype is 'q5'"),
        ({"quantize": "q9"}, "quantize is 'q9': choose from q8_0, q4_0, q4_1, q4_k, q6_k"),
        ({"threads": 0}, "threads is 0"),
        ({"chunk": 0}, "chunk is 0"),
        ({"plugins": ["no_such_file.py"]}, r"plugin .*no_such_file.py: import: FileNotFoundError"),
    ],
)
def test_loading_options_that_cannot_be(options, message):
    with pytest.raises(RingletError, match=message) as raised:
        Pipeline.from_pretrained(None, **{"backend": "numpy", **options})
    assert "\n" not in str(raised.value)


def test_options_are_checked_before_the_model_is_loaded(monkeypatch):
    """A typo may not cost gigabytes."""

    def loads(*arguments, **options):
        raise AssertionError("the model is loaded")

    monkeypatch.setattr("ringlet.core.model.load_model", loads)
    for options in (
        {"backend": "nmpy"},
        {"context": 0},
        {"sinks": -1},
        {"context": 8, "sinks": 8},
        {"overflow": "wrap"},
        {"chunk": 0},
        {"kv_dtype": "f64"},
        {"kv_dtype": "f64", "backend": "numpy"},
        {"threads": 0},
        {"threads": 257},
        {"threads": 257, "backend": "numpy"},
        {"quantize": "q9"},
    ):
        with pytest.raises(RingletError):
            Pipeline.from_pretrained("org/large", **options)


class Faulty(Backend):
    name = "faulty"
    kv_dtype = "f32"
    origin = "faulty.py"
    returned: object = None

    def forward(self, batch: Batch) -> np.ndarray:
        if isinstance(self.returned, BaseException):
            raise self.returned
        return self.returned


class OwnException(BaseException):
    pass


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (ZeroDivisionError("by\nzero"), r"^backend faulty \(faulty.py\): forward: ZeroDivisionError: by zero$"),
        (None, r"^backend faulty \(faulty.py\): forward: returned NoneType"),
        (np.zeros((2, D_VOCAB), np.float32), r"returned float32 \(2, 262\), not float32 \(1, 262\)"),
        (np.zeros((1, D_VOCAB)), "returned float64"),
        (np.full((1, D_VOCAB), np.nan, np.float32), r"^backend faulty \(faulty.py\): forward: returned NaN"),
        (np.full((1, D_VOCAB), np.inf, np.float32), r"^backend faulty \(faulty.py\): forward: returned \+inf"),
        (SystemExit(9), r"^backend faulty \(faulty.py\): forward: SystemExit: 9$"),
        (GeneratorExit(), r"^backend faulty \(faulty.py\): forward: GeneratorExit$"),
        (OwnException("mine"), r"^backend faulty \(faulty.py\): forward: OwnException: mine$"),
    ],
)
def test_a_backend_that_fails_is_named(returned, message):
    backend = Faulty(*byte_model())
    backend.returned = returned
    with pytest.raises(PluginError, match=message):
        pipeline_of(backend).generate("a")


def raising(error: BaseException):
    def method(*_):
        raise error

    return method


@pytest.mark.parametrize(
    ("hook", "method", "message"),
    [
        ("new_ring", raising(KeyError("q9")), "new_ring: KeyError: 'q9'$"),
        ("new_ring", raising(SystemExit(5)), "new_ring: SystemExit: 5$"),
        ("new_ring", lambda *_: None, "new_ring: returned NoneType, not a RingCache$"),
        ("new_memory", raising(ZeroDivisionError()), "new_ring: ZeroDivisionError$"),
        ("new_memory", lambda *_: None, "new_memory: returned NoneType, not a RingMemory$"),
        ("ring_bytes", raising(OwnException()), "ring_bytes: OwnException$"),
        ("ring_bytes", lambda *_: None, "ring_bytes: returned NoneType, not a whole number$"),
    ],
)
def test_every_method_of_a_backend_is_watched(hook, method, message, monkeypatch):
    monkeypatch.setattr(Faulty, hook, method)
    pipe = pipeline_of(Faulty(*byte_model()))
    use = (lambda: pipe.ring_bytes) if hook == "ring_bytes" else (lambda: pipe.generate("a"))
    with pytest.raises(PluginError, match=rf"^backend faulty \(faulty.py\): {message}"):
        use()


def test_an_interrupt_is_no_fault_of_the_backend():
    backend = Faulty(*byte_model())
    backend.returned = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        pipeline_of(backend).generate("a")


FAULTY_BACKEND = """
import sys
from ringlet import Backend, hookimpl

class Faulty(Backend):
    name = "faulty"
    {line}

    def forward(self, batch): ...

@hookimpl
def register_backends(register):
    register(Faulty)
"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("def __init__(self, *arguments): sys.exit(5)", "constructor: SystemExit: 5"),
        (
            "def __init__(self, *arguments): pass",
            r"constructor: it must call super\(\).__init__\(config, weights, threads\)",
        ),
        ('kv_dtype = "q9"', "register_backends: Faulty: kv_dtype is 'q9', which is not in kv_dtypes"),
        ('rank = "high"', "register_backends: Faulty: rank is 'high': a whole number is needed"),
    ],
)
def test_a_backend_that_cannot_be_made_is_named(line, message, tmp_path):
    path = tmp_path / "faulty.py"
    path.write_text(FAULTY_BACKEND.format(line=line))
    with pytest.raises(PluginError, match=f"faulty.py.*: {message}"):
        Pipeline.from_pretrained(None, backend="faulty", plugins=[path])


def test_a_bug_of_a_built_in_backend_is_no_mistake_of_the_user():
    backend = Faulty(*byte_model())
    backend.origin, backend.returned = None, ZeroDivisionError("by zero")
    with pytest.raises(ZeroDivisionError):
        pipeline_of(backend).generate("a")


SAMPLER_THAT_FAILS_LATE = """
from ringlet import hookimpl

class Late:
    name = "late"
    def __call__(self, logits, context):
        if context.step == 3:
            raise RuntimeError("too late")
        return logits

@hookimpl
def register_samplers(register):
    register(Late)
"""


def test_a_sampler_that_fails_leaves_the_pipeline_and_other_sequences_alone(tmp_path):
    path = tmp_path / "late.py"
    path.write_text(SAMPLER_THAT_FAILS_LATE)
    pipe = Pipeline.from_pretrained(None, backend="numpy", plugins=[path])
    wanted = {"seed": 1, "max_tokens": 8, "ignore_eos": True}
    expected = pipe.generate("我爱你", **wanted)
    healthy = pipe.stream("我爱你", **wanted)
    texts = [next(healthy).text]
    with pytest.raises(PluginError, match=r"^sampler late \(.*late.py\): __call__: RuntimeError: too late$"):
        pipe.generate("我爱你", sampler="late", **wanted)
    assert "".join([*texts, *(chunk.text for chunk in healthy)]) == expected.text
    assert pipe.generate("我爱你", **wanted) == expected


# --- The embedded model ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def poet() -> Pipeline:
    return Pipeline.from_pretrained(backend="numpy")


def test_the_embedded_model_streams_what_it_generates(poet):
    completion = poet.generate("我爱你", seed=3)
    assert completion.text
    assert "\ufffd" not in completion.text
    assert "".join(chunk.text for chunk in poet.stream("我爱你", seed=3)) == completion.text
    assert completion.usage.prompt_tokens == 4  # <bos> and three characters
    assert poet.ring_bytes > 0


def test_greedy_takes_the_largest_of_the_logits(poet):
    ids = poet.tokenizer.encode("春眠不觉晓")
    completion = poet.generate(ids, max_tokens=20, sampler="temperature=0")
    logits = poet.logits([*ids, *completion.token_ids])
    assert completion.token_ids == logits[len(ids) - 1 : -1].argmax(axis=1).tolist()


def test_auto_chooses_a_backend_that_works():
    assert Pipeline.from_pretrained(None).backend.name in ("cpu", "numpy")


RANKED = """
from ringlet import hookimpl
from ringlet.plugins.backends.numpy import NumpyBackend

class Ranked(NumpyBackend):
    name = "ranked"
    rank = {rank}
    def __init__(self, config, weights, threads=None):
        {first}
        super().__init__(config, weights, threads)

@hookimpl
def register_backends(register):
    register(Ranked)
"""


def test_auto_goes_by_rank_and_passes_over_what_does_not_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ringlet.plugins.backends.cpu.backend.CpuBackend.rank", 0)  # compiling takes long
    path = tmp_path / "ranked.py"

    def chosen(rank: int, first: str = "pass") -> str:
        path.write_text(RANKED.format(rank=rank, first=first))
        return Pipeline.from_pretrained(None, plugins=[path]).backend.label

    assert chosen(11) == f"ranked ({path})"
    assert chosen(9) == "numpy"
    assert chosen(0) == "numpy"
    assert capsys.readouterr().err == ""
    assert chosen(12, "1 / 0") == "numpy"
    line = f"backend ranked ({path}): constructor: ZeroDivisionError: division by zero (left out)"
    assert capsys.readouterr().err == f"Warning: {line}\n"
    with pytest.raises(PluginError, match="constructor: ZeroDivisionError"):
        Pipeline.from_pretrained(None, backend="ranked", plugins=[path])
