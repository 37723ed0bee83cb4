"""llama.cpp, through the C interface that llama-cpp-python binds, used as llama-bench uses it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from comparison.engine import Engine

LARGEST_STEP = 2048  # n_batch, llama-bench's own default


class Token(NamedTuple):
    sequence: int
    position: int
    id: int
    wants_logits: bool


class LlamaCpp(Engine):
    """A context for each size of a batch. A history is computed once and copied back from its saved state."""

    def __init__(self, flash_attention: bool) -> None:
        self._flash_attention = flash_attention
        self.name = f"llama.cpp, flash attention {'on' if flash_attention else 'off'}"

    def load(self, model: Path, threads: int, context: int) -> None:
        import llama_cpp

        be_quiet()
        self._lib, self._threads, self._length = llama_cpp, threads, context
        parameters = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(str(model).encode(), parameters)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot open {model}")
        self._contexts: dict[int, Any] = {}
        self._states: dict[tuple[int, int], Any] = {}  # of one sequence, by batch and length
        self._batch = llama_cpp.llama_batch_init(LARGEST_STEP, 0, 1)
        self._n_sequences, self._held = 1, 0

    def hold(self, history: Sequence[int], batch: int) -> None:
        lib, self._n_sequences, self._held = self._lib, batch, 0
        context = self._context()
        lib.llama_memory_clear(lib.llama_get_memory(context), False)
        if not history:
            return
        key = batch, len(history)
        if key not in self._states:
            self._run(Token(0, position, token_id, False) for position, token_id in enumerate(history))
            size = lib.llama_state_seq_get_size(context, 0)
            self._states[key] = (ctypes.c_uint8 * size)()
            lib.llama_state_seq_get_data(context, self._states[key], size, 0)
            lib.llama_memory_clear(lib.llama_get_memory(context), False)
        state = self._states[key]
        for sequence in range(batch):
            if not lib.llama_state_seq_set_data(context, state, len(state), sequence):
                raise RuntimeError("llama.cpp cannot bring a sequence back")
        self._held = len(history)

    def prefill(self, ids: Sequence[int]) -> None:
        last = len(ids) - 1
        self._run(
            Token(sequence, self._held + at, token_id, at == last)
            for sequence in range(self._n_sequences)
            for at, token_id in enumerate(ids)
        )
        self._held += len(ids)

    def decode(self, ids: Sequence[int]) -> None:
        for token_id in ids:
            self._run(Token(sequence, self._held, token_id, True) for sequence in range(self._n_sequences))
            self._held += 1

    def _context(self) -> Any:
        """The context for as many sequences as are held, each with memory of its own."""
        lib, n_sequences = self._lib, self._n_sequences
        if n_sequences not in self._contexts:
            parameters = lib.llama_context_default_params()
            parameters.n_ctx = n_sequences * -(-self._length // 256) * 256
            parameters.n_seq_max, parameters.kv_unified = n_sequences, False
            parameters.n_batch, parameters.n_ubatch = LARGEST_STEP, 512
            parameters.n_threads = parameters.n_threads_batch = self._threads
            parameters.flash_attn_type = int(self._flash_attention)  # 1: enabled, 0: disabled
            parameters.swa_full = False  # layers with a window keep no more than it, as llama.cpp's own programs do
            context = lib.llama_init_from_model(self._model, parameters)
            if not context:
                raise RuntimeError(f"llama.cpp cannot make a context for {n_sequences} sequences")
            self._contexts[n_sequences] = context
        return self._contexts[n_sequences]

    def _run(self, tokens: Iterable[Token]) -> None:
        """Compute the tokens, up to LARGEST_STEP at once."""
        tokens, batch, context = list(tokens), self._batch, self._context()
        for first in range(0, len(tokens), LARGEST_STEP):
            part = tokens[first : first + LARGEST_STEP]
            batch.n_tokens = len(part)
            for at, token in enumerate(part):
                batch.token[at], batch.pos[at], batch.logits[at] = token.id, token.position, token.wants_logits
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, token.sequence
            failure = self._lib.llama_decode(context, batch)
            if failure:
                raise RuntimeError(f"llama.cpp: llama_decode returned {failure}")
        self._lib.llama_synchronize(context)


@cache
def be_quiet() -> Any:
    """Have llama.cpp log nothing. The callback is kept, since C calls it."""
    import llama_cpp

    callback = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p())
    return callback


def system_info() -> str:
    """How llama.cpp was built: the instructions that it uses."""
    import llama_cpp

    return llama_cpp.llama_print_system_info().decode().strip().strip("| ")
