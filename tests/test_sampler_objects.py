"""Samplers as objects: they do what their text does, each sequence has its own, and what is wrong is named."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_pipeline import random_pipeline, told_pipeline

from ringlet import Completion, Pipeline, PluginError, RingletError, SamplerChain
from ringlet.core.model import Model
from ringlet.core.parameters import parameters_of
from ringlet.core.plugin_manager import load_plugins
from ringlet.core.session import Session
from ringlet.plugins import samplers
from ringlet.plugins.samplers import Greedy, Temperature, TopK

LOGITS = np.array([0.5, 2.0, -1.0, 1.0], np.float32)

TIDE = '''
import numpy as np
from ringlet import hookimpl


class Tide:
    """Pushes a token down, another at each call; so a call too many, or a state that is shared, shows."""

    name = "tide"

    def __init__(self, depth: float = 3.0):
        self.depth, self.calls = depth, 0

    def __call__(self, logits, context):
        logits[self.calls * 7 % len(logits) :: 3] -= self.depth
        self.calls += 1
        return logits


@hookimpl
def register_samplers(register):
    register(Tide)
'''
_names: dict[str, Any] = {"__name__": "notebook"}
exec(TIDE, _names)
Tide = _names["Tide"]  # as in a notebook: nobody registers it


@pytest.fixture(scope="module")
def tide_file(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("plugins") / "tide.py"
    path.write_text(TIDE, encoding="utf-8")
    return str(path)


@pytest.fixture
def pipe(tide_file) -> Pipeline:
    pipe = random_pipeline(context=64)
    pipe.plugins = load_plugins([tide_file])
    return pipe


class Last:
    """A picker: the last of the tokens that are left."""

    def pick(self, logits, context):
        return int(np.flatnonzero(logits > -np.inf)[-1])


# --- What is given does what its text does ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("tide(depth=5)", Tide(5.0)),
        ("tide", Tide),
        ("top_k=40,tide(depth=5),temperature=2", ["top_k=40", Tide(5.0), "temperature=2"]),
        ("top_k=40,temperature=0.7,tide,temperature=2", ("top_k=40,temperature=0.7", Tide, Temperature(2.0))),
        ("top_k=3,greedy", [TopK(3), Greedy]),
        ("", []),
        ("tide,tide", [Tide(3.0), Tide(3.0)]),
    ],
)
@pytest.mark.parametrize("n", [1, 3])
def test_an_object_does_what_its_text_does(text, given, n, pipe):
    def drawn(sampler: Any) -> list[Completion]:
        options: dict[str, Any] = {"seed": 5, "max_tokens": 6, "ignore_eos": True}
        return [
            *pipe.generate(["hello", "you"], sampler=sampler, n=n, **options),
            Completion.of_chunks(list(pipe.stream("hello", sampler=sampler, **options))),
        ]

    assert drawn(given) == drawn(text)


@pytest.mark.parametrize("strategy", ["beam_search(beams=3)", "contrastive_search(top_k=3)"])
def test_searches_take_objects(strategy, pipe):
    options = {"strategy": strategy, "max_tokens": 6, "ignore_eos": True}
    as_text = pipe.generate("hello", sampler="top_k=40,tide", **options)
    assert pipe.generate("hello", sampler=["top_k=40", Tide(3.0)], **options) == as_text
    with pytest.raises(RingletError, match=r"^sampler Last chooses the token, and so does \w+: drop one$"):
        pipe.generate("hello", sampler=Last(), **options)


def test_best_of_chats_and_traces_take_objects(pipe):
    options = {"seed": 3, "max_tokens": 5, "ignore_eos": True}
    given, text = ["top_k=9", Tide(4.0)], "top_k=9,tide=4"
    assert pipe.generate("hello", sampler=given, best_of=4, **options) == pipe.generate(
        "hello", sampler=text, best_of=4, **options
    )
    messages = [{"role": "user", "content": "hello"}]
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    answers = [pipe.chat(messages, template=template, sampler=sampler, **options) for sampler in (given, text)]
    assert answers[0] == answers[1]
    traces = [pipe.trace("hello", max_tokens=4, sampler=sampler, seed=3) for sampler in (given, text)]
    assert traces[0].token_ids == traces[1].token_ids


def test_a_session_goes_on_with_an_object(pipe, tmp_path):
    options = {"seed": 3, "max_tokens": 5, "ignore_eos": True, "sampler": Tide(4.0)}
    prompt = "a text of more than sixteen tokens"
    pipe.generate(prompt, **options)
    pipe.save_session(tmp_path / "a.session")
    expected = pipe.generate(prompt, **options)
    assert isinstance(pipe.load_session(tmp_path / "a.session"), Session)
    assert pipe.generate(prompt, **options) == expected


def test_a_function_is_a_sampler():
    chain = SamplerChain(lambda logits, context: logits * 2)
    assert chain.process(LOGITS).tolist() == (LOGITS * 2).tolist()


def test_a_chain_of_objects_needs_no_model():
    assert SamplerChain([TopK(2), Last]).sample(LOGITS) == 3
    assert SamplerChain(Last()).sample(LOGITS) == 3
    assert SamplerChain(TopK(1)).process(LOGITS).tolist() == SamplerChain("top_k=1").process(LOGITS).tolist()


# --- Each sequence has its own ---------------------------------------------------------------------------------------


def test_what_is_given_is_never_called(pipe):
    tide = Tide(3.0)
    first = pipe.generate("hello", sampler=tide, seed=1, n=2, max_tokens=5, ignore_eos=True)
    assert tide.calls == 0
    assert pipe.generate("hello", sampler=tide, seed=1, n=2, max_tokens=5, ignore_eos=True) == first


def test_what_is_changed_after_it_was_given_does_not_count(pipe):
    """A stream has not begun when it is returned, and the copy is made by then."""
    tide, options = Tide(9.0), {"seed": 1, "max_tokens": 5, "ignore_eos": True}
    stream = pipe.stream("hello", sampler=tide, **options)
    tide.depth = 0.0
    drawn = [token_id for chunk in stream for token_id in chunk.token_ids]
    assert drawn == pipe.generate("hello", sampler="tide=9", **options).token_ids
    assert drawn != pipe.generate("hello", sampler="tide=0", **options).token_ids


@dataclass
class Keeper:
    """Keeps whatever it is given."""

    kept: Any
    seen: list = field(default_factory=list)

    def __call__(self, logits, context):
        self.seen.append(context.step)
        Keeper.latest = self
        return logits


def test_models_and_tokenizers_are_shared_and_all_else_is_copied():
    pipe = told_pipeline("x", "abc")
    model = Model(pipe.model.config, pipe.model.weights, pipe.tokenizer, "told", Path())
    inner = {"pipe": pipe, "model": model, "tokenizer": pipe.tokenizer, "logits": pipe.logits, "table": [1, 2]}
    keeper = Keeper(inner)
    pipe.generate("x", sampler=keeper, max_tokens=2)
    copied = Keeper.latest
    assert keeper.seen == []
    assert copied.seen == [0, 1]
    assert copied.kept["pipe"] is pipe
    assert copied.kept["model"] is model
    assert copied.kept["tokenizer"] is pipe.tokenizer
    assert copied.kept["logits"].__self__ is pipe
    assert copied.kept["table"] == [1, 2]
    assert copied.kept["table"] is not inner["table"]


def test_what_cannot_be_copied_is_named_with_the_way_out(pipe):
    for call in (SamplerChain, lambda sampler: pipe.generate("x", sampler=sampler)):
        with pytest.raises(PluginError, match=r"^sampler Keeper \(.*\): deepcopy: TypeError: .*lock.*__deepcopy__"):
            call(Keeper(threading.Lock()))


# --- What is wrong is named ------------------------------------------------------------------------------------------


class Blank:
    name = "blank"


class Wants:
    def __init__(self, words, *, more):
        pass

    def __call__(self, logits, context):
        return logits


class NotANumber:
    def __call__(self, logits, context):
        return logits * np.nan


class Unmakable(NotANumber):
    def __init__(self):
        raise OSError("no table")


NEEDED = r'a text such as "top_k=40,temperature=0\.8" is needed, an object with __call__'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, rf"^sampler is 5: {NEEDED}"),
        ([None], rf"^sampler is None: {NEEDED}"),
        (Blank(), rf"^sampler is of type Blank: {NEEDED}"),
        ([["greedy"]], rf"^sampler is of type list: {NEEDED}"),
        (SamplerChain("greedy"), rf"^sampler is of type SamplerChain: {NEEDED}"),
        (Blank, r"^sampler Blank has neither __call__\(logits, context\) nor pick"),
        (Wants, r"^sampler Wants: missing a required argument: 'words': give an object, Wants\(…\)$"),
        ([Last(), "top_k=1"], "^sampler Last draws the token itself: put it last in the chain$"),
        ([Last, Tide], "^sampler Last draws the token itself: put it last in the chain$"),
        (["top_k=40", "top_kk=1"], "^unknown sampler 'top_kk': did you mean top_k"),
        (TopK(-1), r"^sampler top_k: k is -1: a whole number, 0 or more is needed$"),
        (TopK("many"), r"^sampler top_k: k is 'many': a whole number"),
        (Temperature(float("nan")), r"^sampler temperature: temperature is nan: a number"),
    ],
)
def test_what_is_no_sampler_is_named(given, message):
    pipe = told_pipeline("x", "abc")
    calls = (SamplerChain, lambda sampler: pipe.generate("x", sampler=sampler), lambda s: pipe.stream("x", sampler=s))
    for call in calls:
        with pytest.raises(RingletError, match=message) as raised:
            call(given)
        assert "\n" not in str(raised.value)


def test_a_class_that_fails_is_named_by_itself_and_its_module():
    where = rf"\({NotANumber.__module__}\)"
    with pytest.raises(PluginError, match=rf"^sampler NotANumber {where}: __call__: returned NaN$"):
        SamplerChain(NotANumber()).process(LOGITS)
    with pytest.raises(PluginError, match=rf"^sampler Unmakable {where}: constructor: OSError: no table$"):
        SamplerChain(Unmakable)
    with pytest.raises(PluginError, match=r"^sampler <lambda> \(.*\): __call__: returned NoneType"):
        SamplerChain(lambda logits, context: None).process(LOGITS)


def test_a_registered_class_keeps_its_name_and_its_plugin(tide_file):
    cls = load_plugins([tide_file]).find("sampler", "tide").cls
    with pytest.raises(PluginError, match=r"^sampler tide \(.*tide.py\): __call__: UFuncTypeError"):
        SamplerChain(cls("deep"), plugins=[tide_file]).process(LOGITS)


# --- Ringlet's own ---------------------------------------------------------------------------------------------------


def test_ringlet_s_own_can_be_imported_by_their_classes():
    registered = load_plugins().registry("sampler").values()
    built_in = {found.cls.__name__: found.cls for found in registered if found.is_built_in}
    assert set(samplers.__all__) == set(built_in) == set(dir(samplers))
    assert {name: getattr(samplers, name) for name in samplers.__all__} == built_in
    with pytest.raises(AttributeError, match="no attribute 'TopQ'"):
        samplers.TopQ  # noqa: B018


def test_ringlet_s_own_keep_the_range_of_their_numbers():
    """What their text refuses they refuse as objects, where the object keeps the number under its own name."""
    refused = 0
    for found in load_plugins().registry("sampler").values():
        for parameter in parameters_of(found.cls) if found.is_built_in else ():
            if parameter.type not in (int, float) or any(one.required for one in parameters_of(found.cls)):
                continue
            low = parameter.above if parameter.minimum is None else parameter.minimum
            if low is None:
                continue
            try:
                given = found.cls(**{parameter.name: low - 1})
            except (RingletError, ValueError):
                refused += 1
                continue
            if not hasattr(given, parameter.name):
                continue
            with pytest.raises(RingletError, match=f"^sampler {found.name}: {parameter.name} is "):
                SamplerChain(given)
            refused += 1
    assert refused >= 20
