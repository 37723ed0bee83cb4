"""Requests to chunks: the loop over a pipeline's backend, begun where the pipeline's last ring has left off."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

from ringlet.core.completion import Chunk, Completion
from ringlet.core.errors import RingletError
from ringlet.core.generation.best_of import best_completions
from ringlet.core.generation.loop import Generation
from ringlet.core.generation.options import GenerationOptions
from ringlet.core.generation.request import Request

if TYPE_CHECKING:
    from ringlet.core.pipeline import Pipeline


def completions_of(pipe: Pipeline, requests: list[Request], options: GenerationOptions) -> list[Completion]:
    """Those of all requests, which have the same options; those of the first prompt first."""
    chunks: list[list[list[Chunk]]] = [[[] for _ in range(options.n_drafts)] for _ in requests]
    for index, chunk in run(pipe, requests):
        place, draft = divmod(index, options.n_drafts)
        chunks[place][draft].append(chunk)
    return [completion for drafts in chunks for completion in best_completions(drafts, options)]


def chunks_of(pipe: Pipeline, request: Request) -> Generator[Chunk, None, None]:
    """Of one request's one completion. Closing it cancels."""
    with closing(run(pipe, [request])) as running:
        for _, chunk in running:
            yield chunk


def run(pipe: Pipeline, requests: list[Request]) -> Generator[tuple[int, Chunk], None, None]:
    """All requests together; a lone one may begin with what the last one left in its ring.

    A strategy that needs hidden states computes the prompt anew, for a ring does not hold them.
    """
    pipe.check_files()
    alone = len(requests) == 1 and not requests[0].options.strategy.needs_hidden
    first = pipe.idle_ring.take(requests[0].prompt_ids) if alone else None
    generation = Generation(pipe.backend, pipe.tokenizer, pipe.layout, pipe.kv_dtype, requests, pipe.removed_ids, first)

    def keep() -> None:
        if first is not None:
            pipe.idle_ring.give_back(first, requests[0].prompt_ids)

    try:
        yield from generation.run()
    except (GeneratorExit, KeyboardInterrupt, RingletError):  # a step that fails leaves the ring as it was before
        keep()
        raise
    keep()
