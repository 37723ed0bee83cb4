"""Text in, text out: a model, a backend and a tokenizer behind three methods: `logits`, `generate` and `stream`."""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ringlet.core.backend import Backend
from ringlet.core.backend_calls import new_ring, ring_bytes
from ringlet.core.backend_choice import backend_candidates, make_backend, tell_choice
from ringlet.core.checks import check_count, check_ring_options, is_list_of_prompts, one_or_more
from ringlet.core.completion import Chunk, Completion
from ringlet.core.config import ModelConfig
from ringlet.core.defaults import MAX_TOKENS, SAMPLE
from ringlet.core.errors import RingletError, one_line
from ringlet.core.formats.file_bytes import MappedFile, mapped_file_of
from ringlet.core.generation.idle_ring import IdleRing
from ringlet.core.generation.options import GenerationOptions
from ringlet.core.generation.request import Request
from ringlet.core.generation.run import chunks_of, completions_of
from ringlet.core.observers import Observable, let_plugins_watch
from ringlet.core.plugin_manager import PluginManager, load_plugins
from ringlet.core.prompts import Prompt, PromptReader, Prompts
from ringlet.core.quantizing.plan import checked_format
from ringlet.core.ring_cache import RingCache, RingLayout
from ringlet.core.sampler_objects import SamplerSpec
from ringlet.core.step import run_step

if TYPE_CHECKING:
    from ringlet.core.explanation.trace import Trace
    from ringlet.core.model import Model
    from ringlet.core.session import Session

USUAL_CONTEXT = 4096
USUAL_CHUNK = 256
REFERENCE = "numpy"  # the backend that can be watched

Messages = Sequence[Mapping[str, Any]]


class Pipeline:
    """A loaded model that completes texts. Several threads may use one at once.

    model: its config, weights and tokenizer. layout, kv_dtype: of the rings. load_seconds: how long loading took.
    """

    def __init__(
        self,
        model: Model,
        backend: Backend,
        layout: RingLayout,
        kv_dtype: str,
        plugins: PluginManager,
        load_seconds: float = 0.0,
    ) -> None:
        self.model, self.backend, self.layout, self.kv_dtype = model, backend, layout, kv_dtype
        self.plugins, self.load_seconds = plugins, load_seconds
        self.tokenizer = model.tokenizer
        self._reader = PromptReader(self.tokenizer, model.config, layout)
        self.idle_ring = IdleRing(self.new_ring)
        let_plugins_watch(backend, plugins)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] | None = None,
        *,
        backend: str = "auto",
        context: int | None = None,
        sinks: int = 0,
        overflow: str = "stop",
        kv_dtype: str = "auto",
        quantize: str | None = None,
        threads: int | None = None,
        device: int | None = None,
        mmap: bool = True,
        plugins: Iterable[str | os.PathLike[str]] = (),
        ignore_config_keys: Collection[str] = (),
        chunk: int = USUAL_CHUNK,
    ) -> Pipeline:
        """Load a model.

        source: None for the embedded model, a GGUF file, a directory with config.json, or "org/name" or
            "org/name:file.gguf" of the Hub.
        backend: "auto", "cuda", "cpu", "numpy", or a plugin's.
        context: tokens of prompt and completion together at most; None: the smaller of 4096 and the model's own.
        sinks, overflow: with overflow "slide" a full ring overwrites its oldest token, the first `sinks` ones apart;
            with "stop" the generation ends.
        kv_dtype: what the rings hold, "f32", "f16" or, where the backend has them, "q8"; "auto": the backend's choice.
        quantize: "q8_0", "q4_0", "q4_1", "q4_k" or "q6_k": weights in F32, F16 and BF16 are quantised now, and kept in
            the user's cache folder for the next time; see `quantizing.plan` for which become what.
        threads: how many the backend uses; None: its choice.
        device: the number of the GPU; None: the first.
        plugins: files with samplers, backends and architectures.
        ignore_config_keys: configuration keys to treat as not there.
        chunk: tokens of a prompt that are computed at once.

        Raises RingletError, in one line, for whatever the user can mend; what does not depend on the model is checked
        before it is loaded.
        """
        began = perf_counter()
        wanted_format = None if quantize is None else checked_format(quantize)
        check_ring_options(context, sinks, overflow, chunk)
        loaded_plugins = load_plugins(one_or_more(plugins))
        if device is not None:
            check_count("device", device, 0)
        candidates = backend_candidates(backend, loaded_plugins, device)
        candidates[0].cls.ring_dtype(kv_dtype)  # these two fail now, not after a download
        if threads is not None:
            check_count("threads", threads, 1, candidates[0].cls.most_threads)
        from ringlet.core.model import load_model

        architectures = [registered.cls for registered in loaded_plugins.registry("architecture").values()]
        model = load_model(
            source,
            architectures,
            mmap=mmap,
            ignore_config_keys=ignore_config_keys,
            quantize=wanted_format,
            threads=threads,
        )
        layout = ring_layout(model.config, context, sinks, overflow, chunk)
        made = make_backend(candidates, loaded_plugins, model.config, model.weights, threads, device)
        if backend == "auto":
            tell_choice(made)
        return cls(model, made, layout, made.ring_dtype(kv_dtype), loaded_plugins, perf_counter() - began)

    def __repr__(self) -> str:
        ring = f"context {self.layout.context}, overflow {self.layout.overflow}, {self.kv_dtype} rings"
        return f"<Pipeline {one_line(self.model.name)}: {self.model.config.sizes}; {self.backend.name}, {ring}>"

    def __deepcopy__(self, memo: dict[int, object]) -> Pipeline:
        """The copies of a sampler that keeps one share it; their calls do not disturb each other."""
        return self

    @property
    def ring_bytes(self) -> int:
        """Memory that the ring of one sequence takes."""
        return ring_bytes(self.backend, self.layout, self.kv_dtype)

    def new_ring(self, layout: RingLayout | None = None) -> RingCache:
        """An empty ring for one sequence."""
        return new_ring(self.backend, layout or self.layout, self.kv_dtype)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Raw logits after each of the ids, float32 (len(ids), d_vocab), as the ring gives them."""
        prompt = self._reader.checked(ids)
        self.check_files()
        ring, chunk = self.new_ring(), self.layout.chunk
        parts = [prompt[at : at + chunk] for at in range(0, len(prompt), chunk)]
        return np.concatenate([run_step(self.backend, [(ring, part, "all")]) for part in parts])

    @overload
    def generate(
        self,
        prompt: Prompt,
        max_tokens: int = ...,
        sampler: SamplerSpec | None = ...,
        seed: int | None = ...,
        stop: str | Iterable[str] = ...,
        ignore_eos: bool = ...,
        n: Literal[1] = ...,
        *,
        logprobs: int | None = ...,
        strategy: str = ...,
        best_of: int | None = ...,
    ) -> Completion: ...
    @overload
    def generate(
        self,
        prompt: Prompts,
        max_tokens: int = ...,
        sampler: SamplerSpec | None = ...,
        seed: int | None = ...,
        stop: str | Iterable[str] = ...,
        ignore_eos: bool = ...,
        n: int = ...,
        *,
        logprobs: int | None = ...,
        strategy: str = ...,
        best_of: int | None = ...,
    ) -> list[Completion]: ...
    @overload
    def generate(
        self,
        prompt: Prompt | Prompts,
        max_tokens: int = ...,
        sampler: SamplerSpec | None = ...,
        seed: int | None = ...,
        stop: str | Iterable[str] = ...,
        ignore_eos: bool = ...,
        *,
        n: int,
        logprobs: int | None = ...,
        strategy: str = ...,
        best_of: int | None = ...,
    ) -> Completion | list[Completion]: ...
    def generate(
        self,
        prompt: Prompt | Prompts,
        max_tokens: int = MAX_TOKENS,
        sampler: SamplerSpec | None = None,
        seed: int | None = None,
        stop: str | Iterable[str] = (),
        ignore_eos: bool = False,
        n: int = 1,
        *,
        logprobs: int | None = None,
        strategy: str = SAMPLE,
        best_of: int | None = None,
    ) -> Completion | list[Completion]:
        """Complete a prompt: a text or token ids, or a list of either, which are then computed together.

        max_tokens: tokens to draw at most. sampler: a text such as "top_k=40,temperature=0.8", a sampler as an object,
        or a list of both, of which each sequence gets a copy (see `SamplerChain`); None: the strategy's usual one.
        seed: the same seed, prompt, backend and steps give the same tokens, in a list as alone. stop: texts before
        which the completion is cut. ignore_eos: go on after an end token. n: completions of each prompt; the first is
        the one that n=1 would give.
        logprobs: with each token its log-probability, and so many of the likeliest ones at its place.
        strategy: how tokens are chosen: "sample", "beam_search(beams=4,length_penalty=1.0)" or
            "contrastive_search(top_k=4,penalty_alpha=0.6)"; see docs/generation.md.
        best_of: draw so many completions of each prompt, and give the n of the largest mean log-probability.

        Returns a Completion; a list of them for a list of prompts or n > 1, those of the first prompt first. Beam
        search gives fewer than n where there are not so many texts.
        """
        several = is_list_of_prompts(prompt)
        prompts = list(prompt) if several else [prompt]
        options = GenerationOptions.checked(
            self.plugins,
            max_tokens,
            sampler,
            seed,
            stop,
            ignore_eos,
            n,
            logprobs=logprobs,
            strategy=strategy,
            best_of=best_of,
        )
        requests = [Request(ids, options) for ids in self._reader.ids_of_all(prompts, several)]
        completions = completions_of(self, requests, options)
        return completions if several or n > 1 else completions[0]

    def stream(
        self,
        prompt: Prompt,
        max_tokens: int = MAX_TOKENS,
        sampler: SamplerSpec | None = None,
        seed: int | None = None,
        stop: str | Iterable[str] = (),
        ignore_eos: bool = False,
        *,
        logprobs: int | None = None,
        strategy: str = SAMPLE,
    ) -> Generator[Chunk, None, None]:
        """Complete one prompt, a Chunk for each token as it is drawn. Closing the iterator cancels.

        The arguments are those of `generate`, and are checked at once. Beam search gives a token when all texts that
        it still follows have it, and an empty Chunk after a step without such a one.
        """
        if is_list_of_prompts(prompt):
            raise RingletError("stream takes one prompt: use generate for a list")
        options = GenerationOptions.checked(
            self.plugins, max_tokens, sampler, seed, stop, ignore_eos, logprobs=logprobs, strategy=strategy
        )
        return chunks_of(self, Request(self._reader.ids_of(prompt), options))

    def trace(
        self,
        prompt: Prompt,
        max_tokens: int = 0,
        sampler: SamplerSpec = "greedy",
        seed: int | None = None,
        top: int = 10,
    ) -> Trace:
        """Every quantity of a prompt's way through the model, by name, and of the tokens drawn after it.

        The numpy backend computes it in float32, whatever this pipeline uses, with a ring of the same context, sinks
        and overflow. The prompt is one step, each drawn token another.

        max_tokens: to draw and to trace at most. sampler, seed: how. top: how many of the likeliest tokens to keep
        wherever some are. Raises RingletError also where the arrays would take too much memory.
        """
        if is_list_of_prompts(prompt):
            raise RingletError("trace takes one prompt")
        check_count("top", top, minimum=1)
        options = GenerationOptions.checked(self.plugins, max_tokens, sampler, seed, (), ignore_eos=False)
        self.check_files()
        from ringlet.core.explanation.tracing import trace

        return trace(self, self._reader.ids_of(prompt), options, top)

    def chat_ids(
        self, messages: Messages, template: str | None = None, variables: Mapping[str, Any] | None = None
    ) -> list[int]:
        """The token ids of a conversation, with what begins an answer.

        messages: dicts with "role" ("system", "user", "assistant") and "content". template: a Jinja text, or the name
        of one of the model's; None for its own. variables: what else the template is to know.
        """
        return self.tokenizer.chat_format(template).encode(messages, variables=variables)

    def chat(
        self,
        messages: Messages,
        *,
        template: str | None = None,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Completion:
        """The answer to a conversation. The arguments are those of `chat_ids`; options: those of `generate`, but n.

        Only what is new since the last call is computed, if the conversation has gone on since then.
        """
        completion = self.generate(self.chat_ids(messages, template, variables), **options)
        if not isinstance(completion, Completion):
            raise RingletError("chat gives one answer: for n take generate(pipe.chat_ids(messages), n=…)")
        return completion

    def stream_chat(
        self,
        messages: Messages,
        *,
        template: str | None = None,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Generator[Chunk, None, None]:
        """The answer, a Chunk for each token as it is drawn; see `chat` and `stream`."""
        return self.stream(self.chat_ids(messages, template, variables), **options)

    def save_session(self, path: str | os.PathLike[str]) -> None:
        """Keep the ring of the last generation in a file: its token ids, keys and values.

        A generation after `load_session` is the same, to the last bit, as one in this pipeline now. Raises RingletError
        where nothing has been generated yet, or the file cannot be written.
        """
        from ringlet.core.session import save_session

        save_session(self, path)

    def load_session(self, path: str | os.PathLike[str]) -> Session:
        """Begin the next generation with a saved ring, and say what it holds.

        Raises FormatError for a file that is no session, damaged, or of another model or kind of ring.
        """
        from ringlet.core.session import load_session

        return load_session(self, path)

    @cached_property
    def fingerprint(self) -> str:
        """Of the model's configuration and weights; sessions are checked by it."""
        from ringlet.core.session_fingerprint import model_fingerprint

        self.check_files()
        return model_fingerprint(self.model.config, self.model.weights)

    @cached_property
    def observable_backend(self) -> Backend:
        """A backend that tells of its arrays: this pipeline's own where it does, else the reference."""
        if isinstance(self.backend, Observable):
            return self.backend
        candidates = backend_candidates(REFERENCE, self.plugins)
        made = make_backend(candidates, self.plugins, self.model.config, self.model.weights, None)
        let_plugins_watch(made, self.plugins)
        return made

    def check_files(self) -> None:
        """Raises FormatError where a file that is mapped into memory is no longer what it was."""
        for file in self._mapped_files:
            file.check()

    @cached_property
    def _mapped_files(self) -> set[MappedFile]:
        found = (mapped_file_of(matrix.data) for matrix in self.model.weights.matrices().values())
        return {file for file in found if file is not None}

    @cached_property
    def removed_ids(self) -> np.ndarray:
        """Ids that have no token; they are never drawn."""
        return np.array(self.tokenizer.ids_without_token(self.model.config.d_vocab), np.int64)


def ring_layout(
    config: ModelConfig, context: int | None, sinks: int, overflow: str, chunk: int = USUAL_CHUNK
) -> RingLayout:
    """The layout for a context, or for the usual one. Raises RingletError for what cannot be."""
    if context is None:
        context = min(USUAL_CONTEXT, config.context_length)
    return RingLayout.of(config, context, sinks, overflow, chunk=min(chunk, context))
