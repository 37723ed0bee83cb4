"""What a backend is: it computes forward steps of one model, over rings it may place where it likes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from ringlet.core.batch import Batch
from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.host_memory import HostMemory, host_bytes
from ringlet.core.likeliest import Likeliest
from ringlet.core.ring_cache import RingCache, RingLayout, RingMemory
from ringlet.core.weights import ModelWeights


@dataclass(frozen=True)
class MachineLimits:
    """What a backend's machine can do at most: bytes read from memory, and float32 multiply-adds, each a second."""

    bytes_per_second: float
    multiply_adds_per_second: float


class Missing(NamedTuple):
    """What a machine lacks for a backend: one line, with the way out. is_near: so little that "auto" says it, too."""

    text: str
    is_near: bool = False


class Backend(ABC):
    """Base of every backend. A plugin registers the class; the engine makes one instance a model.

    name: how `--backend` calls it. kv_dtype: what its rings hold when the user does not say. kv_dtypes: all that they
    can hold; one that has others than host memory makes its own (`new_memory`, `ring_bytes`).
    most_threads: that it can use.
    rank: "auto" takes the backend of the highest rank that works; one of rank 0 has to be named.
    takes_device: the constructor has a parameter `device`, the number of the one to use, 0 where the user says nothing.
    place: what it computes on, where that is worth telling; None otherwise.
    origin: the plugin it comes from; None for a built-in one, and for one that was not made by its name.
    """

    name: ClassVar[str]
    kv_dtype: ClassVar[str] = "f16"
    kv_dtypes: ClassVar[tuple[str, ...]] = ("f32", "f16", "q8")
    most_threads: ClassVar[int] = 256
    rank: ClassVar[int] = 0
    takes_device: ClassVar[bool] = False
    place: str | None = None
    origin: str | None = None

    def __init__(self, config: ModelConfig, weights: ModelWeights, threads: int | None = None) -> None:
        self.config, self.weights, self.threads = config, weights, threads

    @property
    def label(self) -> str:
        """For messages: the name, and the plugin it comes from."""
        return self.name if self.origin is None else f"{self.name} ({self.origin})"

    @classmethod
    def missing(cls) -> Missing | None:
        """What this machine lacks for the backend; None where it should work. Asked at every start, so it is quick."""
        return None

    @classmethod
    def ring_dtype(cls, wish: str) -> str:
        """What the rings hold for a user's kv_dtype, "auto" among them. Raises RingletError for one it has not."""
        if wish not in ("auto", *cls.kv_dtypes):
            raise RingletError(f"kv_dtype is {wish!r}: choose from auto, {', '.join(cls.kv_dtypes)}")
        return cls.kv_dtype if wish == "auto" else wish

    def new_ring(self, layout: RingLayout, kv_dtype: str) -> RingCache:
        """An empty ring for one sequence. kv_dtype: one of kv_dtypes."""
        return RingCache(layout, partial(self.new_memory, layout, kv_dtype))

    def new_memory(self, layout: RingLayout, kv_dtype: str) -> RingMemory:
        """What the keys and values of one ring lie in; host memory unless the backend says otherwise."""
        return HostMemory(self.config, layout, kv_dtype)

    def ring_bytes(self, layout: RingLayout, kv_dtype: str) -> int:
        """Memory that the ring of one sequence takes."""
        return host_bytes(self.config, layout, kv_dtype)

    @abstractmethod
    def forward(self, batch: Batch) -> np.ndarray:
        """Run the batch's tokens through the model; write their keys and values into the rings' slots.

        Returns float32 (number of true `wants_logits`, d_vocab), in the batch's order. `run_step` tells the rings.
        """

    def forward_likeliest(self, batch: Batch, count: int) -> Likeliest:
        """The same, with the `count` likeliest tokens of each row listed, 1 ≤ count ≤ d_vocab; or with none listed.

        A backend may leave it out. It serves decoding: what the samplers need is found where the logits are.
        """
        return Likeliest.of_all(self.forward(batch))

    def forward_with_hidden(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The same logits, and the hidden states of all tokens after the final norm: float32 (n, d_model).

        A backend may leave it out; contrastive search asks for it. Raises RingletError where it is left out.
        """
        raise RingletError(f"backend {self.label} gives no hidden states: contrastive search needs one such as numpy")

    def warm_up(self, everything: bool = False) -> str:
        """Do now what a model's first use would wait for, such as compiling; the rest of it than `__init__` has done.

        everything: also what models of other formats would wait for. Returns what is ready and where it is kept, as the
        end of a line.
        """
        return "has nothing to compile"

    def machine_limits(self) -> MachineLimits | None:
        """Measured now, with as many threads as a step has; None from a backend that does not measure them."""
        return None
