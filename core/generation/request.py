"""What one prompt asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringlet.core.ring_cache import RingLayout

if TYPE_CHECKING:
    from ringlet.core.generation.options import GenerationOptions


@dataclass(frozen=True)
class Request:
    """A prompt and what is wanted of it; checked before."""

    prompt_ids: list[int]
    options: GenerationOptions

    def most_tokens(self, layout: RingLayout) -> int:
        """How many tokens a completion may have, by the user's wish and by the context."""
        wanted = self.options.max_tokens
        return min(wanted, layout.context - len(self.prompt_ids)) if layout.overflow == "stop" else wanted
