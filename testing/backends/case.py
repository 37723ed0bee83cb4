"""A backend under check: it, models for it, and what its logits are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.backend_calls import new_ring
from ringlet.core.backend_choice import construct
from ringlet.core.config import LayerConfig, ModelConfig
from ringlet.core.plugin_manager import Registered
from ringlet.core.ring_cache import RingCache, RingLayout
from ringlet.core.weights import ModelWeights
from ringlet.testing.checks import require
from ringlet.testing.random_models import ADJACENT, HALVES, in_pieces, random_model

# Of the largest logit, by what the ring holds; sharp attention multiplies its rounding.
ROUNDED = {"f32": 1e-4, "f16": 2e-2}
COARSE = 1e-1  # 8-bit activations and rings
WINDOWS = (LayerConfig(3, HALVES), LayerConfig(None, ADJACENT), LayerConfig(None, None))

Model = tuple[ModelConfig, ModelWeights]


@dataclass(frozen=True)
class BackendCase:
    """One backend's class, and the class of the reference that it is compared with."""

    registered: Registered
    reference: type[Backend]
    _made: dict[str, Backend] = field(default_factory=dict)

    @property
    def tolerance(self) -> float:
        """Of the largest logit, in the ring that is nearest to the reference's."""
        return ROUNDED.get(exact_dtype(self.registered.cls), COARSE)

    def made(self, model: Model, threads: int | None = None) -> Backend:
        return construct(self.registered, *model, threads)

    def usual(self) -> Backend:
        """For a model with windows, grouped heads, d_v other than d_k; made once."""
        if "usual" not in self._made:
            self._made["usual"] = self.made(usual_model())
        return self._made["usual"]

    def expected(self, model: Model, layout: RingLayout, ids: list[int], sizes: list[int]) -> np.ndarray:
        """The reference's logits of all ids, in a ring of float32."""
        reference = self.reference(*model)
        return in_pieces(reference, reference.new_ring(layout, "f32"), ids, sizes)


def usual_model() -> Model:
    return random_model(d_v=5, n_heads=6, n_kv_heads=2, layers=WINDOWS)


def usual_layout(config: ModelConfig, overflow: str = "slide") -> RingLayout:
    return RingLayout.of(config, 16 if overflow == "slide" else 64, 2, overflow, chunk=40)


def usual_ring(backend: Backend) -> RingCache:
    return new_ring(backend, usual_layout(backend.config), exact_dtype(backend))


def exact_dtype(backend: Backend | type[Backend]) -> str:
    """What its rings hold with the least rounding."""
    return "f32" if "f32" in backend.kv_dtypes else backend.kv_dtype


def close(found: np.ndarray, expected: np.ndarray, tolerance: float, about: str = "") -> None:
    """tolerance: of the largest absolute value of what is expected."""
    __tracebackhide__ = True
    prefix = f"{about}: " if about else ""
    require(found.shape == expected.shape, f"{prefix}the shape is {found.shape}, not {expected.shape}")
    largest = float(np.abs(expected).max(initial=0))
    error = float(np.abs(found - expected).max(initial=0)) / (largest or 1.0)
    require(error <= tolerance, f"{prefix}off by {error:.2g} of the largest logit; {tolerance:g} is allowed")


def same_bits(found: np.ndarray, expected: np.ndarray, about: str) -> None:
    __tracebackhide__ = True
    different = int((found != expected).sum()) if found.shape == expected.shape else found.size
    require(different == 0, f"{about}: {different} of {found.size} logits differ")
