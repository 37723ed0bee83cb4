"""A plugin that misbehaves beside others: its own call ends or is wrong, and nothing else is."""

from __future__ import annotations

import sys
from threading import Event, Thread

import numpy as np
import pytest
from plugin_texts import backend, sampler
from whole_models import write_whole_directory

from ringlet import Pipeline, PluginError

WANTED = {"max_tokens": 6, "ignore_eos": True, "seed": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_whole_directory(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def open_with(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("RINGLET_PLUGINS", raising=False)

    def open_with(text: str, **chosen) -> Pipeline:
        """A pipeline on the tiny model, with the text as a plugin; `pipe.module` is the plugin's module."""
        (tmp_path / "bad.py").write_text(text, encoding="utf-8")
        pipe = Pipeline.from_pretrained(folder, plugins=[tmp_path / "bad.py"], **{"backend": "numpy"} | chosen)
        kind = "backend" if chosen else "sampler"
        pipe.module = sys.modules[pipe.plugins.find(kind, "bad").cls.__module__]
        return pipe

    return open_with


SLEEPS = (
    sampler("began.set(); woken.wait(30); return logits")
    + "\nfrom threading import Event\nbegan, woken = Event(), Event()\n"
)


def test_a_sampler_that_sleeps_holds_up_its_own_call_alone(open_with):
    pipe = open_with(SLEEPS)
    expected = pipe.generate("the king", **WANTED)
    slept = []
    thread = Thread(target=lambda: slept.append(pipe.generate("the king", sampler="bad", **WANTED)))
    thread.start()
    assert pipe.module.began.wait(30)
    assert pipe.generate("the king", **WANTED) == expected  # while the other sleeps
    assert "".join(chunk.text for chunk in pipe.stream("the king", **WANTED)) == expected.text
    assert not slept
    pipe.module.woken.set()
    thread.join()
    assert slept[0].usage == expected.usage


def test_sequences_that_wait_for_a_sleeper_are_as_without_it(open_with):
    """The sequences of one call share the steps: those beside a sleeper wait, and are drawn as they would have been."""
    text = "time.sleep(0.01 if len(context.token_ids) % 2 else 0); return logits"
    pipe = open_with("import time\n" + sampler(text))
    prompts = ["the king", "in the ring", "k"]
    assert pipe.generate(prompts, sampler="bad,top_k=9", **WANTED) == pipe.generate(
        prompts, sampler="top_k=9", **WANTED
    )


def test_one_sequence_that_fails_ends_its_call_and_no_other(open_with):
    """Three in one call, one of which fails late; a stream that was open before; calls after it."""
    pipe = open_with(sampler("return logits / (context.step != 3 or context.prompt_length != 2)", line="takes = 1"))
    prompts = [[5, 6, 7], [5, 6], [7]]
    expected = pipe.generate(prompts, **WANTED)
    opened = pipe.stream(prompts[0], sampler="bad,temperature=1", **WANTED)
    first = next(opened)
    for _ in range(2):
        with pytest.raises(PluginError, match=r"^sampler bad \(.*bad.py\): __call__: (ZeroDivision|returned)"):
            pipe.generate(prompts, sampler="bad,temperature=1", **WANTED)
    alone = pipe.generate(prompts[0], sampler="temperature=1", **WANTED)
    assert [*first.token_ids, *(token_id for chunk in opened for token_id in chunk.token_ids)] == alone.token_ids
    assert pipe.generate(prompts, **WANTED) == expected


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit", "GeneratorExit", "RecursionError", "MemoryError"])
def test_the_pipeline_goes_on_after_whatever_was_raised(error, open_with):
    pipe = open_with(sampler(f"raise {error}"))
    expected = pipe.generate("the king", **WANTED)
    kind = KeyboardInterrupt if error == "KeyboardInterrupt" else PluginError
    for _ in range(2):
        with pytest.raises(kind):
            pipe.generate(["the king", "k"], sampler="bad", **WANTED)
        with pytest.raises(kind):
            list(pipe.stream("the king", sampler="bad", **WANTED))
    assert pipe.generate("the king", **WANTED) == expected


LENT = {
    "keeps the logits and scribbles on them": (
        "[kept_one.fill(-1) for kept_one in kept]; kept.append(logits); return logits.copy()"
    ),
    "returns the same array each time": (
        "kept.append(np.empty_like(logits)) if not kept else None; kept[0][:] = logits; return kept[0]"
    ),
    "returns a view that cannot be written to": "logits.flags.writeable = False; return logits[::-1][::-1]",
    "returns numbers of another size": "return logits.astype(np.float16).astype(np.longdouble)",
    "lets itself write to the text": (
        "context.token_ids.flags.writeable = True; context.token_ids[:] = 0; return logits"
    ),
    "changes the generator's state": "context.rng.random(17); return logits",
    "warns": "np.log(np.zeros(1)); return logits",
}


@pytest.mark.parametrize("case", LENT)
@pytest.mark.filterwarnings("error")
def test_what_a_sampler_does_to_what_it_was_lent_stays_with_its_sequence(case, open_with):
    """Beside it, an ordinary one, in the same chain and in other sequences; after it, the same call without it."""
    pipe = open_with(sampler(LENT[case]) + "\nkept = []\n")
    wanted = {**WANTED, "max_tokens": 12}
    expected = pipe.generate(["the king", "k"], sampler="greedy", **wanted)
    healthy = pipe.stream("the king", sampler="greedy", **wanted)
    ids = list(next(healthy).token_ids)
    for _ in range(2):
        pipe.generate(["the king", "k"], sampler="bad,top_k=5,temperature=2", n=2, **wanted)
        ids += next(healthy).token_ids
    ids += [token_id for chunk in healthy for token_id in chunk.token_ids]
    assert ids == expected[0].token_ids
    assert pipe.generate(["the king", "k"], sampler="greedy", **wanted) == expected
    if case in ("returns the same array each time", "keeps the logits and scribbles on them"):
        assert pipe.generate("the king", sampler="bad,greedy", **wanted).token_ids == expected[0].token_ids


FAILS_AT_TIMES = backend("fail[0] and 1 / 0; return logits") + "\nfail = [False]\n"


def test_a_backend_that_fails_at_times(open_with):
    """A step that failed leaves the rings' tokens as they were, and the next call works."""
    pipe = open_with(FAILS_AT_TIMES, backend="bad")
    expected = pipe.generate(["the king", "k"], **WANTED)
    stream = pipe.stream("the king", **WANTED)
    next(stream)
    pipe.module.fail[0] = True
    with pytest.raises(PluginError, match=r"^backend bad \(.*bad.py\): forward: ZeroDivisionError"):
        next(stream)
    with pytest.raises(PluginError, match="forward: ZeroDivisionError"):
        pipe.logits([5, 6, 7])
    ring = pipe.new_ring()
    pipe.module.fail[0] = False
    assert ring.length == 0
    assert pipe.generate(["the king", "k"], **WANTED) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("batch.positions[:] = 0; return logits", "read-only"),
        ("batch.wants_logits[:] = True; return logits", "read-only"),
        ("batch.rings[0].append([1]); return logits", "changed which tokens a ring holds"),
        ("batch.rings[0].rewind(0); return logits", "changed which tokens a ring holds"),
    ],
)
def test_a_backend_that_changes_what_it_was_lent_is_named(body, message, open_with):
    pipe = open_with(backend(body), backend="bad")
    with pytest.raises(PluginError, match=rf"^backend bad \(.*bad.py\): forward: .*{message}"):
        pipe.generate("the king", **WANTED)


def test_a_ring_is_as_it_was_after_a_backend_committed_by_itself(open_with):
    """The ring that was touched is given up; a new call begins with another."""
    pipe = open_with(
        backend("once and once.pop() and batch.commit(); return logits") + "\nonce = [True]\n", backend="bad"
    )
    with pytest.raises(PluginError, match="changed which tokens a ring holds"):
        pipe.generate("the king", **WANTED)
    reference = Pipeline.from_pretrained(pipe.model.path, backend="numpy")
    assert pipe.generate("the king", **WANTED).token_ids == reference.generate("the king", **WANTED).token_ids


def test_samplers_of_two_threads_are_apart(open_with):
    """A sampler keeps state for its sequence; each call has objects of its own."""
    body = "self.seen = [*getattr(self, 'seen', ()), context.step]; assert self.seen == list(range(len(self.seen)))"
    pipe = open_with(sampler(f"{body}; return logits"))
    results, ready = {}, Event()

    def work(at: int) -> None:
        ready.wait()
        results[at] = pipe.generate(f"the king {at}", sampler="bad,top_k=9", **WANTED).token_ids

    threads = [Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    ready.set()
    for thread in threads:
        thread.join()
    for at in range(4):
        assert results[at] == pipe.generate(f"the king {at}", sampler="top_k=9", **WANTED).token_ids


def test_logits_beside_a_plugin_backend_are_those_of_the_built_in(open_with):
    pipe = open_with(backend(), backend="bad")
    reference = Pipeline.from_pretrained(pipe.model.path, backend="numpy")
    ids = list(range(3, 20))
    np.testing.assert_array_equal(pipe.logits(ids), reference.logits(ids))
