"""What is compared: a program that holds sequences of tokens and computes what follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path


class Engine(ABC):
    """Every engine gets the same ids, and nothing but `prefill` and `decode` is timed."""

    name: str

    @abstractmethod
    def load(self, model: Path, threads: int, context: int) -> None:
        """Open a GGUF file; no sequence will be longer than `context` tokens."""

    @abstractmethod
    def hold(self, history: Sequence[int], batch: int) -> None:
        """Have `batch` sequences that hold the history's tokens and no others; quick when asked again."""

    @abstractmethod
    def prefill(self, ids: Sequence[int]) -> None:
        """Every sequence takes all the ids; the logits after the last one are computed."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> None:
        """Every sequence takes the ids one after the other; the logits after each are computed."""
