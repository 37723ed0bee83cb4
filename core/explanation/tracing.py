"""Makes a trace: the numpy backend computes, and every array that it tells of is kept."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.explanation.ring_state import layer_ring
from ringlet.core.explanation.trace import BestTokens, LayerRing, LayerTrace, StepTrace, Trace
from ringlet.core.generation.options import GenerationOptions
from ringlet.core.largest import kth_largest
from ringlet.core.measurement.inspection import describe_weights
from ringlet.core.observers import Observable, read_only
from ringlet.core.ring_cache import LayerLayout, RingLayout
from ringlet.core.sampling import SamplerChain
from ringlet.core.step import run_step

if TYPE_CHECKING:
    from ringlet.core.pipeline import Pipeline

LARGEST_TRACE = 4 << 30  # bytes of arrays


class Recorder:
    """An observer that keeps everything: arrays by name, of each layer and outside them (None)."""

    def __init__(self) -> None:
        self.arrays: dict[int | None, dict[str, np.ndarray]] = {}

    def __call__(self, layer: int | None, **arrays: np.ndarray) -> None:
        self.arrays.setdefault(layer, {}).update({name: read_only(array) for name, array in arrays.items()})


def trace(pipe: Pipeline, prompt_ids: list[int], options: GenerationOptions, top: int) -> Trace:
    """The trace of a prompt and of `options.max_tokens` drawn tokens, fewer after an end token or in a full ring.

    pipe: whose model, ring options and observers. prompt_ids: checked before. top: how many of the likeliest tokens to
    keep. Raises RingletError where the trace would take more than LARGEST_TRACE bytes.
    """
    config, tokenizer = pipe.model.config, pipe.tokenizer
    check_size(config, len(prompt_ids), options.max_tokens)
    tracer = Tracer(pipe.observable_backend, trace_layout(config, pipe.layout, len(prompt_ids)), top)
    chain = SamplerChain(options.sampler, options.seed_sequence(0), tokenizer, model=config)
    ids, steps = list(prompt_ids), []
    for part in tracer.parts(prompt_ids):
        steps.append(tracer.step(part, pipe.removed_ids, chain, ids))
    for _ in range(options.max_tokens):
        drawn = steps[-1].next_id
        if (drawn in tokenizer.eos_ids and not options.ignore_eos) or not tracer.ring.room:
            break
        ids.append(drawn)
        steps.append(tracer.step([drawn], pipe.removed_ids, chain, ids))
    named = {*ids, *(int(i) for step in steps for i in (*step.best.ids.flat, *step.lens.ids.flat, step.next_id))}
    texts = {i: tokenizer.piece(i) if tokenizer.has_token(i) else "" for i in sorted(named)}
    weights = {name: tuple(found["shape"]) for name, found in describe_weights(pipe.model.weights).items()}
    return Trace(
        model=pipe.model.name,
        config=config,
        weights=weights,
        token_ids=ids,
        text=tokenizer.decode(ids),
        pieces=[texts[i] for i in ids],
        texts=texts,
        prompt_length=len(prompt_ids),
        steps=tuple(steps),
    )


def trace_layout(config: ModelConfig, wished: RingLayout, n_prompt: int) -> RingLayout:
    """A ring as wished, for one token a step, so that it has no more slots than a query sees.

    Its first step may be longer: as many tokens as every layer's empty ring takes without writing over any.
    """
    layout = RingLayout.of(config, wished.context, wished.sinks, wished.overflow, chunk=1)
    return replace(layout, chunk=min(n_prompt, *(layer.capacity for layer in layout.layers)))


class Tracer:
    """Runs steps over one ring and keeps what they compute."""

    def __init__(self, backend: Backend, layout: RingLayout, top: int) -> None:
        assert isinstance(backend, Observable)
        self._watching, self._recorder = backend.observe, Recorder()
        self._backend = copy(backend)  # so that nobody else's steps are recorded
        self._backend.observe = self._observe
        self._top = min(top, backend.config.d_vocab)
        self.ring = backend.new_ring(layout, "f32")

    def _observe(self, layer: int | None, **arrays: np.ndarray) -> None:
        self._recorder(layer, **arrays)
        self._watching(layer, **arrays)

    def parts(self, prompt_ids: list[int]) -> Iterator[list[int]]:
        """A prompt in steps: as much as the ring takes at once, then token by token."""
        first = self.ring.layout.chunk
        yield prompt_ids[:first]
        yield from ([token_id] for token_id in prompt_ids[first:])

    def step(self, ids: list[int], removed_ids: np.ndarray, chain: SamplerChain, so_far: list[int]) -> StepTrace:
        """Compute the ids, draw the next one given all `so_far`, and tell what was seen."""
        before = self.ring.length
        self._recorder = Recorder()
        logits = run_step(self._backend, [(self.ring, ids, "all")])
        arrays = self._recorder.arrays
        layers = tuple(layer_trace(arrays[index], self._ring(index, before)) for index in range(len(arrays) - 1))
        drawable = logits[-1].copy()
        drawable[removed_ids] = -np.inf
        return StepTrace(
            token_ids=arrays[None]["token_ids"],
            positions=arrays[None]["positions"],
            layers=layers,
            final_normed=arrays[None]["final_normed"],
            logits=read_only(logits),
            best=best_tokens(logits, self._top),
            lens=self._lens(layers),
            next_id=chain.sample(drawable, np.array(so_far, np.int32)),
        )

    def _ring(self, index: int, before: int) -> LayerRing:
        layout = self.ring.layout.layers[index]
        slides = self.ring.layout.overflow == "slide" or layout.capacity < self.ring.layout.context
        nbytes = layer_bytes(self._backend.config, layout)
        return layer_ring(layout, before, self.ring.length, slides, nbytes)

    def _lens(self, layers: tuple[LayerTrace, ...]) -> BestTokens:
        """The logit lens (nostalgebraist 2020): the residual stream between layers, normed and mapped to d_vocab."""
        streams = [layers[0].x, *(layer.x_out for layer in layers)]
        found = [best_tokens(self._backend.logit_lens(x), self._top) for x in streams]
        return BestTokens(np.stack([best.ids for best in found]), np.stack([best.probabilities for best in found]))


def layer_trace(arrays: dict[str, Any], ring: LayerRing) -> LayerTrace:
    """An architecture without QK-norm tells of no such arrays."""
    return LayerTrace(**{"Q_normed": None, "K_normed": None, **arrays}, ring=ring)


def best_tokens(logits: np.ndarray, top: int) -> BestTokens:
    """The likeliest of logits (n, d_vocab) and their share of the softmax of all; of equal ones the lowest id first."""
    ids = np.stack([ids_of_largest(row, top) for row in logits])
    largest = logits.max(axis=-1, keepdims=True)
    total = np.exp(logits - largest).sum(axis=-1, keepdims=True, dtype=np.float64)
    shares = np.exp(np.take_along_axis(logits, ids, axis=-1) - largest) / total
    return BestTokens(ids, shares.astype(np.float32))


def ids_of_largest(row: np.ndarray, top: int) -> np.ndarray:
    """Where the largest of the numbers stand, the largest first, int64 (top,)."""
    ids = np.flatnonzero(row >= kth_largest(row, top))
    return ids[np.argsort(-row[ids], kind="stable")][:top]


def layer_bytes(config: ModelConfig, layout: LayerLayout) -> int:
    """Memory of one layer's keys and values in float32."""
    return config.n_kv_heads * layout.slots * (config.d_k + config.d_v) * 4


def check_size(config: ModelConfig, n_prompt: int, n_drawn: int) -> None:
    """Raises RingletError where the arrays of a trace would not fit; S and α of a prompt grow as its square."""
    n = n_prompt + n_drawn
    per_token = 10 * config.d_model + config.d_ff + 5 * config.n_heads * (config.d_k + config.d_v)
    scores = 4 * config.n_heads * (n_prompt * n_prompt + n_drawn * n)
    nbytes = 4 * (config.n_layers * (n * per_token + scores) + 3 * n * config.d_vocab)
    if nbytes > LARGEST_TRACE:
        raise RingletError(
            f"a trace of {n} tokens would take {nbytes / 2**30:.1f} GiB of memory: give a shorter prompt or draw less"
        )
