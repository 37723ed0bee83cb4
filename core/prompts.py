"""What a pipeline is given to complete, a text or token ids or a list of either, as ids that its model can take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ringlet.core.checks import check_text, checked_ids
from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.ring_cache import RingLayout

if TYPE_CHECKING:
    from ringlet.tokenization.tokenizer import Tokenizer

Prompt = str | Sequence[int] | np.ndarray
Prompts = list[str] | list[list[int]] | list[Prompt] | tuple[Prompt, ...]


@dataclass(frozen=True)
class PromptReader:
    """For one model and one kind of ring."""

    tokenizer: Tokenizer
    config: ModelConfig
    layout: RingLayout

    def ids_of_all(self, prompts: Sequence[Any], several: bool) -> Iterator[list[int]]:
        """Each prompt's ids. several: errors say which prompt they are about."""
        for index, prompt in enumerate(prompts):
            try:
                yield self.ids_of(prompt)
            except RingletError as error:
                if not several:
                    raise
                raise RingletError(f"prompts[{index}]: {error}") from None

    def ids_of(self, prompt: Any) -> list[int]:
        """Those of a text or of ids. Raises RingletError for what is neither, and where the model cannot take them."""
        if not isinstance(prompt, str):
            return self.checked(prompt)
        check_text(prompt)
        return self.checked(self.tokenizer.encode(prompt))

    def checked(self, ids: Any) -> list[int]:
        """The ids as plain ints. Raises RingletError where the model cannot take them."""
        checked, config, layout = checked_ids(ids), self.config, self.layout
        wrong = next((token_id for token_id in checked if not 0 <= token_id < config.d_vocab), None)
        if wrong is not None:
            raise RingletError(f"the prompt holds the token id {wrong}: the model's vocabulary has {config.d_vocab}")
        if layout.overflow == "stop" and len(checked) > layout.context:
            raise RingletError(
                f"the prompt has {len(checked)} tokens and the context {layout.context}: shorten the prompt, "
                f'choose a larger context (the model\'s own is {config.context_length}), or overflow "slide"'
            )
        return checked
