"""Best of n: of the completions of a prompt, those that the model finds likeliest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringlet.core.completion import Chunk, Completion
from ringlet.core.generation.options import GenerationOptions


def best_completions(drafts: Sequence[list[Chunk]], options: GenerationOptions) -> list[Completion]:
    """The completions of one prompt: all, or the n of the largest mean log-probability, the best first.

    drafts: the chunks of each, none where a search has found no such text.
    """
    completions = [Completion.of_chunks(chunks) for chunks in drafts if chunks]
    if options.best_of is None:
        return completions
    best = sorted(completions, key=mean_logprob, reverse=True)[: options.n]
    return best if options.logprobs is not None else [replace(completion, logprobs=None) for completion in best]


def mean_logprob(completion: Completion) -> float:
    """Of its tokens, an end token included, under the model's own distribution; 0 where there are none."""
    logprobs = [one.logprob for one in completion.logprobs or ()]
    return sum(logprobs) / len(logprobs) if logprobs else 0.0
