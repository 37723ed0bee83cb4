"""How much work a forward step is at least: bytes that it reads, and multiply-adds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import prod

from ringlet.core.backend import MachineLimits
from ringlet.core.config import ModelConfig
from ringlet.core.ring_cache import RingLayout
from ringlet.core.weights import LayerWeights, Matrix, ModelWeights


@dataclass(frozen=True)
class Workload:
    """bytes_read: of weights, once a step, and of rings. multiply_adds: of matrix products and attention."""

    bytes_read: int = 0
    multiply_adds: int = 0

    def __add__(self, other: Workload) -> Workload:
        return Workload(self.bytes_read + other.bytes_read, self.multiply_adds + other.multiply_adds)

    def seconds_at(self, limits: MachineLimits) -> float:
        """What the machine needs at least: the longer of reading and multiplying, which go on side by side."""
        reading = self.bytes_read / limits.bytes_per_second
        return max(reading, self.multiply_adds / limits.multiply_adds_per_second)


class StepCounter:
    """Counts the work of steps over rings of the same layout, of ring_bytes each."""

    def __init__(self, config: ModelConfig, weights: ModelWeights, layout: RingLayout, ring_bytes: int) -> None:
        layers = [matrix for layer in weights.layers for matrix in matrices_of(layer)]
        self._layer_bytes = sum(matrix.nbytes for matrix in layers)
        self._layer_weights = sum(prod(matrix.shape) for matrix in layers)
        self._W_t, self._capacities = weights.W_t, [layer.capacity for layer in layout.layers]
        slots = sum(layer.slots for layer in layout.layers)
        self._key_bytes = ring_bytes / slots  # a key and its value, all heads together
        self._key_multiply_adds = config.n_heads * (config.d_k + config.d_v)

    def step(self, sequences: int, start: int, stop: int, wanted: int) -> Workload:
        """A step in which each sequence contributes its tokens from position `start` to `stop`.

        wanted: tokens whose logits are computed, in all. Of the embedding and of vectors so little is read that it is
        not counted; a key counts once a step as read, and once for each query as multiplied.
        """
        keys = sequences * sum(min(stop, capacity + stop - start - 1) for capacity in self._capacities)
        read = self._layer_bytes + (self._W_t.nbytes if wanted else 0) + round(keys * self._key_bytes)
        multiplied = sequences * (stop - start) * self._layer_weights + wanted * prod(self._W_t.shape)
        multiplied += sequences * self._key_multiply_adds * self._keys_seen(range(start, stop))
        return Workload(read, multiplied)

    def _keys_seen(self, positions: Iterable[int]) -> int:
        """Keys that the queries at these positions see, in all layers together."""
        return sum(min(position + 1, capacity) for position in positions for capacity in self._capacities)


def matrices_of(layer: LayerWeights) -> list[Matrix]:
    values = (getattr(layer, field.name) for field in fields(layer))
    return [value for value in values if isinstance(value, Matrix)]
