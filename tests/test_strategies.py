"""Decoding strategies on tiny models, against searches written plainly; their rings, chunks, ends and errors."""

from __future__ import annotations

import numpy as np
import pytest
from naive_search import beam_search, contrastive_search, log_softmax
from random_models import random_model, rope_of
from tiny_pipeline import EOS, HOLE, LAST, Recorded, byte_model, pipeline_of, random_pipeline, told_pipeline

from ringlet import Completion, Pipeline, PluginError, RingletError
from ringlet.core.config import LayerConfig
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step_with_hidden
from ringlet.tokenization.codec import ByteCodec
from ringlet.tokenization.tokenizer import Tokenizer

NEVER = "beam_search(beams={beams},length_penalty={penalty},early_stopping=never)"


class Letters(ByteCodec):
    """Every id is a token, a letter."""

    special_ids = frozenset()

    def __init__(self, n_tokens: int) -> None:
        self._n_tokens = n_tokens

    @property
    def n_tokens(self) -> int:
        return self._n_tokens

    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def token_id(self, text: str) -> int | None:
        return ord(text) - ord("a")

    def token_text(self, token_id: int) -> str | None:
        return chr(ord("a") + token_id)

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([ord("a") + token_id])


def few_tokens(d_vocab: int, eos_ids: tuple[int, ...] = (0,), seed: int = 3, **layout: object) -> Pipeline:
    """A model of a few letters, some of which end a text."""
    config, weights = random_model(
        seed, scale=1.2, d_model=16, d_vocab=d_vocab, context_length=512, layers=(LayerConfig(None, rope_of(8)),) * 2
    )
    pipe = pipeline_of(Recorded(config, weights), **layout)
    pipe.tokenizer = Tokenizer(Letters(d_vocab), eos_ids=eos_ids)
    return pipe


def ids_of(completions: Completion | list[Completion]) -> list[list[int]]:
    return [each.token_ids for each in (completions if isinstance(completions, list) else [completions])]


def row_after(pipe: Pipeline):
    """The logits after a text, in a pipeline of its own; ids without a token are never drawn."""

    def logits_after(ids: list[int]) -> np.ndarray:
        row = pipe.logits(ids)[-1]
        row[pipe.tokenizer.ids_without_token(len(row))] = -np.inf
        return row

    return logits_after


# --- Beam search -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overflow", ["stop", "slide"])
@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (2, 0.0), (3, 1.0), (4, -1.0), (5, 2.0)])
def test_beam_search_finds_what_a_plain_one_does(beams, penalty, overflow):
    """Also where the rings turn, again and again."""
    layout = {"context": 40, "chunk": 5} if overflow == "stop" else {"context": 6, "sinks": 2, "chunk": 3}
    for seed, eos_ids in ((3, (0,)), (4, (1, 2)), (5, ())):
        pipe = few_tokens(7, eos_ids, seed, overflow=overflow, **layout)
        prompt = [3, 5, 4, 6, 3]
        found = pipe.generate(prompt, 12, strategy=NEVER.format(beams=beams, penalty=penalty), n=beams)
        reference = few_tokens(7, eos_ids, seed, overflow=overflow, **layout)
        assert ids_of(found) == beam_search(row_after(reference), prompt, eos_ids, 12, beams, penalty)


def test_with_as_many_beams_as_texts_it_finds_the_likeliest_of_all():
    pipe = few_tokens(4)
    row, best = row_after(few_tokens(4)), (-np.inf, [])
    texts = [(0.0, [])]
    for _ in range(4):
        longer = []
        for score, text in texts:
            log_p = log_softmax(row([2, 3, *text]))
            longer += [(score + log_p[token], [*text, token]) for token in range(4)]
        best = max([best, *(pair for pair in longer if pair[1][-1] == 0 or len(pair[1]) == 4)])
        texts = [pair for pair in longer if pair[1][-1] != 0]
    found = pipe.generate([2, 3], 4, strategy=NEVER.format(beams=81, penalty=0))
    assert found.token_ids == best[1]


def test_one_beam_is_greedy():
    wanted = {"max_tokens": 30, "ignore_eos": True}
    for layout in ({}, {"overflow": "slide", "context": 12, "chunk": 4}, {"window": 5}):
        greedy = random_pipeline(**layout).generate("a prompt of some length", sampler="greedy", **wanted)
        assert (
            random_pipeline(**layout).generate("a prompt of some length", strategy="beam_search=1", **wanted) == greedy
        )


def test_fewer_tokens_than_beams():
    """Two tokens, an end token one of them: after n steps there are no more than n + 1 texts."""
    for d_vocab in (1, 2, 3):
        pipe = few_tokens(d_vocab, (0,))
        found = pipe.generate([d_vocab - 1], 5, strategy="beam_search(beams=8,early_stopping=never)", n=8)
        reference = few_tokens(d_vocab, (0,))
        assert ids_of(found) == beam_search(row_after(reference), [d_vocab - 1], {0}, 5, 8)
        assert len(found) == len({tuple(each.token_ids) for each in found}) == {1: 1, 2: 6, 3: 8}[d_vocab]


def test_a_list_of_prompts_gives_what_each_gives_alone():
    wanted = {"max_tokens": 9, "strategy": "beam_search(beams=3)", "n": 2}
    prompts = [[3, 4], [5], [6, 3, 4, 5, 6, 3, 4], [4]]
    alone = [each for prompt in prompts for each in few_tokens(7).generate(prompt, **wanted)]
    pipe = few_tokens(7, chunk=3)
    assert pipe.generate(prompts, **wanted) == alone
    assert max(map(len, pipe.backend.steps)) == 12  # one ragged batch


def test_many_searches_share_the_room_there_is():
    wanted = {"max_tokens": 4, "strategy": "beam_search(beams=12)"}
    pipe = few_tokens(7)
    found = pipe.generate([[3, i] for i in range(3, 7)], **wanted)
    assert found == [few_tokens(7).generate([3, i], **wanted) for i in range(3, 7)]
    assert max(map(len, pipe.backend.steps)) == 24
    assert few_tokens(7).generate([3], max_tokens=4, strategy="beam_search(beams=40)").usage.completion_tokens


def test_the_prompt_is_computed_once_and_rings_are_used_again():
    pipe = random_pipeline()
    made: list[int] = []
    memory = pipe.backend.new_memory
    pipe.backend.new_memory = lambda *arguments: made.append(1) or memory(*arguments)
    pipe.generate("twenty tokens it has", 30, strategy="beam_search(beams=4)", ignore_eos=True)
    assert pipe.backend.steps == [[16], [4], *[[1] * 4] * 29]
    assert len(made) == 4
    pipe.generate("twenty tokens it has", 30, strategy="beam_search(beams=4)", ignore_eos=True)
    assert pipe.backend.steps[31:] == [[1] * 4] * 29  # the prompt's logits are known
    assert len(made) == 7  # the ring that was kept, and three new ones


def test_a_ring_after_a_search_serves_other_generations():
    prompt, wanted = "a prompt of more than sixteen tokens", {"max_tokens": 9, "ignore_eos": True}
    pipe = random_pipeline(chunk=64)
    first = pipe.generate(prompt, strategy="beam_search(beams=3)", n=3, **wanted)
    drawn = pipe.generate(prompt, seed=1, **wanted)
    assert drawn == random_pipeline(chunk=64).generate(prompt, seed=1, **wanted)
    assert pipe.generate(prompt, strategy="beam_search(beams=3)", n=3, **wanted) == first
    assert pipe.generate(prompt, strategy="contrastive_search", **wanted) == random_pipeline(chunk=64).generate(
        prompt, strategy="contrastive_search", **wanted
    )


# --- Where a text ends -----------------------------------------------------------------------------------------------


def test_the_context_ends_a_text():
    for strategy in ("beam_search(beams=3)", "contrastive_search(top_k=3)"):
        for n_prompt in (1, 6, 7, 8):
            pipe = few_tokens(7, (), context=8, chunk=3)
            found = pipe.generate([3] * n_prompt, 100, strategy=strategy)
            assert (found.usage.total_tokens, found.finish_reason) == (8, "length")


@pytest.mark.parametrize("strategy", ["beam_search(beams=3)", "contrastive_search(top_k=3)"])
def test_no_tokens_are_wanted(strategy):
    found = few_tokens(7).generate([3], 0, strategy=strategy, logprobs=1)
    assert (found.text, found.token_ids, found.finish_reason, found.logprobs) == ("", [], "length", [])


@pytest.mark.parametrize("strategy", ["beam_search(beams=3)", "contrastive_search(top_k=3,penalty_alpha=0)"])
@pytest.mark.parametrize(
    ("options", "text", "n_tokens", "reason"),
    [
        ({}, "abc", 4, "stop"),
        ({"max_tokens": 3}, "abc", 3, "length"),
        ({"max_tokens": 6, "ignore_eos": True}, "abc", 6, "length"),
        ({"stop": "b"}, "a", 2, "stop"),
        ({"stop": ["bc", "zz"]}, "a", 3, "stop"),
        ({"stop": ["bcd"]}, "abc", 4, "stop"),
    ],
)
def test_when_it_ends(strategy, options, text, n_tokens, reason):
    pipe = told_pipeline("go", "abc")
    pipe.backend.forward_with_hidden = lambda batch: (
        pipe.backend.forward(batch),
        np.eye(len(batch.token_ids), pipe.backend.config.d_model, dtype=np.float32),
    )
    found = pipe.generate("go", strategy=strategy, **options)
    assert (found.text, len(found.token_ids), found.finish_reason) == (text, n_tokens, reason)
    chunks = list(pipe.stream("go", strategy=strategy, **options))
    assert Completion.of_chunks(chunks) == found
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_ids_without_a_token_are_never_found():
    pipe = random_pipeline(scale=0.01)
    found = pipe.generate("a", 9, strategy="beam_search(beams=100)", n=100)
    drawn = {i for each in found for i in each.token_ids}
    assert drawn <= {*range(EOS + 1), LAST}
    assert not {HOLE, LAST + 1} & drawn


# --- Streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_gives_what_has_become_certain():
    wanted = {"max_tokens": 25, "strategy": "beam_search(beams=4)", "ignore_eos": True}
    pipe = random_pipeline(scale=2.0)
    chunks = list(pipe.stream("hello", logprobs=2, **wanted))
    whole = random_pipeline(scale=2.0).generate("hello", logprobs=2, **wanted)
    assert Completion.of_chunks(chunks) == whole
    assert len(chunks) >= 25  # one a step at least, so that every step may be the last that is asked for
    assert any(chunk.token_ids for chunk in chunks[:20])
    assert all(len(chunk.logprobs) == len(chunk.token_ids) for chunk in chunks)
    best_of_several = random_pipeline(scale=2.0).generate("hello", n=3, **wanted)[0]
    assert best_of_several.token_ids == whole.token_ids


@pytest.mark.parametrize("strategy", ["beam_search(beams=4)", "contrastive_search"])
def test_closing_a_stream_cancels_the_search(strategy):
    pipe = random_pipeline(chunk=64)
    stream = pipe.stream("hello, this is a prompt", strategy=strategy, ignore_eos=True)
    next(stream), next(stream)
    n_steps = len(pipe.backend.steps)
    stream.close()
    assert list(stream) == []
    assert len(pipe.backend.steps) == n_steps <= 3
    wanted = {"max_tokens": 5, "seed": 1}
    again = pipe.generate("hello, this is a prompt", **wanted)
    assert again == random_pipeline(chunk=64).generate("hello, this is a prompt", **wanted)


# --- Samplers in a search --------------------------------------------------------------------------------------------

REMEMBERS = """
from ringlet import hookimpl

class Remembers:
    '''Removes the tokens that it has seen, by its own memory, not by the context's.'''

    name = "remembers"

    def __init__(self):
        self.seen = []

    def __call__(self, logits, context):
        if context.step:
            self.seen.append(int(context.token_ids[-1]))
        assert self.seen == context.token_ids[context.prompt_length :].tolist()
        logits[self.seen] = -float("inf")
        return logits

class Lock:
    name = "lock"

    def __init__(self):
        import threading
        self.lock = threading.Lock()

    def __call__(self, logits, context):
        return logits

@hookimpl
def register_samplers(register):
    register(Remembers)
    register(Lock)
"""


@pytest.fixture
def with_plugins(tmp_path):
    """A pipeline of few tokens that knows two samplers more."""
    path = tmp_path / "remembers.py"
    path.write_text(REMEMBERS)

    def made(d_vocab: int) -> Pipeline:
        pipe = few_tokens(d_vocab, ())
        pipe.plugins = PluginManager([path])
        return pipe

    return made


def test_each_beam_has_samplers_of_its_own(with_plugins):
    found = with_plugins(9).generate([3], 7, sampler="remembers", strategy=NEVER.format(beams=5, penalty=0), n=5)
    row = row_after(few_tokens(9, ()))

    def logits_after(ids: list[int]) -> np.ndarray:
        logits = row(ids)
        logits[ids[1:]] = -np.inf
        return logits

    assert ids_of(found) == beam_search(logits_after, [3], (), 7, 5, 0)
    assert all(len(set(each.token_ids)) == 7 for each in found)


def test_a_sampler_that_cannot_be_copied_is_named(with_plugins):
    with pytest.raises(PluginError, match=r"^sampler lock \(.*remembers.py\): deepcopy: TypeError: cannot pickle"):
        with_plugins(9).generate([3], 7, sampler="lock", strategy="beam_search")
    assert with_plugins(9).generate([3], 7, sampler="lock", strategy="contrastive_search").token_ids


def test_a_chain_comes_before_the_candidates_of_contrastive_search():
    """With two tokens left there are two candidates, whatever top_k is."""
    pipe = random_pipeline()
    wanted = {"max_tokens": 9, "ignore_eos": True}
    found = pipe.generate(
        "hello", sampler="top_k=2", strategy="contrastive_search(top_k=6,penalty_alpha=0.5)", **wanted
    )
    assert {len(step) for step in pipe.backend.steps[1:]} == {2}
    assert found.usage.completion_tokens == 9
    one = pipe.generate("hello", sampler="top_k=1", strategy="contrastive_search", **wanted)
    assert one == pipe.generate("hello", sampler="greedy", **wanted)


# --- Contrastive search ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("top_k", "alpha"), [(1, 0.6), (4, 0.0), (4, 0.6), (7, 0.9), (3, 1.0)])
@pytest.mark.parametrize("layout", [{}, {"window": 5}], ids=str)
def test_contrastive_search_takes_what_its_formula_says(top_k, alpha, layout):
    pipe, reference = random_pipeline(chunk=7, **layout), random_pipeline(chunk=64, **layout)

    def hidden_of(ids: list[int]) -> np.ndarray:
        ring = reference.new_ring()
        return run_step_with_hidden(reference.backend, [(ring, ids, "none")])[1]

    prompt = list(b"a prompt of some length")
    found = pipe.generate(
        prompt, 9, strategy=f"contrastive_search(top_k={top_k},penalty_alpha={alpha})", ignore_eos=True
    )
    assert found.token_ids == contrastive_search(row_after(reference), hidden_of, prompt, 9, top_k, alpha)
    assert {len(step) for step in pipe.backend.steps[4:]} == {top_k}


def test_contrastive_search_in_a_ring_that_turns():
    """Without a penalty it is greedy, whatever the candidates overwrite in their rings."""
    layout = {"overflow": "slide", "context": 12, "sinks": 2, "chunk": 4}
    wanted = {"max_tokens": 40, "ignore_eos": True}
    pipe = random_pipeline(**layout)
    found = pipe.generate("a prompt of some length", strategy="contrastive_search(5,0)", **wanted)
    assert found == random_pipeline(**layout).generate("a prompt of some length", sampler="greedy", **wanted)
    assert pipe.generate("a prompt", strategy="contrastive_search(5,0.7)", **wanted).usage.completion_tokens == 40


def test_contrastive_search_of_several_prompts():
    wanted = {"max_tokens": 8, "strategy": "contrastive_search(top_k=3)", "ignore_eos": True}
    prompts = ["first", "a second prompt, which is longer than a chunk", "x"]
    alone = [random_pipeline().generate(prompt, **wanted) for prompt in prompts]
    pipe = random_pipeline()
    assert pipe.generate(prompts, **wanted) == alone
    assert max(map(len, pipe.backend.steps)) == 9


def test_a_backend_without_hidden_states_is_named():
    pipe = told_pipeline("go", "abc")
    with pytest.raises(RingletError, match=r"^backend told gives no hidden states: contrastive search needs"):
        pipe.generate("go", strategy="contrastive_search")
    assert pipe.generate("go", strategy="beam_search").text == "abc"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "forward_with_hidden: returned NoneType, not .logits, hidden states.$"),
        (
            (np.zeros((1, 262), np.float32), np.zeros((1, 3), np.float32)),
            r"returned float32 \(1, 3\), not .*\(1, 32\)$",
        ),
        ((np.zeros((1, 262), np.float32), np.full((1, 32), np.nan, np.float32)), "hidden states that are no numbers$"),
        ((np.zeros((2, 262), np.float32), np.zeros((1, 32), np.float32)), r"returned float32 \(2, 262\), not float32"),
    ],
)
def test_hidden_states_that_cannot_be_are_a_fault_of_the_backend(returned, message):
    pipe = told_pipeline("x", "abc")
    pipe.backend.origin, pipe.backend.forward_with_hidden = "told.py", lambda batch: returned
    with pytest.raises(PluginError, match=rf"^backend told \(told.py\): .*{message}"):
        pipe.generate("x", strategy="contrastive_search")


# --- Best of n -------------------------------------------------------------------------------------------------------


def mean_log_p(prompt: list[int], found: Completion) -> float:
    logits = random_pipeline(chunk=64).logits([*prompt, *found.token_ids])[len(prompt) - 1 : -1]
    return float(np.mean([log_softmax(row)[i] for row, i in zip(logits, found.token_ids, strict=True)]))


def test_the_best_of_n_have_the_largest_mean_log_probability():
    wanted = {"max_tokens": 12, "sampler": "temperature=1.5", "seed": 4}
    drafts = random_pipeline().generate("hello", n=9, **wanted)
    ranked = sorted(drafts, key=lambda draft: -mean_log_p(list(b"hello"), draft))
    assert random_pipeline().generate("hello", best_of=9, **wanted) == ranked[0]
    assert random_pipeline().generate("hello", best_of=9, n=3, **wanted) == ranked[:3]
    assert random_pipeline().generate("hello", best_of=1, **wanted) == drafts[0]
    listed = random_pipeline().generate("hello", best_of=9, logprobs=1, **wanted)
    assert listed.token_ids == ranked[0].token_ids
    assert np.mean([one.logprob for one in listed.logprobs]) == pytest.approx(mean_log_p(list(b"hello"), listed))
    both = random_pipeline().generate(["hello", "you"], best_of=4, n=2, **wanted)
    assert both[:2] == random_pipeline().generate("hello", best_of=4, n=2, **wanted)
    assert random_pipeline().generate("hello", best_of=40, max_tokens=0).token_ids == []


# --- What bad input gets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "beem_search"}, "unknown strategy 'beem_search': did you mean beam_search"),
        ({"strategy": ""}, 'strategy "": one of sample, beam_search, contrastive_search is needed'),
        ({"strategy": "sample,sample"}, 'strategy "sample,sample": one of'),
        ({"strategy": "beam_search("}, 'strategy "beam_search.": a value is needed'),
        ({"strategy": "beam_search=0"}, "strategy beam_search: beams is 0: a whole number from 1 to 256"),
        ({"strategy": "beam_search(beams=257)"}, "beams is 257"),
        ({"strategy": "beam_search(beam=3)"}, "strategy beam_search: unknown parameter 'beam': did you mean beams"),
        ({"strategy": "beam_search(early_stopping=maybe)"}, "strategy beam_search: early_stopping is 'maybe'"),
        ({"strategy": "beam_search(length_penalty=nan)"}, "length_penalty is 'nan'"),
        ({"strategy": "contrastive_search(penalty_alpha=2)"}, "penalty_alpha is 2.0: a number from 0 to 1"),
        ({"strategy": "sample(3)"}, "strategy sample has no parameters"),
        ({"strategy": None}, "strategy is None"),
        ({"strategy": "beam_search(beams=3)", "n": 4}, "n is 4 and beam_search follows 3 texts"),
        ({"strategy": "contrastive_search", "n": 2}, "n is 2: contrastive_search gives one completion"),
        ({"strategy": "beam_search", "best_of": 2}, "best_of is 2: beam_search draws nothing"),
        (
            {"strategy": "beam_search", "sampler": "top_k=4,greedy"},
            "sampler greedy chooses the token, and so does beam",
        ),
        ({"strategy": "contrastive_search", "sampler": "mirostat_v2"}, "sampler mirostat_v2 chooses the token"),
        ({"best_of": 0}, "best_of is 0: a whole number from 1"),
        ({"best_of": 2, "n": 3}, "best_of is 2 and n is 3"),
        ({"logprobs": -1}, "logprobs is -1: a whole number from 0"),
        ({"logprobs": True}, "logprobs is True"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(RingletError, match=message) as raised:
        random_pipeline().generate("a", **options)
    assert "\n" not in str(raised.value)
    if not {"n", "best_of"} & set(options):
        with pytest.raises(RingletError, match=message):
            random_pipeline().stream("a", **options)


def test_a_model_that_breaks_is_told_in_a_search_too():
    for strategy in ("beam_search", "contrastive_search"):
        pipe = random_pipeline()
        nothing = np.full((1, 262), np.nan, np.float32)
        hidden = np.zeros((1, 32), np.float32)
        pipe.backend.forward = lambda batch: nothing  # noqa: B023
        pipe.backend.forward_with_hidden = lambda batch: (nothing, hidden)  # noqa: B023
        with pytest.raises(RingletError, match=r"^the logits hold NaN: the model or its file is broken$"):
            pipe.generate("a", strategy=strategy)


def test_the_rings_of_the_tests_turn():
    """Those that are about turning: five tokens of a prompt and twelve more."""
    layout = RingLayout.of(byte_model()[0], 6, 2, "slide", chunk=3)
    assert all(layer.slots < 5 + 12 for layer in layout.layers)
