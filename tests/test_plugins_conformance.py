"""The conformance suite: Ringlet's own plugins pass it, and for each check there is a plugin that fails it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest
from tiny_models import FOLDER as TINY_MODELS
from tiny_models import FORMS, PLUGIN, architectures

from ringlet import RingletError
from ringlet.core.plugin_manager import PluginManager, Registered
from ringlet.plugins.backends.numpy import NumpyBackend
from ringlet.testing import Check, Outcome, checks_of, outcome_of
from ringlet.testing.architectures import architecture_checks
from ringlet.testing.backends.suite import backend_checks
from ringlet.testing.suite import checks_for, from_files, named

# Samplers that must be told something before they can be made, or do nothing unless they are.
SPECS = {
    "allowed_words": 'allowed_words(words="春|明月|江")',
    "bad_words": 'bad_words(words="春|明月",ids="12 345")',
    "grammar": "grammar('start: /[a-z ]+/')",
    "json_schema": "json_schema('{}')",
    "logit_bias": 'logit_bias(bias="3:2.5 4:-inf")',
    "min_new_tokens": "min_new_tokens=2",
    "regex": 'regex("[a-z ]+")',
}


@cache
def built_in() -> PluginManager:
    return PluginManager(report=pytest.fail)


def failures(checks: Iterable[Check]) -> list[Outcome]:
    outcomes = [outcome_of(check) for check in checks]
    assert outcomes
    return [outcome for outcome in outcomes if outcome.status == "failed"]


@pytest.mark.parametrize("name", built_in().registry("sampler"))
def test_the_built_in_samplers_pass(name: str) -> None:
    (subject,) = named(SPECS.get(name, name), built_in())
    assert failures(checks_for(subject, built_in())) == []


@pytest.mark.parametrize("name", ["numpy", "cpu"])
def test_the_built_in_backends_pass_and_refuse_nothing(name: str) -> None:
    (subject,) = named(name, built_in())
    assert {outcome_of(check).status for check in checks_for(subject, built_in())} == {"ok"}


@pytest.mark.parametrize("architecture", architectures(), ids=lambda cls: cls.name)
def test_the_built_in_architectures_and_a_plugin_s_pass(architecture: type) -> None:
    assert failures(architecture_checks(architecture, NumpyBackend)) == []


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_the_models_of_the_tests_are_read(name: str, form: str) -> None:
    """The checks of a model that is given, for the architecture that reads it."""
    source = TINY_MODELS / name / ("model.gguf" if form == "gguf" else "")
    passing = []
    for architecture in architectures():
        *_, reads, computes = architecture_checks(architecture, NumpyBackend, str(source))
        if outcome_of(reads).status == "ok":
            passing.append((architecture.name, outcome_of(computes)))
    assert [outcome.status for _, outcome in passing] == ["ok"]


def test_checks_by_name_and_by_file(tmp_path) -> None:
    assert list(map(str, checks_of("top_k"))) == list(map(str, checks_of("top_k=3")))
    (subject,) = named("top_k=3", built_in())
    assert subject.step is not None
    assert subject.step.arguments == {"k": 3}
    assert len(checks_of("phi", plugins=[PLUGIN])) == 5
    manager = PluginManager([PLUGIN])
    (subject,) = from_files(manager, [PLUGIN])
    assert subject.label == f"architecture phi ({PLUGIN})"
    for name, message in [
        ("nothing", "unknown sampler, backend or architecture 'nothing'"),
        ("top_k=1,top_p=1", "names 2 samplers: check one at a time"),
        ("top_k(", "a value is needed"),
        ("min_new_tokens", r"needs n: write min_new_tokens\(n=…\)"),
    ]:
        with pytest.raises(RingletError, match=message):
            checks_of(name)
    (tmp_path / "none.py").write_text("from ringlet import hookimpl\n@hookimpl\ndef register_commands(cli): ...\n")
    with pytest.raises(RingletError, match="no sampler, backend or architecture to check"):
        from_files(PluginManager([tmp_path / "none.py"]), [tmp_path / "none.py"])


# --- each check can fail ---------------------------------------------------------------------------------------------


def test_each_check_of_samplers_fails_for_some_sampler() -> None:
    from faulty_samplers import FAULTY

    seen = set()
    for cls, expected in FAULTY.items():
        registered = Registered(cls, "sampler", cls.name, "faulty_samplers.py", None)
        manager = PluginManager(report=pytest.fail)
        manager.registry("sampler")[cls.name] = registered  # type: ignore[index]
        (subject,) = named(cls.name, manager)
        failed = {outcome.check: outcome.reason for outcome in failures(checks_for(subject, manager))}
        assert expected in failed, (cls.name, failed)
        assert all(reason and "\n" not in reason for reason in failed.values())
        seen |= set(failed)
    (subject,) = named("greedy", built_in())
    everything = {str(check) for check in checks_for(subject, built_in())} | {"every k in its range works"}
    assert everything - seen == set()


def test_each_check_of_backends_fails_for_some_backend() -> None:
    from faulty_backends import FAULTY, ABitOff

    seen = set()
    for cls, expected in FAULTY.items():
        registered = Registered(cls, "backend", cls.name, "faulty_backends.py", None)
        checks = {str(check): check for check in backend_checks(registered, NumpyBackend)}
        wanted = (expected,) if isinstance(expected, str) else expected
        for name in checks if cls is ABitOff else wanted:
            outcome = outcome_of(checks[name])
            assert outcome.status == "failed" or name not in wanted, (cls.name, name)
            if outcome.status == "failed":
                assert outcome.reason
                assert "\n" not in outcome.reason
                seen.add(name)
    assert set(checks) - seen == set()


def test_each_check_of_architectures_fails_for_some_architecture() -> None:
    from faulty_architectures import FAULTY, MODEL

    seen = set()
    for cls, expected in FAULTY.items():
        failed = {str(outcome.check) for outcome in failures(architecture_checks(cls, NumpyBackend, MODEL))}
        assert expected in failed, (cls.name, failed)
        seen |= failed
    from ringlet.plugins.architectures.llama import Llama

    assert {str(check) for check in architecture_checks(Llama, NumpyBackend, MODEL)} - seen == set()


def test_what_is_refused_is_skipped_with_the_reason() -> None:
    outcomes = {str(check): outcome_of(check) for check in checks_of("bad_words(words='春')")}
    refused = outcomes["a vocabulary of 1"]
    assert (refused.status, refused.reason.partition(":")[0]) == ("skipped", "refused")

    class NoCaps(NumpyBackend):
        name = "no_caps"

        def __init__(self, config, weights, threads=None):
            if config.score_soft_cap:
                raise RingletError("no_caps knows no soft caps")
            super().__init__(config, weights, threads)

    registered = Registered(NoCaps, "backend", "no_caps", "no_caps.py", None)
    checks = [check for check in backend_checks(registered, NumpyBackend) if "recipe" in check.name]
    outcomes = {check.name: outcome_of(check) for check in checks}
    skipped = {name: outcome.reason for name, outcome in outcomes.items() if outcome.status == "skipped"}
    assert skipped == {"recipe: soft caps": "refused: no_caps knows no soft caps"}
    assert {outcome.status for outcome in outcomes.values()} == {"ok", "skipped"}


def test_an_interrupt_is_no_outcome() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcome_of(Check("it waits", interrupted))
