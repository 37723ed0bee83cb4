"""Beam search: the likeliest texts among those that a few parallel ones lead to, as transformers does it.

A text's score is the sum of its tokens' log-probabilities, divided by (number of its tokens)^length_penalty when it is
finished (Wu et al. 2016, Google's Neural Machine Translation System, section 7, with a plain power in place of their
length penalty). Each step extends every beam by every token; of all these the best that do not end are the next beams,
and those among the first `beams` that do end are kept as finished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from ringlet.core.completion import Chunk
from ringlet.core.errors import RingletError
from ringlet.core.generation.logprobs import LogprobsOf, likeliest, log_normaliser
from ringlet.core.generation.strategy import Branch, Computed, Decoding, Group, Strategy, Tools, check_searcher
from ringlet.core.generation.text_tree import Node, common_ancestor
from ringlet.core.generation.transcript import Transcript, nothing_yet
from ringlet.core.likeliest import Logits
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerChain, check_logits
from ringlet.core.token_list import TokenList

if TYPE_CHECKING:
    from ringlet.core.generation.options import GenerationOptions
    from ringlet.core.generation.request import Request

MOST_BEAMS = 256


class BeamSearch(Strategy):
    """Follows the likeliest beginnings at once, and gives the n best texts they come to."""

    name = "beam_search"

    def __init__(
        self,
        beams: Annotated[int, Parameter("texts that are followed at once", minimum=1, maximum=MOST_BEAMS)] = 4,
        length_penalty: Annotated[
            float, Parameter("above 0 long texts gain, below 0 short ones", minimum=-10, maximum=10)
        ] = 1.0,
        early_stopping: Annotated[
            Literal["false", "true", "never"],
            Parameter("true: end with enough finished texts; never: go on while a better one can come"),
        ] = "false",
    ) -> None:
        self.beams, self.length_penalty, self.early_stopping = beams, length_penalty, early_stopping

    def check(self, options: GenerationOptions) -> None:
        check_searcher(self, options)
        if options.n > self.beams:
            raise RingletError(f"n is {options.n} and beam_search follows {self.beams} texts: n may be that at most")

    def groups(self, request: Request, index: int) -> Iterator[Group]:
        yield Group(request, range(request.options.n), index, self.beams)

    def begin(self, group: Group, branch: Branch, tools: Tools) -> Decoding:
        return BeamDecoding(self, group, branch, tools)


@dataclass(frozen=True, eq=False)
class Beam:
    """A text that goes on. score: the sum of its tokens' log-probabilities. chain: None where no sampler is asked."""

    node: Node
    score: float
    branch: Branch
    tokens: TokenList
    chain: SamplerChain | None


@dataclass(frozen=True, eq=False)
class Extension:
    """A beam and one more token, whose node it is."""

    beam: Beam
    node: Node
    score: float

    @classmethod
    def of(cls, beam: Beam, token_id: int, score: float, listed: dict[Beam, LogprobsOf]) -> Extension:
        """listed: what is to be told of the beams' next tokens, if anything."""
        logprobs = listed[beam].of(token_id) if listed else None
        return cls(beam, Node(beam.node, token_id, beam.node.depth + 1, logprobs), score)


@dataclass(frozen=True)
class Finished:
    """A text that has ended. score: with the length penalty."""

    node: Node
    score: float


class BeamDecoding(Decoding):
    """One search."""

    def __init__(self, search: BeamSearch, group: Group, branch: Branch, tools: Tools) -> None:
        self._search, self._group, self._tools = search, group, tools
        self._options, self._began = group.request.options, perf_counter()
        self._prompt, self._beams = branch, list[Beam]()
        self._finished: list[Finished] = []  # the best first, no more than beams
        self._limit = group.request.most_tokens(branch.ring.layout)
        self._eos_ids = frozenset() if self._options.ignore_eos else tools.tokenizer.eos_ids
        self._transcripts = [self._transcript() for _ in group.completions]
        self._root = self._told = Node(None, -1, 0)  # told: up to there the one text that is wanted has been given out
        self._is_done = False

    @property
    def branches(self) -> list[Branch]:
        if self._is_done:
            return []
        return [beam.branch for beam in self._beams] or [self._prompt]

    @property
    def n_rings(self) -> int:
        return 0 if self._is_done else self._search.beams

    def advance(self, computed: Sequence[Computed]) -> Iterator[tuple[int, Chunk]]:
        rows = {part.branch: part.logits for part in computed if part.logits is not None}
        if not rows:
            return
        if not self._beams:
            self._begin()
        extensions = self._best_extensions(rows)
        ends = [self._ends(extension.node) for extension in extensions]
        n = self._search.beams
        self._finish([extension for extension, is_end in zip(extensions[:n], ends[:n], strict=True) if is_end])
        going_on = [extension for extension, is_end in zip(extensions, ends, strict=True) if not is_end][:n]
        self._is_done = not going_on or not self._may_improve(going_on[0])
        self._follow([] if self._is_done else going_on)
        yield from self._results() if self._is_done else self._certain()

    def _begin(self) -> None:
        chain = self._tools.new_chain(self._options, 0) if self._options.sampler else None
        self._beams = [Beam(self._root, 0.0, self._prompt, TokenList(self._group.request.prompt_ids), chain)]
        for transcript in self._transcripts:
            transcript.prompt_is_done()

    def _best_extensions(self, rows: dict[Branch, Logits]) -> list[Extension]:
        """The best first, so many that `beams` of them do not end with an end token."""
        count = max(2, 1 + len(self._eos_ids)) * self._search.beams
        beams, ids, scores = list[Beam](), list[int](), list[np.ndarray]()
        for beam in self._beams:
            logits = self._logits_of(beam, rows[beam.branch])
            likely = likeliest(logits, count)
            beams += [beam] * len(likely)
            ids += likely.tolist()
            scores.append(beam.score + logits[likely].astype(np.float64) - log_normaliser(logits))
        all_scores = np.concatenate(scores)
        best = np.argsort(-all_scores, kind="stable")[:count]
        listed = self._listed({beams[at] for at in best}, rows)
        return [Extension.of(beams[at], ids[at], float(all_scores[at]), listed) for at in best]

    def _logits_of(self, beam: Beam, raw: Logits) -> np.ndarray:
        """float32 (d_vocab,), whose softmax the next token comes from: what a chain leaves of the log-softmax."""
        logits = self._tools.drawable(raw).all
        check_logits(logits)
        if beam.chain is None:
            return logits
        return beam.chain.process(logits - np.float32(log_normaliser(logits)), beam.tokens.ids)

    def _listed(self, beams: set[Beam], rows: dict[Branch, Logits]) -> dict[Beam, LogprobsOf]:
        """What the rows of these beams say, where that is asked for."""
        count = self._options.listed
        if count is None:
            return {}
        return {beam: LogprobsOf(rows[beam.branch].all, count, self._tools.tokenizer) for beam in beams}

    def _ends(self, node: Node) -> bool:
        """Whether the text ends with this token."""
        return node.token_id in self._eos_ids or node.depth >= self._limit or self._holds_stop(node)

    def _holds_stop(self, node: Node) -> bool:
        """Whether a stop string has come."""
        if not self._options.stop:
            return False
        transcript = self._transcript()
        for each in node.since(self._root):
            transcript.push(each.token_id, None, is_limit=False)
        return transcript.finish_reason is not None

    def _finish(self, extensions: list[Extension]) -> None:
        """Keep these texts, or the best of all that are finished."""
        if self._search.early_stopping == "true" and self._is_full:
            return
        found = [Finished(each.node, self._penalised(each.score, each.node.depth)) for each in extensions]
        self._finished = sorted(self._finished + found, key=lambda text: -text.score)[: self._search.beams]

    @property
    def _is_full(self) -> bool:
        return len(self._finished) == self._search.beams

    def _penalised(self, score: float, n_tokens: int) -> float:
        return score / n_tokens**self._search.length_penalty

    def _may_improve(self, best: Extension) -> bool:
        """Whether a text that goes on may come to be among the best. best: of those that go on.

        Sure with early_stopping "never"; else a guess where the length penalty is above 0, as then a longer text may
        have a better score than its beginning has now.
        """
        if not self._is_full:
            return True
        if self._search.early_stopping == "true":
            return False
        n_tokens = best.node.depth
        if self._search.early_stopping == "never" and self._search.length_penalty > 0:
            n_tokens = self._limit
        return self._penalised(best.score, n_tokens) > self._finished[-1].score

    def _follow(self, extensions: list[Extension]) -> None:
        """Let these be the beams. The last one of a beam goes on in its ring, the others in copies of it."""
        left = Counter(extension.beam for extension in extensions)
        spare = [beam for beam in self._beams if not left[beam]]
        beams = []
        for extension in extensions:
            beam, token_id = extension.beam, extension.node.token_id
            left[beam] -= 1
            if left[beam]:
                branch, tokens, chain = self._fork(beam, spare)
            else:
                branch, tokens, chain = beam.branch, beam.tokens, beam.chain
            tokens.append(token_id)
            branch.pending = [token_id]
            beams.append(Beam(extension.node, extension.score, branch, tokens, chain))
        for beam in spare:
            self._tools.rings.give_back(beam.branch.ring)
        self._beams = beams

    def _fork(self, beam: Beam, spare: list[Beam]) -> tuple[Branch, TokenList, SamplerChain | None]:
        """Copies of what a beam goes on with, in the ring of a spare one if there is any."""
        if spare:
            ring = spare[-1].branch.ring
            shared = beam.tokens.n_prompt + common_ancestor([beam.node, spare.pop().node]).depth
            self._tools.rings.overwrite(ring, beam.branch.ring, shared)
        else:
            ring = self._tools.rings.copy_of(beam.branch.ring)
        return Branch(ring, []), beam.tokens.fork(), None if beam.chain is None else beam.chain.fork()

    def _certain(self) -> Iterator[tuple[int, Chunk]]:
        """What the one text that is wanted begins with, whichever it will be."""
        if len(self._transcripts) > 1:
            return
        may_be_it = [beam.node for beam in self._beams] + [text.node for text in self._finished[:1]]
        certain = common_ancestor(may_be_it)
        if certain is self._told:
            yield self._index(0), nothing_yet(self._group.request)
        for node in certain.since(self._told):
            yield self._index(0), self._transcripts[0].push(node.token_id, node.logprobs, is_limit=False)
        self._told = certain

    def _results(self) -> Iterator[tuple[int, Chunk]]:
        """The best texts, as many as are wanted and there are."""
        for place, (text, transcript) in enumerate(zip(self._finished, self._transcripts, strict=False)):
            for node in text.node.since(self._told):
                is_limit = node is text.node and node.depth >= self._limit
                yield self._index(place), transcript.push(node.token_id, node.logprobs, is_limit)

    def _index(self, place: int) -> int:
        return self._group.index + self._group.completions[place]

    def _transcript(self) -> Transcript:
        return Transcript(self._group.request, self._tools.tokenizer, self._began)
