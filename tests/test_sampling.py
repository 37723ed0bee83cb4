"""The chain: its text, its draws, its seeds, and what it checks."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet import PluginError, RingletError, SamplerChain
from ringlet.core.plugin_manager import PluginManager
from ringlet.core.sampler_spec import parse_sampler_spec
from ringlet.core.sampling import draw

EXAMPLE = '''
from dataclasses import dataclass
from typing import Annotated, Optional

import numpy as np

from ringlet import RingletError, hookimpl
from ringlet.core.parameters import Parameter


@dataclass
class Dry:
    name = "own"
    multiplier: float = 0.8
    breakers: str = ":"
    length: Annotated[int, Parameter("tokens", minimum=1, maximum=9)] = 2
    strict: bool = False
    window: Optional[int] = None

    def __call__(self, logits, context):
        seen.append((self, context))
        return logits


seen = []


class Second:
    """A picker that takes the second likeliest token."""

    name = "second"

    def pick(self, logits, context):
        return int(np.argsort(-logits)[1])


class OwnException(BaseException):
    pass


class OwnMistake(RingletError):
    def __init__(self, where, number):
        super().__init__(f"{where}: {number}")


class Faulty:
    name = "faulty"

    def __init__(self, how: str):
        self.how = how

    def __call__(self, logits, context):
        if self.how == "raise":
            raise KeyError("broken\\nhere")
        if self.how == "exit":
            raise SystemExit(3)
        if self.how == "generator_exit":
            raise GeneratorExit
        if self.how == "own":
            raise OwnException
        if self.how == "interrupt":
            raise KeyboardInterrupt
        if self.how == "own_mistake":
            raise OwnMistake("here", 7)
        if self.how == "frozen":
            logits.flags.writeable = False
            return logits
        if self.how == "write":
            context.token_ids[0] = 5
        return {
            "none": None,
            "list": logits.tolist(),
            "shape": logits[:-1],
            "dtype": logits.astype(int),
            "nan": logits * np.nan,
            "all": np.full_like(logits, -np.inf),
            "inf": np.full_like(logits, np.inf),
            "float64": logits.astype(float) + 1,
            "warn": np.log(logits - logits.max() - 1) / np.zeros(4),
            "large": logits.astype(float) + 1e300,
            "masked": np.ma.masked_array(logits, mask=True),
        }[self.how]


class FaultyPicker:
    name = "faulty_picker"

    def __init__(self, token: int = -1):
        self.token = token

    def pick(self, logits, context):
        logits[:] = 0
        return self.token if self.token != 77 else 1.5


class Unmakable:
    name = "unmakable"

    def __init__(self, value: float = 1.0):
        raise OSError("no table")

    def __call__(self, logits, context):
        return logits


@hookimpl
def register_samplers(register):
    for cls in (Dry, Second, Faulty, FaultyPicker, Unmakable):
        register(cls)
'''
LOGITS = np.array([0.5, 2.0, -1.0, 1.0], np.float32)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugins") / "example.py"
    path.write_text(EXAMPLE, encoding="utf-8")
    return str(path)


def arguments(spec: str, plugin: str) -> list[tuple[str, dict]]:
    return [(step.sampler.name, step.arguments) for step in parse_sampler_spec(spec, PluginManager([plugin]))]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("", []),
        ("  ", []),
        ("greedy", [("greedy", {})]),
        ("greedy()", [("greedy", {})]),
        (
            "top_k=40,top_p=0.95 , temperature=0.8",
            [("top_k", {"k": 40}), ("top_p", {"p": 0.95}), ("temperature", {"temperature": 0.8})],
        ),
        ("top_k( k = 3 ),top_k(5)", [("top_k", {"k": 3}), ("top_k", {"k": 5})]),
        ("temperature=1e-3", [("temperature", {"temperature": 0.001})]),
        ("own", [("own", {})]),
        ("own(0.5,length=3)", [("own", {"multiplier": 0.5, "length": 3})]),
        (r'own(breakers="\n,:()=\"爱",strict=yes)', [("own", {"breakers": '\n,:()="爱', "strict": True})]),
        ("own(breakers='a b')", [("own", {"breakers": "a b"})]),
        ("own(window=none,strict=false)", [("own", {"window": None, "strict": False})]),
        ("own(window=7)", [("own", {"window": 7})]),
    ],
)
def test_what_a_text_means(spec, expected, plugin):
    assert arguments(spec, plugin) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("top_kk=40", "unknown sampler 'top_kk': did you mean top_k"),
        ("zzz", "unknown sampler 'zzz': choose from .*greedy, .*min_p"),
        ("top_k=forty", "sampler top_k: k is 'forty': a whole number is needed"),
        ("top_k=1.5", "k is '1.5': a whole number"),
        ("top_k=-1", "sampler top_k: k is -1: a whole number, 0 or more"),
        ("temperature=-1", "sampler temperature: temperature is -1.0: a number, 0 or more"),
        ("temperature=nan", "a number is needed"),
        ("temperature=inf", "a number is needed"),
        ("top_p=1.5", "sampler top_p: p is 1.5: a number from 0 to 1"),
        ("min_p=-0.1", "a number from 0 to 1"),
        ("greedy=1", "sampler greedy has no parameters"),
        ("top_k(1,2)", "sampler top_k has 1 parameters: k"),
        ("top_k(kk=2)", "sampler top_k: unknown parameter 'kk': did you mean k"),
        ("top_k(k=2,k=3)", "sampler top_k: k is given twice"),
        ("top_k=", "a value is needed after top_k="),
        ("top_k(", "a value is needed after top_k\\("),
        ("top_k(2", "a , is needed at the end"),
        ("top_k=1 temperature=2", "a , is needed before 'temperature'"),
        (",greedy", "a sampler's name is needed before ','"),
        ("top_k=40,", "a sampler's name is needed at the end"),
        ("=5", "a sampler's name is needed before '='"),
        ("40", "a sampler's name is needed before '40'"),
        ('own(breakers="x)', "quotation mark without its partner"),
        (r'own(breakers="\x")', "is no quoted text"),
        ("own(length=0)", "length is 0: a whole number from 1 to 9"),
        ("own(strict=maybe)", "strict is 'maybe': true or false"),
        ("faulty", "sampler faulty needs how"),
        ("greedy,top_k=1", "sampler greedy draws the token itself: put it last"),
        (None, "a text such as"),
    ],
)
def test_a_wrong_text_gets_one_line_that_names_the_piece(spec, message, plugin):
    with pytest.raises(RingletError, match=message) as raised:
        SamplerChain(spec, plugins=[plugin])
    assert "\n" not in str(raised.value)


def test_draws_follow_the_probabilities():
    """Chi-square over 20,000 draws; 7 degrees of freedom: above 24.32 once in a thousand seeds."""
    logits = np.random.default_rng(3).normal(0, 1, 8).astype(np.float32)
    chain, n = SamplerChain("", seed=11), 20_000
    counts = np.bincount([chain.sample(logits) for _ in range(n)], minlength=8)
    expected = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum() * n
    assert ((counts - expected) ** 2 / expected).sum() < 24.32


def test_draws_after_a_chain_follow_what_it_leaves():
    logits = np.random.default_rng(4).normal(0, 2, 50).astype(np.float32)
    spec, n = "top_k=10,top_p=0.9,temperature=1.3", 20_000
    left = SamplerChain(spec).process(logits).astype(np.float64)
    expected = np.exp(left - left.max()) / np.exp(left - left.max()).sum() * n
    chain = SamplerChain(spec, seed=2)
    counts = np.bincount([chain.sample(logits) for _ in range(n)], minlength=50)
    assert not counts[expected == 0].any()
    seen = expected > 0
    assert seen.sum() <= 10
    assert ((counts - expected)[seen] ** 2 / expected[seen]).sum() < 27.88  # 9 degrees of freedom, once in a thousand


class FixedUniform:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def test_a_draw_inverts_the_cumulative_sum_and_never_takes_a_removed_token():
    logits = np.log(np.array([0.25, 0, 0.5, 0.25, 0], np.float64) + 1e-320).astype(np.float32)
    logits[[1, 4]] = -np.inf
    draws = {u: draw(logits, FixedUniform(u)) for u in (0.0, 0.24, 0.26, 0.74, 0.76, 1 - 2**-53)}
    assert list(draws.values()) == [0, 0, 2, 2, 3, 3]


def test_seeds():
    def drawn(seed):
        chain = SamplerChain("temperature=2", seed=seed)
        return [chain.sample(np.zeros(1000)) for _ in range(20)]

    assert drawn(7) == drawn(7) == drawn(np.int64(7))
    assert drawn(7) != drawn(8)
    assert drawn(None) != drawn(None)
    reference = np.random.Generator(np.random.PCG64(7))  # one uniform number a draw
    assert drawn(7) == [int(reference.random() * 1000) for _ in range(20)]


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "7", True])
def test_seeds_that_are_none(seed):
    with pytest.raises(RingletError, match=r"seed is .*: a whole number from 0"):
        SamplerChain("greedy", seed=seed)


@pytest.mark.parametrize(
    "ids", [[2**31], [2**70], [0.5], [[0, 1]], "ab", None, [True], [[1], [2, 3]], [np.nan], 5, [None], np.zeros(2)]
)
def test_token_ids_that_are_none(ids):
    for call in (SamplerChain("dry").sample, SamplerChain("repetition_penalty").process):
        with pytest.raises(RingletError, match=r"^token_ids is .*: a list of token ids is needed$"):
            call([0.0, 1.0], ids)


@pytest.mark.parametrize("ids", [(), [], np.array([]), [0, 1], (1,), np.array([1, 0], np.uint64), np.int8([1])])
def test_token_ids_of_any_kind(ids):
    assert SamplerChain("repetition_penalty=2,greedy").sample([0.0, 1.0], ids) == 1


@pytest.mark.parametrize("logits", ["abc", [1j, 2], [object()], ["a", "b"]])
def test_logits_that_are_no_numbers(logits):
    with pytest.raises(RingletError, match=r"^logits are no numbers"):
        SamplerChain("").sample(logits)


def test_a_picker_draws_itself_and_process_stops_before_it(plugin):
    chain = SamplerChain("top_k=3,second", plugins=[plugin])
    assert chain.sample(LOGITS) == 3
    assert np.isneginf(chain.process(LOGITS)).tolist() == [False, False, True, False]


def test_what_a_sampler_sees(plugin):
    tokenizer = object()
    chain = SamplerChain("own(multiplier=2)", seed=1, tokenizer=tokenizer, plugins=[plugin])
    chain.sample(LOGITS, [5, 6])
    chain.sample(LOGITS, token_ids=[5, 6, 7])
    module = type(chain._links[0].sampler).__call__.__globals__
    (sampler, first), (again, second) = module["seen"][-2:]
    assert sampler is again
    assert (first.prompt_length, first.step, first.d_vocab) == (2, 0, 4)
    assert (second.prompt_length, second.step, second.token_ids.tolist()) == (2, 1, [5, 6, 7])
    assert second.tokenizer is tokenizer
    assert isinstance(second.rng, np.random.Generator)
    assert SamplerChain("own", plugins=[plugin])._links[0].sampler is not sampler


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "KeyError: .*broken"),
        ("exit", "SystemExit"),
        ("generator_exit", "GeneratorExit"),
        ("own", "OwnException"),
        ("masked", "returned a masked array"),
        ("write", "read-only"),
        ("none", "returned NoneType"),
        ("list", "returned list"),
        ("shape", r"returned the shape \(3,\), not \(4,\)"),
        ("dtype", "returned int64, not float32"),
        ("nan", "returned NaN"),
        ("inf", r"returned \+inf"),
        ("all", "removed every token"),
    ],
)
def test_a_sampler_that_fails_is_named(how, message, plugin):
    chain = SamplerChain(f"top_k=4,faulty={how}", plugins=[plugin])
    for call in (chain.sample, chain.process):
        with pytest.raises(PluginError, match=rf"^sampler faulty \(.*example.py\): __call__: .*{message}") as raised:
            call(LOGITS, [1])
        assert "\n" not in str(raised.value)


def test_an_interrupt_is_no_fault_of_a_sampler(plugin):
    with pytest.raises(KeyboardInterrupt):
        SamplerChain("faulty=interrupt", plugins=[plugin]).sample(LOGITS)


def test_a_sampler_s_own_kind_of_mistake_is_told(plugin):
    """Whatever the arguments of its class."""
    with pytest.raises(RingletError, match=r"^sampler faulty \(.*example.py\): here: 7$"):
        SamplerChain("faulty=own_mistake", plugins=[plugin]).sample(LOGITS)


def test_a_sampler_after_one_that_freezes_the_logits_may_write(plugin):
    chain = SamplerChain("faulty=frozen,top_k=2", plugins=[plugin])
    assert chain.process(LOGITS).tolist() == SamplerChain("top_k=2").process(LOGITS).tolist()


@pytest.mark.filterwarnings("error")
def test_numpy_does_not_warn_on_standard_error(plugin):
    with pytest.raises(PluginError, match=r"__call__: returned NaN$"):
        SamplerChain("faulty=warn", plugins=[plugin]).process(LOGITS)
    with pytest.raises(PluginError, match=r"__call__: returned \+inf$"):
        SamplerChain("faulty=large", plugins=[plugin]).process(LOGITS)


def test_a_sampler_may_return_float64(plugin):
    found = SamplerChain("faulty=float64", plugins=[plugin]).process(LOGITS)
    assert found.dtype == np.float32
    assert found.tolist() == (LOGITS + 1).tolist()


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (-1, "returned -1, which is outside the vocabulary of 4"),
        (4, "outside"),
        (2, "removed before"),
        (77, "returned float"),
    ],
)
def test_a_picker_that_fails_is_named(token, message, plugin):
    with pytest.raises(PluginError, match=rf"^sampler faulty_picker \(.*\): pick: .*{message}"):
        SamplerChain(f"top_k=3,faulty_picker({token})", plugins=[plugin]).sample(LOGITS)


def test_a_sampler_that_cannot_be_made(plugin):
    with pytest.raises(PluginError, match=r"^sampler unmakable \(.*\): constructor: OSError: no table"):
        SamplerChain("unmakable", plugins=[plugin])


def test_a_bug_of_a_built_in_sampler_is_no_mistake_of_the_user(monkeypatch):
    chain = SamplerChain("top_k=3")

    def fails(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr("ringlet.plugins.samplers.top_k.TopK.__call__", fails)
    with pytest.raises(ZeroDivisionError):
        chain.sample(LOGITS)
