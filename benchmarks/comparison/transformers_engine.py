"""transformers on PyTorch in float32, through transformers' own reading of the GGUF file."""

from __future__ import annotations

import inspect
import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from copy import deepcopy
from pathlib import Path
from typing import Any

from comparison.engine import Engine

CHUNK = 512  # tokens of a history that are computed at once


class Transformers(Engine):
    """A history is computed once for each size of a batch, and its cache copied."""

    name = "transformers, float32"

    def load(self, model: Path, threads: int, context: int) -> None:
        import torch
        import transformers

        transformers.utils.logging.set_verbosity_error()
        torch.set_num_threads(threads)
        self._torch = torch
        with redirect_stderr(io.StringIO()):  # progress bars
            self._network = transformers.AutoModelForCausalLM.from_pretrained(
                str(model.parent), gguf_file=model.name, dtype=torch.float32
            ).eval()
        is_new = "cache" in inspect.signature(self._network.forward).parameters
        self._keyword = "cache" if is_new else "past_key_values"  # the older name ends with transformers 5.40
        self._caches: dict[tuple[int, int], Any] = {}
        self._cache, self._n_sequences = None, 1

    def hold(self, history: Sequence[int], batch: int) -> None:
        self._cache, self._n_sequences = None, batch
        key = batch, len(history)
        if history and key not in self._caches:
            for at in range(0, len(history), CHUNK):
                self._run(history[at : at + CHUNK])
            self._caches[key] = self._cache
        self._cache = deepcopy(self._caches.get(key))

    def prefill(self, ids: Sequence[int]) -> None:
        self._run(ids)

    def decode(self, ids: Sequence[int]) -> None:
        for token_id in ids:
            self._run([token_id])

    def _run(self, ids: Sequence[int]) -> None:
        with self._torch.inference_mode():
            rows = self._torch.tensor([list(ids)] * self._n_sequences)
            out = self._network(rows, use_cache=True, logits_to_keep=1, **{self._keyword: self._cache})
        self._cache = out[self._keyword]
