"""Agreement with the reference: recipes, formats of weights, rings that turn, hidden states, and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.core.backend_calls import new_ring
from ringlet.core.errors import PluginError
from ringlet.core.quantization import BLOCK_FORMATS
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step, run_step_with_hidden
from ringlet.testing.backends.case import COARSE, ROUNDED, BackendCase, close, exact_dtype, usual_model, usual_ring
from ringlet.testing.checks import require
from ringlet.testing.dense_reference import dense_logits, plain_model
from ringlet.testing.random_models import in_pieces, random_model, random_model_stored_as, tokens


def agrees(case: BackendCase, recipe: dict[str, Any]) -> None:
    """40 tokens in pieces of 31, 1 and 5."""
    model = random_model(**recipe)
    layout, ids, sizes = RingLayout.of(model[0], 40, chunk=40), tokens(40, model[0]), [31, 1, 5]
    backend = case.made(model)
    logits = in_pieces(backend, new_ring(backend, layout, exact_dtype(backend)), ids, sizes)
    close(logits, case.expected(model, layout, ids, sizes), case.tolerance)


def unpacks(case: BackendCase, name: str) -> None:
    model = random_model_stored_as(name)
    layout, ids = RingLayout.of(model[0], 40, chunk=40), tokens(9, model[0])
    backend = case.made(model)
    logits = in_pieces(backend, new_ring(backend, layout, exact_dtype(backend)), ids, [9])
    floats = BLOCK_FORMATS[name].n_weights == 1
    close(logits, case.expected(model, layout, ids, [9]), case.tolerance if floats else COARSE)


def ring_turns(case: BackendCase, kv_dtype: str) -> None:
    """Chunks larger than windows and than the ring, many turns, with and without sinks."""
    model, backend = usual_model(), case.usual()
    ids = tokens(50, model[0])
    for context, sinks, chunk in ((1, 0, 1), (8, 3, 1), (9, 3, 4), (8, 0, 30), (8, 3, 30)):
        layout = RingLayout.of(model[0], context, sinks, "slide", chunk=chunk)
        ring = new_ring(backend, layout, kv_dtype)
        logits = in_pieces(backend, ring, ids, [chunk])
        about = f"context {context}, sinks {sinks}, chunk {chunk}"
        close(logits, case.expected(model, layout, ids, [chunk]), ROUNDED.get(kv_dtype, COARSE), about)


def slides_as_stated(case: BackendCase) -> None:
    """Xiao et al. 2023, section 3.2: keys unrotated, positions inside the cache; in float64, without a ring."""
    model = plain_model(5, windows=(3, None))
    ids, backend = tokens(30, model[0]), case.made(model)
    for sinks in (0, 2):
        layout = RingLayout.of(model[0], 8, sinks, "slide", chunk=7)
        logits = in_pieces(backend, new_ring(backend, layout, exact_dtype(backend)), ids, [7, 7, 1])
        close(logits, dense_logits(*model, ids, context=8, sinks=sinks), case.tolerance, f"sinks {sinks}")


def gives_hidden_states(case: BackendCase) -> None:
    model, backend = usual_model(), case.usual()
    reference, ids = case.reference(*model), tokens(20, model[0])
    rings = usual_ring(backend), usual_ring(reference)
    logits, hidden = run_step_with_hidden(backend, [(rings[0], ids, "last")])
    expected_logits, expected = run_step_with_hidden(reference, [(rings[1], ids, "last")])
    close(logits, expected_logits, case.tolerance)
    close(hidden, expected, case.tolerance, "hidden states")


def shows_nan(case: BackendCase) -> None:
    """A broken model must not look like a good one. A plugin's NaN is refused by the engine, in a line."""
    model = random_model()
    model[1].layers[0].attention_norm[3] = np.nan
    backend = case.made(model)
    ring = new_ring(backend, RingLayout.of(model[0], 8, chunk=8), exact_dtype(backend))
    try:
        logits = run_step(backend, [(ring, [1, 2], "last")])
    except PluginError as error:
        if "returned NaN" in str(error):
            return
        raise
    require(bool(np.isnan(logits).all()), "a weight is NaN, and the logits are numbers")
