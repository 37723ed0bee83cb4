"""llama.cpp's samplers, called through llama-cpp-python's low-level interface: a reference for ours."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import llama_cpp
import numpy as np

OLD_ARGUMENTS = {"penalties": 4, "dry": 8}  # of versions before n_vocab came to the one, and n_ctx_train left the other


class LlamaSampler:
    """One of them: `make` is the part of its name after llama_sampler_init_, followed by its arguments."""

    def __init__(self, make: str, *arguments: Any) -> None:
        self._sampler = getattr(llama_cpp, f"llama_sampler_init_{make}")(*arguments)
        assert self._sampler

    def __del__(self) -> None:
        if hasattr(self, "_sampler"):
            llama_cpp.llama_sampler_free(self._sampler)

    def accept(self, token_ids: Iterable[int]) -> None:
        """These have come, one after the other."""
        for token_id in token_ids:
            llama_cpp.llama_sampler_accept(self._sampler, int(token_id))

    def apply(self, logits: np.ndarray) -> tuple[np.ndarray, int]:
        """float32 (d_vocab,) after the sampler, −inf for what it removed, and the token it selects or −1."""
        data = (llama_cpp.llama_token_data * len(logits))()
        for token_id, logit in enumerate(logits.tolist()):
            data[token_id].id, data[token_id].logit = token_id, logit
        candidates = llama_cpp.llama_token_data_array(data=data, size=len(logits), selected=-1, sorted=False)
        llama_cpp.llama_sampler_apply(self._sampler, ctypes.byref(candidates))
        left = [(candidates.data[place].id, candidates.data[place].logit) for place in range(candidates.size)]
        found = np.full(len(logits), -np.inf, np.float32)
        for token_id, logit in left:
            found[token_id] = logit
        return found, left[candidates.selected][0] if candidates.selected >= 0 else -1


def llama_penalties(d_vocab: int, window: int, repeat: float, frequency: float, presence: float) -> LlamaSampler:
    """All three penalties, which llama.cpp has in one sampler."""
    first = () if _is_old("penalties") else (d_vocab,)
    return LlamaSampler("penalties", *first, window, repeat, frequency, presence)


def llama_dry(
    vocabulary: Any, multiplier: float, base: float, allowed_length: int, window: int, breakers: Sequence[str]
) -> LlamaSampler:
    """vocabulary: llama.cpp's, which finds the breakers' tokens."""
    texts = (ctypes.c_char_p * len(breakers))(*(text.encode() for text in breakers))
    context = (1 << 20,) if _is_old("dry") else ()
    return LlamaSampler("dry", vocabulary, *context, multiplier, base, allowed_length, window, texts, len(breakers))


def _is_old(make: str) -> bool:
    return len(getattr(llama_cpp, f"llama_sampler_init_{make}").argtypes or ()) == OLD_ARGUMENTS[make]
