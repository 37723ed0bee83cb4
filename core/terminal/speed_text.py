"""What `generate` says of how it went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringlet.core.completion import Completion


def speed_text(completions: Sequence[Completion], n_known: int) -> str:
    """How a generation went. n_known: tokens of the prompt that needed no computing, and count for no speed."""
    first = completions[0]
    n_prompt = first.usage.prompt_tokens
    n_drawn = sum(completion.usage.completion_tokens for completion in completions)
    seconds = max(completion.timings["generate"] for completion in completions)
    finish = ", ".join(completion.finish_reason for completion in completions)
    if n_known == n_prompt:
        prompt = f"{n_prompt} tokens, all known"
    else:
        known = f"{n_prompt} tokens, {n_known} of them known; the others: " if n_known else ""
        prompt = known + paced(n_prompt - n_known, first.timings["prompt"])
    return f"prompt: {prompt}; generate: {paced(n_drawn, seconds)}; finish: {finish}"


def paced(n_tokens: int, seconds: float) -> str:
    """ "12 tokens in 0.30 s (40.0 tokens/s)"."""
    speed = f" ({n_tokens / seconds:.1f} tokens/s)" if seconds > 0 else ""
    return f"{n_tokens} tokens in {seconds:.2f} s{speed}"
