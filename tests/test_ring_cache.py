"""The ring against plainly kept keys and values: random schedules of append, wrap, slide, rewind and fork."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import assert_close, in_pieces, tokens

from ringlet.core.batch import Batch
from ringlet.core.config import ModelConfig
from ringlet.core.errors import RingletError
from ringlet.core.host_memory import HostMemory, host_bytes
from ringlet.core.ring_cache import RingCache, RingFull, RingLayout
from ringlet.core.step import run_step
from ringlet.plugins.backends.cpu import CpuBackend
from ringlet.plugins.backends.numpy import NumpyBackend
from ringlet.testing.dense_reference import dense_logits, plain_model, visible_positions

BACKENDS = {"numpy": NumpyBackend, "cpu": CpuBackend}
SHAPES = {
    "full": {},
    "d_v larger than d_k": {"d_k": 4, "d_v": 12},
    "d_v smaller than d_k": {"d_k": 8, "d_v": 3},
    "one key head": {"n_kv_heads": 1},
    "every head its own keys": {"n_kv_heads": 4},
    "local and global layers": {"windows": (3, None, 5)},
    "a window of one": {"windows": (1, None)},
}


def host_ring(config: ModelConfig, layout: RingLayout, dtype: str = "f32") -> RingCache:
    return RingCache(layout, partial(HostMemory, config, layout, dtype))


def arrays_of(ring: RingCache) -> list[np.ndarray]:
    return list(ring.memory.arrays)


@pytest.fixture(scope="module", params=BACKENDS)
def backends(request):
    """One backend a shape, made once: (config, weights, backend) by name."""
    made = {}
    for name, shape in SHAPES.items():
        config, weights = plain_model(5, **shape)
        made[name] = (config, weights, BACKENDS[request.param](config, weights, threads=2))
    return made


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_random_schedules_equal_plain_attention(backends, data):
    config, weights, backend = backends[data.draw(st.sampled_from(sorted(SHAPES)))]
    overflow = data.draw(st.sampled_from(["stop", "slide"]))
    context = data.draw(st.sampled_from([1, 2, 5, 8, 40] if overflow == "slide" else [40, 64]))
    sinks = data.draw(st.integers(0, min(context - 1, 3)))
    chunk = data.draw(st.sampled_from([1, 3, 7]))
    layout = RingLayout.of(config, context, sinks, overflow, chunk=chunk)
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    sequences = [(backend.new_ring(layout, "f32"), [])]
    for _ in range(data.draw(st.integers(1, 7))):
        which = data.draw(st.integers(0, len(sequences) - 1))
        ring, ids = sequences[which]
        action = data.draw(st.sampled_from(["step", "step", "step", "rewind", "fork"]))
        if action == "fork" and len(sequences) < 3:
            sequences.append((ring.fork(), list(ids)))
        elif action == "rewind":
            wanted = data.draw(st.integers(0, ring.length))
            kept = ring.rewind(wanted)
            assert kept in (0, wanted)
            del ids[kept:]
        else:
            _step_all(config, weights, backend, sequences, which, rng, chunk, context, sinks)


def _step_all(config, weights, backend, sequences, which, rng, chunk, context, sinks):
    """The chosen sequence takes a chunk, the others a token, in one batch; all logits are compared."""
    parts = []
    for index, (ring, ids) in enumerate(sequences):
        n = int(rng.integers(1, chunk + 1)) if index == which else 1
        if ring.room < n:
            with pytest.raises(RingFull):
                ring.reserve(ring.room + 1)
            continue
        new = rng.integers(0, config.d_vocab, n).tolist()
        ids.extend(new)
        parts.append((ring, new, ids))
    if not parts:
        return
    logits = run_step(backend, [(ring, new, "all") for ring, new, _ in parts])
    at = 0
    for ring, new, ids in parts:
        assert ring.length == len(ids)
        want = dense_logits(config, weights, ids, context=context, sinks=sinks)[-len(new) :]
        np.testing.assert_allclose(logits[at : at + len(new)], want, rtol=0, atol=2e-5 * np.abs(want).max())
        at += len(new)


@pytest.mark.parametrize("chunks", [[1] * 30, [7, 7, 7, 7, 2], [13, 1, 1, 13, 2]])
@pytest.mark.parametrize(("context", "sinks"), [(8, 0), (8, 2), (3, 2)])
def test_who_filled_the_ring_makes_no_difference(backends, chunks, context, sinks):
    config, weights, backend = backends["local and global layers"]
    ids = tokens(30, config)
    ring = backend.new_ring(RingLayout.of(config, context, sinks, "slide", chunk=max(chunks)), "f32")
    want = dense_logits(config, weights, ids, context=context, sinks=sinks)
    assert_close(in_pieces(backend, ring, ids, chunks), want, 2e-5)
    assert all(ring.length > layer.slots for layer in ring.layout.layers)


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize(("context", "sinks"), [(8, 0), (8, 2), (40, 0)])
def test_a_half_float_ring_rounds_keys_and_values_and_nothing_else(backends, chunk, context, sinks):
    """The reference rounds keys, rotated at their own positions, and values to float16.

    A number that lies between two halves may fall to either in float32, which moves it by 2^-10 of itself; sharp
    attention may double that. Without the reference's rounding the difference is up to 6e-3.
    """
    for config, weights, backend in backends.values():
        ids = tokens(30, config)
        ring = backend.new_ring(RingLayout.of(config, context, sinks, "slide", chunk=chunk), "f16")
        rounded = dense_logits(config, weights, ids, context=context, sinks=sinks, half=True)
        assert_close(in_pieces(backend, ring, ids, [chunk]), rounded, 2**-9)


@pytest.mark.parametrize("overflow", ["stop", "slide"])
@pytest.mark.parametrize("sinks", [0, 1, 3])
def test_slots_of_what_a_chunk_may_see_are_all_different(overflow, sinks):
    config, _ = plain_model(0, windows=(4, None, 50))
    for context in (4, 9, 20):
        layout = RingLayout.of(config, context, sinks, overflow, chunk=6)
        for layer, recipe in zip(layout.layers, config.layers, strict=True):
            for first in range(context - 6 if overflow == "stop" else 70):
                chunk = range(first, first + 6)
                seen = sorted(
                    {j for p in chunk for j in visible_positions(p, recipe.window, context, sinks)} | set(chunk)
                )
                slots = layer.slot(np.array(seen))
                assert len(set(slots.tolist())) == len(seen)
                assert 0 <= slots.min() <= slots.max() < layer.slots


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_rewind_keeps_exactly_when_every_visible_key_is_held(data):
    """Plain dicts of what the slots hold say whether a cut is exact, over schedules of chunks and cuts, with sinks."""
    config, _ = plain_model(0, windows=(3, None))
    context, chunk = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 5))
    sinks = data.draw(st.integers(0, min(context - 1, 4)))
    layout = RingLayout.of(config, context, sinks, "slide", chunk=chunk)
    ring, held = host_ring(config, layout), [{} for _ in layout.layers]
    for _ in range(data.draw(st.integers(1, 3))):
        for n in data.draw(st.lists(st.integers(1, chunk), max_size=12)):
            ring.reserve(n)
            for layer, slots in zip(layout.layers, held, strict=True):
                slots |= {int(layer.slot(position)): position for position in range(ring.length, ring.length + n)}
            ring.append([0] * n)
        wanted = data.draw(st.integers(0, ring.length))
        exact = all(
            set(visible_positions(wanted, recipe.window, context, sinks)) - {wanted} <= set(slots.values())
            for recipe, slots in zip(config.layers, held, strict=True)
        )
        assert ring.rewind(wanted) == (wanted if exact else 0)
        held = [{slot: at for slot, at in slots.items() if at < ring.length} for slots in held]


def test_a_ring_is_sized_by_the_smaller_of_window_and_context():
    config, _ = plain_model(0, windows=(512, 4, None))
    layout = RingLayout.of(config, 16, overflow="stop", chunk=4)
    assert [(layer.capacity, layer.slots) for layer in layout.layers] == [(16, 16), (4, 7), (16, 16)]
    sliding = RingLayout.of(config, 16, 2, "slide", chunk=4)
    assert [(layer.capacity, layer.sinks, layer.slots) for layer in sliding.layers] == [
        (16, 2, 19),
        (4, 0, 7),
        (16, 2, 19),
    ]


@pytest.mark.parametrize("dtype", ["f32", "f16", "q8"])
def test_one_allocation_of_the_size_that_was_told(dtype):
    config, _ = plain_model(0, windows=(4, None), d_k=6, d_v=10)
    layout = RingLayout.of(config, 10, chunk=3)
    ring = host_ring(config, layout, dtype)
    arrays = arrays_of(ring)
    assert all(array.ctypes.data % 64 == 0 for array in arrays)
    assert len({id(array.base) for array in arrays}) == 1
    assert sum(array.nbytes for array in arrays) <= host_bytes(config, layout, dtype) <= ring.memory.nbytes
    assert [array.shape for array in ring.memory.keys] == [(2, 6, 6), (2, 10, 6)]
    assert [array.shape for array in ring.memory.values] == [(2, 6, 10), (2, 10, 10)]


def test_rows_in_bytes_are_within_half_a_step():
    config, _ = plain_model(0, d_k=6, d_v=10)
    memory = host_ring(config, RingLayout.of(config, 10, chunk=1), "q8").memory
    rng = np.random.default_rng(4)
    K, V = (rng.standard_normal((2, 5, width)).astype(np.float32) for width in (6, 10))
    K[0, 1], K[1, 2, 3], V[0, 0], V[1, 4] = 0, 1e20, 1e-35, 1e-38
    memory.write(0, np.array([3, 0, 9, 4, 5]), K, V)
    for read, X in zip(memory.read(0, np.array([3, 0, 9, 4, 5])), (K, V), strict=True):
        assert (np.abs(read - X) <= np.abs(X).max(-1, keepdims=True) / 127 * 0.5001 + 1e-30).all()


def test_a_fork_copies_the_slots_in_use_and_no_others():
    config, _ = plain_model(0, windows=(4, None))
    for length in (0, 1, 5, 9, 30):
        ring = host_ring(config, RingLayout.of(config, 12, overflow="slide", chunk=1))
        for array in arrays_of(ring):
            array[...] = np.arange(1, array.size + 1).reshape(array.shape)
        for _ in range(length):
            ring.reserve(1)
            ring.append([3])
        copy = ring.fork()
        for mine, theirs in zip(arrays_of(ring), arrays_of(copy), strict=True):
            used = min(length, mine.shape[1])
            assert np.array_equal(theirs[:, :used], mine[:, :used])
            assert not theirs[:, used:].any()
            assert not np.shares_memory(mine, theirs)
        assert copy.token_ids == ring.token_ids


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_copy_of_what_differs_is_a_whole_copy(backends, data):
    """Rings that held the same tokens and then went on apart, perhaps round and round."""
    config, _, backend = backends[data.draw(st.sampled_from(sorted(SHAPES)))]
    overflow = data.draw(st.sampled_from(["stop", "slide"]))
    sinks = data.draw(st.sampled_from([0, 2]))
    layout = RingLayout.of(config, 40 if overflow == "stop" else 6, sinks, overflow, chunk=3)
    ring = backend.new_ring(layout, "f32")
    shared, mine, theirs = data.draw(st.integers(0, 15)), data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    if shared:
        in_pieces(backend, ring, tokens(shared, config), [3])
    other = ring.fork()
    if mine:
        in_pieces(backend, ring, tokens(mine, config, seed=2), [1])
    if mine + theirs:
        in_pieces(backend, other, tokens(mine + theirs, config, seed=3), [1])
    ring.copy_from(other, shared)
    assert ring.token_ids == other.token_ids
    after = tokens(4, config, seed=4)
    expected = in_pieces(backend, other.fork(), after, [2])
    assert np.array_equal(in_pieces(backend, ring, after, [2]), expected)
    assert np.array_equal(in_pieces(backend, other, after, [2]), expected)


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"context": 0}, "context is 0"),
        ({"context": 8, "sinks": 8}, "sinks is 8"),
        ({"context": 8, "sinks": -1}, "sinks is -1"),
        ({"context": 8, "overflow": "wrap"}, "overflow is 'wrap'"),
    ],
)
def test_impossible_wishes_are_named(wish, says):
    config, _ = plain_model(0)
    with pytest.raises(RingletError, match=says):
        RingLayout.of(config, **wish, chunk=4)


def test_a_batch_refuses_what_a_kernel_could_not_survive():
    config, _ = plain_model(0)
    layout = RingLayout.of(config, 8, chunk=4)
    ring = host_ring(config, layout)
    for ids, says in [
        ([40], "outside the vocabulary of 40"),
        ([-1], "token id -1"),
        ([], "0 tokens"),
        ([0] * 5, "5 tokens"),
    ]:
        with pytest.raises(RingletError, match=says):
            Batch.of([(ring, ids, "last")], config.d_vocab)
    with pytest.raises(RingletError, match="once"):
        Batch.of([(ring, [1], "last"), (ring, [2], "last")], config.d_vocab)
    assert ring.length == 0


def test_room_that_is_made_is_used_and_nothing_else_is_taken():
    config, weights = plain_model(5)
    ring = NumpyBackend(config, weights).new_ring(RingLayout.of(config, 8, 0, "slide", chunk=3), "f32")
    ring.append([5, 6])
    ring.make_room(1000)
    ids = ring._tokens._ids
    for at in range(500):
        ring.append([at, at + 1])
    assert ring._tokens._ids is ids
    assert ring.token_ids == memoryview(np.array([5, 6, *(at + i for at in range(500) for i in range(2))], np.int32))
    ring.append([7])
    assert ring.length == 1003
    ring.rewind(0)
    ring.make_room(1 << 40)  # as much as is sane, at most
    assert len(ring._tokens._ids) <= 1 << 21
