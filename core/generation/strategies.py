"""The decoding strategies by name, and their text: "beam_search(beams=4)"."""

from __future__ import annotations

from ringlet.core.errors import RingletError
from ringlet.core.generation.beam_search import BeamSearch
from ringlet.core.generation.contrastive_search import ContrastiveSearch
from ringlet.core.generation.sample import Sample
from ringlet.core.generation.strategy import Strategy
from ringlet.core.plugin_manager import BUILT_IN, Registered, unknown_name
from ringlet.core.sampler_spec import parse_steps

STRATEGIES: dict[str, type[Strategy]] = {cls.name: cls for cls in (Sample, BeamSearch, ContrastiveSearch)}


def parse_strategy(spec: str) -> Strategy:
    """Raises RingletError that names the piece of the text that is wrong."""
    if not isinstance(spec, str):
        raise RingletError(f'strategy is {spec!r}: a text such as "beam_search(beams=4)" is needed')
    steps = parse_steps(spec, "strategy", _find)
    if len(steps) != 1:
        raise RingletError(f'strategy "{spec}": one of {", ".join(STRATEGIES)} is needed')
    (step,) = steps
    try:
        return step.sampler.cls(**step.arguments)
    except RingletError as error:
        raise RingletError(f"strategy {step.sampler.name}: {error}") from None


def _find(name: str) -> Registered:
    if name not in STRATEGIES:
        raise RingletError(unknown_name("strategy", name, STRATEGIES))
    return Registered(STRATEGIES[name], "strategy", name, BUILT_IN, None)
