"""The usual strategy: each completion draws from what its chain of samplers leaves, independent of the others."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from time import perf_counter
from typing import TYPE_CHECKING

from ringlet.core.completion import Chunk
from ringlet.core.defaults import DEFAULT_SAMPLER
from ringlet.core.errors import RingletError
from ringlet.core.generation.logprobs import LogprobsOf
from ringlet.core.generation.strategy import LARGEST_CROWD, Branch, Computed, Decoding, Group, Strategy, Tools
from ringlet.core.generation.transcript import Transcript
from ringlet.core.likeliest import Logits
from ringlet.core.token_list import TokenList

if TYPE_CHECKING:
    from ringlet.core.generation.options import GenerationOptions
    from ringlet.core.generation.request import Request


class Sample(Strategy):
    """Draws one token after the other."""

    name = "sample"
    usual_sampler = DEFAULT_SAMPLER

    def check(self, options: GenerationOptions) -> None:
        if options.best_of is not None and options.best_of < options.n:
            raise RingletError(f"best_of is {options.best_of} and n is {options.n}: best_of must be n at least")

    def groups(self, request: Request, index: int) -> Iterator[Group]:
        """The prompt is computed once for each group; none needs more rings than may be in use."""
        n = request.options.n_drafts
        for start in range(0, n, LARGEST_CROWD):
            completions = range(start, min(start + LARGEST_CROWD, n))
            yield Group(request, completions, index, len(completions))

    def begin(self, group: Group, branch: Branch, tools: Tools) -> Decoding:
        return SampleDecoding(group, branch, tools)


class SampleDecoding(Decoding):
    """The prompt is computed for the first completion, the others copy its ring."""

    def __init__(self, group: Group, branch: Branch, tools: Tools) -> None:
        self._group, self._tools, self._began = group, tools, perf_counter()
        self._n_waiting = len(group.completions) - 1  # for the prompt, those beside the first
        self._sequences = [self._sequence(group.completions[0], branch)]

    @property
    def branches(self) -> list[Branch]:
        return [sequence.branch for sequence in self._sequences]

    @property
    def n_rings(self) -> int:
        return len(self._sequences) + self._n_waiting

    def advance(self, computed: SequenceOf[Computed]) -> Iterator[tuple[int, Chunk]]:
        by_branch = {part.branch: part.logits for part in computed}
        first, raw = self._sequences[0], by_branch.get(self._sequences[0].branch)
        if not first.n_drawn and raw is not None:
            self._prompt_is_done(first.branch)
            by_branch |= {sequence.branch: raw for sequence in self._sequences}
        for sequence in list(self._sequences):
            raw = by_branch.get(sequence.branch)
            if raw is None:
                continue
            chunk = sequence.draw(raw, self._tools.drawable(raw))
            if chunk.finish_reason is not None:
                self._sequences.remove(sequence)
                self._tools.rings.give_back(sequence.branch.ring)
            yield sequence.index, chunk

    def _prompt_is_done(self, branch: Branch) -> None:
        for completion in self._group.completions[1:]:
            copy = Branch(self._tools.rings.copy_of(branch.ring), [])
            self._sequences.append(self._sequence(completion, copy))
        self._n_waiting = 0
        for sequence in self._sequences:
            sequence.transcript.prompt_is_done()

    def _sequence(self, completion: int, branch: Branch) -> Sequence:
        return Sequence(self._group, completion, branch, self._tools, self._began)


class Sequence:
    """One completion in the making. index: its place among all of a generation."""

    def __init__(self, group: Group, completion: int, branch: Branch, tools: Tools, began: float) -> None:
        request = group.request
        self.branch, self.index = branch, group.index + completion
        self.transcript = Transcript(request, tools.tokenizer, began)
        self._chain = tools.new_chain(request.options, completion)
        self._tokens = TokenList(request.prompt_ids)
        self._limit = request.most_tokens(branch.ring.layout)
        self._tokens.make_room(self._limit)
        branch.ring.make_room(self._limit)
        self._n_logprobs, self._tokenizer = request.options.listed, tools.tokenizer

    @property
    def n_drawn(self) -> int:
        return self._tokens.n_drawn

    def draw(self, raw: Logits, drawable: Logits) -> Chunk:
        """Draw the next token, and say what it brings.

        raw: the model's logits. drawable: the same without ids that are never drawn.
        """
        token_id = self._chain.sample(drawable, self._tokens.ids)
        logprobs = None
        if self._n_logprobs is not None:
            logprobs = LogprobsOf(raw.all, self._n_logprobs, self._tokenizer).of(token_id)
        self._tokens.append(token_id)
        self.branch.pending = [token_id]
        return self.transcript.push(token_id, logprobs, is_limit=self.n_drawn >= self._limit)
