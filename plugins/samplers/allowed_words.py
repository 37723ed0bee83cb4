"""Nothing but some words."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext
from ringlet.plugins.samplers.words import TEXTS, all_sequences, check_ids, parsed_words

END = -1  # in a place of the trie: a word is complete here
Trie = dict[int, "Trie"]  # token → the place that it leads to


class AllowedWords:
    """The completion is made of the given words alone, one after the other; at the end of one it may end.

    De Cao et al. 2021, Autoregressive Entity Retrieval, section 3.2: the words' tokens make a trie, and only what
    continues the text in it stays. A word comes as the tokenizer writes it, at the beginning, after a blank or inside
    a word. Where the completion is no row of words (a sampler before this one left none), a new word begins.
    """

    name = "allowed_words"
    takes_candidates = True

    def __init__(
        self,
        words: Annotated[str | None, TEXTS] = None,
        ids: Annotated[str | None, Parameter('words as sequences of token ids, such as "12 345|7"')] = None,
    ) -> None:
        self._words, self._ids = parsed_words(self.name, words, ids)
        self._root: Trie | None = None

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        if self._root is None:
            self._root = self._trie(context)
        places = self._places(self._root, context.completion_ids.tolist())
        allowed = {token_id for place in places for token_id in place if token_id != END}
        if any(place is self._root for place in places) and context.step:
            allowed.update(context.end_ids.tolist())
        return candidates.only(np.array(sorted(allowed), np.intp))

    def _trie(self, context: SamplerContext) -> Trie:
        root: Trie = {}
        for ids in all_sequences(self._words, self._ids, context):
            check_ids(ids, context.d_vocab)
            place = root
            for token_id in ids:
                place = place.setdefault(token_id, {})
            place[END] = {}
        return root

    def _places(self, root: Trie, completion: list[int]) -> list[Trie]:
        """Where in the trie the text may stand: several places where a word begins another, the root between words."""
        places = [root]
        for token_id in completion:
            places = [place[token_id] for place in places if token_id in place] or [root]
            if any(END in place for place in places):
                places.append(root)
        return places


@hookimpl
def register_samplers(register: Register) -> None:
    register(AllowedWords)
