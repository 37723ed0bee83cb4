"""Ringlet's samplers, a family a module; `from ringlet.plugins.samplers import TopK` has each by its class."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.plugins.samplers.allowed_words import AllowedWords
    from ringlet.plugins.samplers.dry import DRY
    from ringlet.plugins.samplers.epsilon import Epsilon, Eta
    from ringlet.plugins.samplers.grammar import Grammar, JsonSchema, Regex
    from ringlet.plugins.samplers.greedy import Greedy
    from ringlet.plugins.samplers.min_new_tokens import MinNewTokens
    from ringlet.plugins.samplers.min_p import MinP
    from ringlet.plugins.samplers.mirostat import Mirostat, MirostatV2
    from ringlet.plugins.samplers.no_repeat_ngram import NoRepeatNgram
    from ringlet.plugins.samplers.penalties import FrequencyPenalty, PresencePenalty, RepetitionPenalty
    from ringlet.plugins.samplers.temperature import Temperature
    from ringlet.plugins.samplers.top_k import TopK
    from ringlet.plugins.samplers.top_n_sigma import TopNSigma
    from ringlet.plugins.samplers.top_p import TopP
    from ringlet.plugins.samplers.typical import Typical
    from ringlet.plugins.samplers.words import BadWords, LogitBias
    from ringlet.plugins.samplers.xtc import XTC

__all__ = [
    "DRY",
    "XTC",
    "AllowedWords",
    "BadWords",
    "Epsilon",
    "Eta",
    "FrequencyPenalty",
    "Grammar",
    "Greedy",
    "JsonSchema",
    "LogitBias",
    "MinNewTokens",
    "MinP",
    "Mirostat",
    "MirostatV2",
    "NoRepeatNgram",
    "PresencePenalty",
    "Regex",
    "RepetitionPenalty",
    "Temperature",
    "TopK",
    "TopNSigma",
    "TopP",
    "Typical",
]

# Each is imported when it is first asked for: a broken module keeps no other from its work.
_HOMES = {
    "AllowedWords": "allowed_words",
    "BadWords": "words",
    "DRY": "dry",
    "Epsilon": "epsilon",
    "Eta": "epsilon",
    "FrequencyPenalty": "penalties",
    "Grammar": "grammar",
    "Greedy": "greedy",
    "JsonSchema": "grammar",
    "LogitBias": "words",
    "MinNewTokens": "min_new_tokens",
    "MinP": "min_p",
    "Mirostat": "mirostat",
    "MirostatV2": "mirostat",
    "NoRepeatNgram": "no_repeat_ngram",
    "PresencePenalty": "penalties",
    "Regex": "grammar",
    "RepetitionPenalty": "penalties",
    "Temperature": "temperature",
    "TopK": "top_k",
    "TopNSigma": "top_n_sigma",
    "TopP": "top_p",
    "Typical": "typical",
    "XTC": "xtc",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
