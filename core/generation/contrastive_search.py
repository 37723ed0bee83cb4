"""Contrastive search: a likely token whose hidden state resembles none before it (Su et al. 2022, A Contrastive
Framework for Neural Text Generation, eq. 5).

Of the k likeliest tokens v it takes the one with the largest

    (1 − α)·p(v | x) − α·max over all tokens x_j so far of cos(h_v, h_{x_j})

where h are the hidden states after the model's final norm. Each candidate is tried in a ring of its own, all in one
step, so that the logits after the chosen one are known with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ringlet.core.completion import Chunk, TokenLogprobs
from ringlet.core.errors import RingletError
from ringlet.core.generation.logprobs import LogprobsOf, likeliest, log_normaliser
from ringlet.core.generation.strategy import Branch, Computed, Decoding, Group, Strategy, Tools, check_searcher
from ringlet.core.generation.transcript import Transcript
from ringlet.core.likeliest import Logits
from ringlet.core.parameters import Parameter
from ringlet.core.token_list import TokenList

if TYPE_CHECKING:
    from ringlet.core.generation.options import GenerationOptions
    from ringlet.core.generation.request import Request

MOST_CANDIDATES = 256


class ContrastiveSearch(Strategy):
    """Takes likely tokens that do not repeat what is there."""

    name = "contrastive_search"
    needs_hidden = True

    def __init__(
        self,
        top_k: Annotated[int, Parameter("tokens that are tried at each place", minimum=1, maximum=MOST_CANDIDATES)] = 4,
        penalty_alpha: Annotated[
            float, Parameter("weight of the likeness to tokens before; 0: greedy", minimum=0, maximum=1)
        ] = 0.6,
    ) -> None:
        self.top_k, self.penalty_alpha = top_k, penalty_alpha

    def check(self, options: GenerationOptions) -> None:
        check_searcher(self, options)
        if options.n > 1:
            raise RingletError(f"n is {options.n}: contrastive_search gives one completion of a prompt")

    def groups(self, request: Request, index: int) -> Iterator[Group]:
        yield Group(request, range(1), index, self.top_k)

    def begin(self, group: Group, branch: Branch, tools: Tools) -> Decoding:
        return ContrastiveDecoding(self, group, branch, tools)


class Directions:
    """Hidden states of the tokens so far, as unit vectors; of the latest `capacity` ones."""

    def __init__(self, capacity: int, d_model: int) -> None:
        self._rows, self._n = np.zeros((capacity, d_model), np.float32), 0

    def add(self, hidden: np.ndarray) -> None:
        """hidden: float32 (n, d_model)."""
        places = np.arange(self._n, self._n + len(hidden)) % len(self._rows)
        self._rows[places] = unit(hidden)
        self._n += len(hidden)

    def likeness(self, hidden: np.ndarray) -> np.ndarray:
        """The largest cosine of each hidden state (k, d_model) with one of those kept, float32 (k,)."""
        return (unit(hidden) @ self._rows[: self._n].T).max(axis=1)


def unit(vectors: np.ndarray) -> np.ndarray:
    """(n, d) with rows of length 1; a row of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A token that is tried. p: its probability."""

    token_id: int
    p: float
    branch: Branch
    logprobs: TokenLogprobs | None


class ContrastiveDecoding(Decoding):
    """One search."""

    def __init__(self, search: ContrastiveSearch, group: Group, branch: Branch, tools: Tools) -> None:
        self._search, self._group, self._tools = search, group, tools
        request, layout = group.request, branch.ring.layout
        self._options, self._limit = request.options, request.most_tokens(layout)
        self._prompt, self._candidates = branch, list[Candidate]()
        self._spare: list[Branch] = []  # their rings hold a beginning of the text
        self._directions = Directions(layout.context, tools.config.d_model)
        self._tokens = TokenList(request.prompt_ids)
        self._chain = tools.new_chain(request.options, 0)
        self._transcript = Transcript(request, tools.tokenizer, perf_counter())

    @property
    def branches(self) -> list[Branch]:
        if self._transcript.finish_reason is not None:
            return []
        return [candidate.branch for candidate in self._candidates] or [self._prompt]

    @property
    def n_rings(self) -> int:
        return 0 if self._transcript.finish_reason is not None else self._search.top_k

    def advance(self, computed: Sequence[Computed]) -> Iterator[tuple[int, Chunk]]:
        if self._candidates:
            yield self._group.index, self._choose(computed)
            return
        for part in computed:
            self._directions.add(hidden_of(part))
            if part.logits is not None:
                self._transcript.prompt_is_done()
                self._try_after(self._prompt, part.logits)

    def _choose(self, computed: Sequence[Computed]) -> Chunk:
        """Take one of the candidates, whose hidden states are known now."""
        hidden = np.concatenate([hidden_of(part) for part in computed])
        alpha = self._search.penalty_alpha
        p = np.array([candidate.p for candidate in self._candidates])
        place = int(((1 - alpha) * p - alpha * self._directions.likeness(hidden)).argmax())
        chosen = self._candidates[place]
        self._tokens.append(chosen.token_id)
        self._directions.add(hidden[place : place + 1])
        is_limit = self._tokens.n_drawn >= self._limit
        chunk = self._transcript.push(chosen.token_id, chosen.logprobs, is_limit)
        self._spare += [candidate.branch for candidate in self._candidates if candidate is not chosen]
        if chunk.finish_reason is None:
            logits = computed[place].logits
            assert logits is not None  # of each candidate's one token they are wanted
            self._try_after(chosen.branch, logits)
        else:
            for branch in (*self._spare, chosen.branch):
                self._tools.rings.give_back(branch.ring)
        return chunk

    def _try_after(self, branch: Branch, raw: Logits) -> None:
        """Make the likeliest tokens after a branch the candidates, the first of them in its own ring."""
        logits = self._chain.process(self._tools.drawable(raw), self._tokens.ids)
        listed = None
        if self._options.listed is not None:
            listed = LogprobsOf(raw.all, self._options.listed, self._tools.tokenizer)
        normaliser = log_normaliser(logits)
        candidates = []
        for place, token_id in enumerate(likeliest(logits, self._search.top_k).tolist()):
            own = branch if place == 0 else self._copy(branch)
            own.pending = [token_id]
            p = float(np.exp(logits[token_id] - normaliser))
            candidates.append(Candidate(token_id, p, own, None if listed is None else listed.of(token_id)))
        self._candidates = candidates

    def _copy(self, branch: Branch) -> Branch:
        """A branch with a ring that holds the same."""
        if not self._spare:
            return Branch(self._tools.rings.copy_of(branch.ring), [])
        spare = self._spare.pop()
        shared = min(spare.ring.length, len(self._tokens.ids)) - 1
        self._tools.rings.overwrite(spare.ring, branch.ring, shared)
        return spare


def hidden_of(part: Computed) -> np.ndarray:
    """The hidden states of a step's tokens; `needs_hidden` says that they are there."""
    assert part.hidden is not None
    return part.hidden
