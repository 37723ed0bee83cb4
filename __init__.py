"""Ringlet: language models in pure Python, with samplers, backends and architectures as plugins."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.core.backend import Backend, MachineLimits
    from ringlet.core.batch import Batch
    from ringlet.core.candidates import Candidates
    from ringlet.core.completion import Chunk, Completion
    from ringlet.core.config import ModelConfig
    from ringlet.core.errors import FormatError, PluginError, RingletError
    from ringlet.core.explanation.trace import Trace
    from ringlet.core.hookspecs import hookimpl
    from ringlet.core.loading.architecture import Architecture, Key, SourceTable
    from ringlet.core.loading.common_names import HF_KEYS
    from ringlet.core.loading.layers import GgufLayers, HuggingFaceLayers
    from ringlet.core.loading.windows import window_but_every_nth, window_everywhere, window_in_late_layers
    from ringlet.core.parameters import Parameter
    from ringlet.core.pipeline import Pipeline
    from ringlet.core.ring_cache import RingCache, RingLayout, RingMemory
    from ringlet.core.sampling import SamplerChain, SamplerContext
    from ringlet.core.weights import LayerWeights, Matrix, ModelWeights
    from ringlet.tokenization.tokenizer import Tokenizer

    __version__: str

__all__ = [
    "HF_KEYS",
    "Architecture",
    "Backend",
    "Batch",
    "Candidates",
    "Chunk",
    "Completion",
    "FormatError",
    "GgufLayers",
    "HuggingFaceLayers",
    "Key",
    "LayerWeights",
    "MachineLimits",
    "Matrix",
    "ModelConfig",
    "ModelWeights",
    "Parameter",
    "Pipeline",
    "PluginError",
    "RingCache",
    "RingLayout",
    "RingMemory",
    "RingletError",
    "SamplerChain",
    "SamplerContext",
    "SourceTable",
    "Tokenizer",
    "Trace",
    "hookimpl",
    "window_but_every_nth",
    "window_everywhere",
    "window_in_late_layers",
]

# Each name is imported when it is first asked for, so that the command line starts without NumPy.
_HOMES = {
    "Architecture": "ringlet.core.loading.architecture",
    "Backend": "ringlet.core.backend",
    "Batch": "ringlet.core.batch",
    "Candidates": "ringlet.core.candidates",
    "Chunk": "ringlet.core.completion",
    "Completion": "ringlet.core.completion",
    "FormatError": "ringlet.core.errors",
    "GgufLayers": "ringlet.core.loading.layers",
    "HF_KEYS": "ringlet.core.loading.common_names",
    "HuggingFaceLayers": "ringlet.core.loading.layers",
    "Key": "ringlet.core.loading.architecture",
    "LayerWeights": "ringlet.core.weights",
    "MachineLimits": "ringlet.core.backend",
    "Matrix": "ringlet.core.weights",
    "ModelConfig": "ringlet.core.config",
    "ModelWeights": "ringlet.core.weights",
    "Parameter": "ringlet.core.parameters",
    "Pipeline": "ringlet.core.pipeline",
    "PluginError": "ringlet.core.errors",
    "RingCache": "ringlet.core.ring_cache",
    "RingLayout": "ringlet.core.ring_cache",
    "RingMemory": "ringlet.core.ring_cache",
    "RingletError": "ringlet.core.errors",
    "SamplerChain": "ringlet.core.sampling",
    "SamplerContext": "ringlet.core.sampling",
    "SourceTable": "ringlet.core.loading.architecture",
    "Tokenizer": "ringlet.tokenization.tokenizer",
    "Trace": "ringlet.core.explanation.trace",
    "hookimpl": "ringlet.core.hookspecs",
    "window_but_every_nth": "ringlet.core.loading.windows",
    "window_everywhere": "ringlet.core.loading.windows",
    "window_in_late_layers": "ringlet.core.loading.windows",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("ringlet")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What is public: nothing that Python or this module needs for itself."""
    return [*__all__, "__version__"]
