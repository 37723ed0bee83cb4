"""Traces: their numbers follow from one another by the formulas, and are transformers'; the rings are what was said."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import naive
import numpy as np
import pytest
from random_models import tokens
from tiny_models import FOLDER, FORMS, NAMES, open_tiny
from tiny_pipeline import EOS, byte_model, pipeline_of, random_pipeline, told_pipeline

from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.explanation.trace import LayerTrace, StepTrace, Trace
from ringlet.core.explanation.tracing import best_tokens
from ringlet.core.pipeline import Pipeline
from ringlet.core.weights import LayerWeights, Matrix
from ringlet.plugins.backends.cpu import CpuBackend
from ringlet.plugins.backends.numpy import NumpyBackend

N_TOKENS = 20
ACTIVATIONS = {"silu": naive.silu, "gelu": naive.gelu, "gelu_tanh": naive.gelu_tanh, "relu": naive.relu}


@cache
def tiny_pipe(name: str, form: str = "hf") -> Pipeline:
    tiny = open_tiny(name, form)
    pipe = pipeline_of(NumpyBackend(tiny.config, tiny.weights), context=64)
    pipe.removed_ids = np.empty(0, np.int64)  # the tokenizer knows ids beyond these vocabularies
    return pipe


@cache
def tiny_trace(name: str, form: str = "hf") -> Trace:
    """20 tokens; local rings of 12 and 16 turn, so that the prompt comes in several steps."""
    return tiny_pipe(name, form).trace(open_tiny(name, form).ids[:N_TOKENS])


def near(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-4) -> bool:
    """tolerance: of the largest number. What is −∞ must be so in both."""
    shown = np.isfinite(expected)
    if found.shape != expected.shape or (np.isfinite(found) != shown).any():
        return False
    return np.abs(found[shown] - expected[shown]).max() <= tolerance * np.abs(expected[shown]).max()


# --- the numbers follow from one another -----------------------------------------------------------------------------


def times(x: np.ndarray, W: Matrix, bias: np.ndarray | None) -> np.ndarray:
    y = x.astype(float) @ W.dequantize().astype(float).T
    return y if bias is None else y + bias


def norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, config: ModelConfig) -> np.ndarray:
    x = x.astype(float)
    if config.norm == "layer":
        x = x - x.mean(-1, keepdims=True)
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + config.norm_epsilon) * weight
    return y if bias is None else y + bias


def rotated(x: np.ndarray, positions: np.ndarray, config: ModelConfig, index: int) -> np.ndarray:
    """x (n, heads, d_k)."""
    rope = config.layers[index].rope
    if rope is None:
        return x.astype(float)
    y = x.astype(float)
    for row, head in np.ndindex(x.shape[:2]):
        turned = naive.rotate(x[row, head], int(positions[row]), rope.frequencies, rope.pairing == "adjacent")
        turned[: rope.width] *= rope.magnitude
        y[row, head] = turned
    return y


def sees(query: int, key: int, window: int | None) -> bool:
    return key <= query and (window is None or query - key < window)


def check_layer(
    found: LayerTrace,
    keys: np.ndarray,
    values: np.ndarray,
    layer: LayerWeights,
    index: int,
    config: ModelConfig,
    positions: np.ndarray,
) -> None:
    """Every array of a layer from those before it. keys, values: of all positions up to the last."""
    n, heads, group = len(positions), config.n_heads, config.n_heads // config.n_kv_heads
    post, epsilon = config.residual == "sequential", replace(config, norm="rms")
    assert near(found.x_normed, norm(found.x, layer.attention_norm, layer.attention_norm_bias, config))
    assert near(found.Q.reshape(n, -1), times(found.x_normed, layer.W_q, layer.b_q))
    assert near(found.K.reshape(n, -1), times(found.x_normed, layer.W_k, layer.b_k))
    assert near(found.V.reshape(n, -1), times(found.x_normed, layer.W_v, layer.b_v))
    Q, K = found.Q, found.K
    assert (found.Q_normed is None) == (found.K_normed is None) == (not config.qk_norm)
    if found.Q_normed is not None and found.K_normed is not None:
        assert near(found.Q_normed, norm(Q, layer.q_norm, None, epsilon))
        assert near(found.K_normed, norm(K, layer.k_norm, None, epsilon))
        Q, K = found.Q_normed, found.K_normed
    assert near(found.Q_rotated, rotated(Q, positions, config, index))
    assert near(found.K_rotated, rotated(K, positions, config, index))
    assert found.query_positions.tolist() == positions.tolist()
    for head in range(heads):
        kv_head = head // group
        S_raw = found.Q_rotated[:, head].astype(float) @ keys[found.key_positions, kv_head].T
        assert near(found.S_raw[head], S_raw)
        assert near(found.S_scaled[head], S_raw * config.score_scale)
        cap, S = config.score_soft_cap, found.S_scaled[head].astype(float)
        S = S if cap is None else cap * np.tanh(S / cap)
        for row, column in np.ndindex(S.shape):
            if not sees(positions[row], found.key_positions[column], config.layers[index].window):
                S[row, column] = -np.inf
        assert near(found.S[head], S)
        alpha = np.exp(found.S[head].astype(float))
        assert near(found.alpha[head], alpha / alpha.sum(-1, keepdims=True))
        assert near(found.O_head[:, head], found.alpha[head].astype(float) @ values[found.key_positions, kv_head])
    assert near(found.O_heads, found.O_head.reshape(n, -1))
    assert near(found.O_attention, times(found.O_heads, layer.W_o, layer.b_o))
    sandwich = layer.attention_post_norm is not None and post
    attended = norm(found.O_attention, layer.attention_post_norm, None, config) if sandwich else found.O_attention
    assert near(found.attended, attended)
    assert near(found.x_attended, found.x + found.attended)
    stream = found.x_attended if post else found.x
    assert near(found.fed_from, norm(stream, layer.feed_forward_norm, layer.feed_forward_norm_bias, config))
    active = np.vectorize(ACTIVATIONS[config.activation])
    if layer.W_gate is None:
        hidden = active(times(found.fed_from, layer.W_up, layer.b_up))
    else:
        gate = times(found.fed_from, layer.W_gate, layer.b_gate)
        hidden = active(gate) * times(found.fed_from, layer.W_up, layer.b_up)
    assert near(found.hidden, hidden)
    assert near(found.O_feed_forward, times(found.hidden, layer.W_down, layer.b_down))
    fed = found.O_feed_forward
    assert near(found.fed, norm(fed, layer.feed_forward_post_norm, None, config) if sandwich else fed)
    assert near(found.x_out, found.x_attended + found.fed)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_each_array_follows_from_those_before_it_and_the_last_are_the_logits(name: str, form: str) -> None:
    pipe, found = tiny_pipe(name, form), tiny_trace(name, form)
    config, weights = found.config, pipe.model.weights
    for index, layer in enumerate(weights.layers):
        keys = np.concatenate([step.layers[index].K_rotated for step in found.steps]).astype(float)
        values = np.concatenate([step.layers[index].V for step in found.steps]).astype(float)
        for step in found.steps:
            check_layer(step.layers[index], keys, values, layer, index, config, step.positions)
    for step in found.steps:
        x = weights.embedding.dequantize()[step.token_ids] * config.embedding_scale
        if weights.positions is not None:
            x = x + weights.positions.dequantize()[step.positions]
        assert near(step.layers[0].x, x)
        for before, after in zip(step.layers, step.layers[1:], strict=False):
            assert (after.x == before.x_out).all()
        stream = step.layers[-1].x_out
        assert near(step.final_normed, norm(stream, weights.final_norm, weights.final_norm_bias, config))
        cap, logits = config.logit_soft_cap, times(step.final_normed, weights.W_t, weights.b_t)
        assert near(step.logits, logits if cap is None else cap * np.tanh(logits / cap))
    assert near(found.logits, pipe.logits(found.token_ids))
    assert near(found.logits, open_tiny(name, form).logits[:N_TOKENS])


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_alpha_is_a_distribution_over_the_past(name: str, form: str) -> None:
    for step in tiny_trace(name, form).steps:
        for layer in step.layers:
            np.testing.assert_allclose(layer.alpha.sum(-1), 1, atol=1e-5)
            future = layer.key_positions > layer.query_positions[:, None]
            assert (layer.alpha[:, future] == 0).all()
            assert (layer.S[:, future] == -np.inf).all()
            assert np.isfinite(layer.S_raw).all()


def test_the_checks_see_a_wrong_number() -> None:
    """A trace whose α is that of unscaled scores does not pass."""
    pipe, found = tiny_pipe("llama"), tiny_trace("llama")
    (step,), layer = found.steps, pipe.model.weights.layers[0]
    wrong = replace(step.layers[0], alpha=np.exp(step.layers[0].S_raw))
    keys, values = wrong.K_rotated.astype(float), wrong.V.astype(float)
    with pytest.raises(AssertionError):
        check_layer(wrong, keys, values, layer, 0, found.config, step.positions)


@pytest.mark.reference
@pytest.mark.parametrize("name", [name for name in NAMES if name != "gemma3_multimodal"])
def test_attention_and_hidden_states_are_those_of_transformers(name: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        FOLDER / name, dtype=torch.float32, attn_implementation="eager"
    )
    found = tiny_trace(name)
    with torch.no_grad():
        theirs = model(torch.tensor([found.token_ids]), output_attentions=True, output_hidden_states=True)
    for index in range(found.config.n_layers):
        alpha = np.zeros((found.config.n_heads, N_TOKENS, N_TOKENS), np.float32)
        for step in found.steps:
            layer = step.layers[index]
            alpha[:, layer.query_positions[:, None], layer.key_positions] = layer.alpha
        np.testing.assert_allclose(alpha, theirs.attentions[index][0].numpy(), atol=1e-4)
        x = np.concatenate([step.layers[index].x for step in found.steps])
        assert near(x, theirs.hidden_states[index][0].numpy())
    last = np.concatenate([step.final_normed for step in found.steps])
    assert near(last, theirs.hidden_states[-1][0].numpy())
    assert near(found.logits, theirs.logits[0].numpy())


# --- steps, rings, and what is told of them --------------------------------------------------------------------------


def naive_ring(capacity: int, sinks: int, length: int) -> dict[int, int]:
    """Slot → position, after writing the tokens one by one."""
    held: dict[int, int] = {}
    slot = 0
    for position in range(length):
        held[slot] = position
        slot = slot + 1 if slot + 1 < capacity else sinks
    return held


@pytest.mark.parametrize("sinks", [0, 1, 3])
def test_the_ring_is_told_as_it_is_filled(sinks: int) -> None:
    """A prompt longer than the context in a sliding ring: a first step that fills it, then token by token."""
    pipe = random_pipeline(context=7, sinks=sinks, overflow="slide", window=5)
    found = pipe.trace(tokens(12, pipe.model.config), max_tokens=6)
    assert [len(step.token_ids) for step in found.steps] == [5] + [1] * 13
    done = 0
    for step in found.steps:
        for index, (capacity, kept) in enumerate(((5, 0), (7, sinks))):
            ring = step.layers[index].ring
            before, after = (naive_ring(capacity, kept, length) for length in (done, done + len(step.token_ids)))
            following = naive_ring(capacity, kept, done + len(step.token_ids) + 1)
            assert dict(zip(ring.slots.tolist(), ring.positions.tolist(), strict=True)) == after
            assert (ring.capacity, ring.sinks) == (capacity, kept)
            assert ring.added.tolist() == step.positions.tolist()
            assert set(ring.overwritten) == set(before.values()) - set(after.values())
            assert set(ring.reused) == set(step.layers[index].key_positions) - set(step.positions)
            (ring_next,) = set(following.values()) - set(after.values())
            assert following[ring.next_slot] == ring_next
            assert ring.overwrites_next == after.get(ring.next_slot)
            config = found.config
            assert ring.nbytes == capacity * config.n_kv_heads * (config.d_k + config.d_v) * 4
        done += len(step.token_ids)
    assert done == 18


def test_a_full_ring_that_stops_has_no_next_slot() -> None:
    pipe = random_pipeline(context=6)
    found = pipe.trace(tokens(4, pipe.model.config), max_tokens=9)
    assert len(found.token_ids) == 6
    rings = [step.layers[0].ring for step in found.steps]
    assert [(ring.next_slot, ring.overwrites_next) for ring in rings] == [(4, None), (5, None), (None, None)]


@pytest.mark.parametrize("layout", [{"context": 64}, {"context": 9, "sinks": 2, "overflow": "slide"}])
def test_steps_are_what_the_pipeline_computes_and_draws(layout: dict) -> None:
    pipe = random_pipeline(window=6, **layout)
    prompt = tokens(5, pipe.model.config)
    found = pipe.trace(prompt, max_tokens=12, sampler="top_k=20", seed=3)
    drawn = pipe.generate(prompt, max_tokens=13, sampler="top_k=20", seed=3).token_ids
    assert [*found.token_ids[5:], found.steps[-1].next_id] == drawn[: len(found.token_ids) - 4]
    assert near(found.logits, pipe.logits(found.token_ids))
    assert found.prompt_length == 5
    assert [found.texts[i] for i in found.token_ids] == found.pieces
    for step in found.steps:
        assert step.next_id in found.texts


def test_an_end_token_ends_a_trace() -> None:
    pipe = pipeline_of(NumpyBackend(*byte_model()), eos_ids=range(EOS))
    found = pipe.trace("ab", max_tokens=5)
    assert found.steps[-1].next_id in range(EOS)
    assert len(found.steps) == 1


def test_a_pipeline_with_another_backend_is_traced_by_numpy() -> None:
    config, weights = byte_model()
    pipe, reference = pipeline_of(CpuBackend(config, weights, 1)), pipeline_of(NumpyBackend(config, weights))
    found = pipe.trace("我爱你")
    assert near(found.logits, reference.logits(found.token_ids), 1e-6)
    assert pipe.observable_backend is pipe.observable_backend
    assert isinstance(pipe.observable_backend, NumpyBackend)


def test_the_likeliest_tokens_are_those_of_the_softmax() -> None:
    logits = np.array([[0.0, 3.0, 3.0, -np.inf, 1.0], [2.0, 1.0, 0.0, -1.0, -2.0]], np.float32)
    best = best_tokens(logits, 3)
    assert best.ids.tolist() == [[1, 2, 4], [0, 1, 2]]
    e = np.exp(logits.astype(float))
    expected = np.take_along_axis(e / e.sum(-1, keepdims=True), best.ids, -1)
    np.testing.assert_allclose(best.probabilities, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_the_lens_ends_in_the_logits(name: str) -> None:
    found = tiny_trace(name)
    for step in found.steps:
        assert step.lens.ids.shape == (found.config.n_layers + 1, len(step.token_ids), 10)
        assert (step.lens.ids[-1] == step.best.ids).all()
        assert near(step.lens.probabilities[-1], step.best.probabilities)
        e = np.exp(step.logits.astype(float) - step.logits.max(-1, keepdims=True))
        assert near(step.best.probabilities[:, 0], (e / e.sum(-1, keepdims=True)).max(-1))


def test_a_position_is_found_in_its_step() -> None:
    pipe = random_pipeline(context=5, overflow="slide")
    found = pipe.trace(tokens(8, pipe.model.config))
    for position in range(8):
        step, row = found.at(position)
        assert step.positions[row] == position
        assert found.at(position - 8) == (step, row)
    for wrong in (8, -9):
        with pytest.raises(RingletError, match=f"there is no token {wrong}: from 0 to 7, or from -1 back to -8"):
            found.at(wrong)


def test_a_trace_as_json() -> None:
    found = random_pipeline().trace("ab", max_tokens=1)
    value = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert value["steps"][0]["layers"][0]["S"][0][0][1] is None
    alpha = found.steps[0].layers[1].alpha
    np.testing.assert_allclose(value["steps"][0]["layers"][1]["alpha"], alpha, atol=1e-7)
    assert set(value) == {field.name for field in fields(Trace)}
    assert set(value["steps"][0]) == {field.name for field in fields(StepTrace)} - {"logits"}
    assert value["config"]["d_k"] == found.config.d_k
    assert value["texts"][str(ord("a"))] == "a"
    with_logits = json.loads(json.dumps(found.to_dict(logits=True), allow_nan=False))
    np.testing.assert_allclose(with_logits["steps"][1]["logits"], found.steps[1].logits, atol=1e-6)


def test_weights_have_the_shapes_of_the_theory() -> None:
    found, config = tiny_trace("qwen3"), open_tiny("qwen3").config
    heads, kv_heads = config.n_heads, config.n_kv_heads
    assert found.weights["W_q"] == (config.d_model, heads * config.d_k)
    assert found.weights["W_k"] == (config.d_model, kv_heads * config.d_k)
    assert found.weights["W_v"] == (config.d_model, kv_heads * config.d_v)
    assert found.weights["W_o"] == (heads * config.d_v, config.d_model)
    assert found.weights["W_t"] == (config.d_model, config.d_vocab)


def test_arrays_cannot_be_changed() -> None:
    found = random_pipeline().trace("ab")
    layer = found.steps[0].layers[0]
    for array in (found.steps[0].logits, layer.alpha, layer.x, layer.K_rotated):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_trace_that_memory_would_not_hold_is_refused_in_one_line() -> None:
    pipe = random_pipeline(context=500_000)
    with pytest.raises(RingletError, match=r"^a trace of 30000 tokens would take \d+\.\d GiB of memory"):
        pipe.trace([65] * 30_000)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"prompt": ["a", "b"]}, "trace takes one prompt"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "a", "top": 0}, "top is 0"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens is -1"),
        ({"prompt": "a", "sampler": "nothing"}, "unknown sampler"),
    ],
)
def test_what_cannot_be_traced(arguments: dict, fault: str) -> None:
    with pytest.raises(RingletError, match=fault):
        random_pipeline().trace(**arguments)


def test_tracing_leaves_the_pipeline_as_it_was() -> None:
    pipe = told_pipeline("ab", "cd")
    before = pipe.generate("ab", max_tokens=2).text
    pipe.trace("ab")
    assert pipe.generate("ab", max_tokens=2).text == before == "cd"


def test_a_parallel_block_has_no_post_norms() -> None:
    with pytest.raises(RingletError, match="residual is 'parallel' and post_norms is true"):
        replace(open_tiny("gemma3").config, residual="parallel")


@pytest.mark.real_model
def test_a_real_model_s_trace_gives_its_logits(smollm2_path: Path) -> None:
    pipe = Pipeline.from_pretrained(smollm2_path, backend="numpy")
    found = pipe.trace("The capital of France is", max_tokens=2)
    assert near(found.logits, pipe.logits(found.token_ids))
    assert found.text == "The capital of France is Paris."
    for step in found.steps:
        for layer in step.layers:
            np.testing.assert_allclose(layer.alpha.sum(-1), 1, atol=1e-5)
        assert (step.lens.ids[-1] == step.best.ids).all()
