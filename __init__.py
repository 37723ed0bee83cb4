"""Ringlet: language models in pure Python, with samplers, backends and architectures as plugins."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.core.architecture import Architecture, SourceTable
    from ringlet.core.backend import Backend
    from ringlet.core.batch import Batch
    from ringlet.core.completion import Chunk, Completion
    from ringlet.core.errors import PluginError, RingletError
    from ringlet.core.hookspecs import hookimpl
    from ringlet.core.parameters import Parameter
    from ringlet.core.pipeline import Pipeline
    from ringlet.core.sampling import SamplerChain, SamplerContext
    from ringlet.tokenization.tokenizer import Tokenizer

    __version__: str

__all__ = [
    "Architecture",
    "Backend",
    "Batch",
    "Chunk",
    "Completion",
    "Parameter",
    "Pipeline",
    "PluginError",
    "RingletError",
    "SamplerChain",
    "SamplerContext",
    "SourceTable",
    "Tokenizer",
    "__version__",
    "hookimpl",
]

# Each name is imported when it is first asked for, so that the command line starts without NumPy.
_HOMES = {
    "Architecture": "ringlet.core.architecture",
    "Backend": "ringlet.core.backend",
    "Batch": "ringlet.core.batch",
    "Chunk": "ringlet.core.completion",
    "Completion": "ringlet.core.completion",
    "Parameter": "ringlet.core.parameters",
    "Pipeline": "ringlet.core.pipeline",
    "PluginError": "ringlet.core.errors",
    "RingletError": "ringlet.core.errors",
    "SamplerChain": "ringlet.core.sampling",
    "SamplerContext": "ringlet.core.sampling",
    "SourceTable": "ringlet.core.architecture",
    "Tokenizer": "ringlet.tokenization.tokenizer",
    "hookimpl": "ringlet.core.hookspecs",
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
    return sorted({*globals(), *__all__})
