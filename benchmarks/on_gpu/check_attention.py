"""From projections to heads: queries, keys and values placed in rings, attended to and merged, against the formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from on_gpu.arrays import Array, launch
from on_gpu.check_rows import COLUMN_THREADS, TOLERANCE

from ringlet.core.config import LayerConfig, ModelConfig
from ringlet.core.host_memory import HOST_DTYPES, quantize_rows
from ringlet.core.ring_cache import LayerLayout, RingLayout
from ringlet.plugins.backends.cuda.device import Device
from ringlet.plugins.backends.cuda.planes import padded
from ringlet.plugins.backends.cuda.rings import DeviceRing
from ringlet.plugins.backends.cuda.scratch import tiles_of
from ringlet.plugins.backends.cuda.shapes import FLOATS, PIECE, PLACE_WARPS, VALUE_COLUMNS, attention_warps
from ringlet.testing.random_models import random_model, rope_of

SPANS = {False: 700, True: 6}  # tokens that a ring holds
NEW = {False: 37, True: 2}  # and of them, those that attend
GROUP = 3  # heads that share a K/V head


def check_attention(device: Device, name: str, tiny: bool) -> float:
    """The largest error of a head's output, as a share of what is tolerated. Places all tokens, and `name` attends."""
    family, d_k, d_v = name.split("-")[:3]
    kv_dtype = "f32" if family == "float_attention" else "q8" if name.endswith("-q8") else "f16"
    span, n, wide = SPANS[tiny], NEW[tiny], (int(d_k), int(d_v))
    config = random_model(
        d_k=wide[0], d_v=wide[1], n_heads=2 * GROUP, n_kv_heads=2, layers=(LayerConfig(None, rope_of(wide[0])),),
        score_scale=wide[0] ** -0.5,
    )[0]  # fmt: skip
    layout = replace(RingLayout.of(config, 64, chunk=8), layers=(LayerLayout(span, 0, span),))
    ring, rng = DeviceRing(device, config, layout, kv_dtype), np.random.default_rng(span)
    width = config.n_heads * config.d_k + config.n_kv_heads * (config.d_k + config.d_v)
    qkv = np.zeros((span, padded(width)), np.float32)
    qkv[:, :width] = rng.standard_normal((span, width))
    rings, positions = Array(device, np.full(span, ring.address)), Array(device, np.arange(span, dtype=np.int32))
    q = Array.unwritten(device, span, config.n_heads, config.d_k)
    place(device, config, Array(device, qkv), rings, positions, q, span)

    length = PIECE
    n_pieces, first = -(-span // length) + 1, span - n
    partials = Array.unwritten(device, n, config.n_heads, n_pieces, config.d_v)
    states = Array.unwritten(device, n, config.n_heads, n_pieces, 2)
    newest = q.address + 4 * first * config.n_heads * config.d_k
    told = (rings, positions.address + 4 * first, 0, GROUP)
    pieces = (n_pieces, 0, length, config.score_scale, 0.0)
    if kv_dtype != "f32":
        tiles = np.array([(0, n, index) for index in range(tiles_of(n, GROUP))], np.int32)
        blocks = -(-len(tiles) * n_pieces // attention_warps(config.d_k))
        grid = (blocks, config.n_kv_heads, -(-config.d_v // VALUE_COLUMNS))
        of_tiles = Array(device, tiles)
        launch(device, name, grid, newest, newest, partials, states, of_tiles, *told, len(tiles), *pieces)
    else:
        grid = (-(-n_pieces // PLACE_WARPS), config.n_heads, n)
        launch(device, name, grid, newest, newest, partials, states, *told, *pieces)
    heads = config.n_heads * config.d_v
    out = Array(device, np.zeros((n, padded(heads)), np.float32))
    grid = (-(-padded(heads) // COLUMN_THREADS), n, 1)
    launch(device, "merge", grid, partials, states, out, 0, 0, 0, 0, config.n_heads, config.d_v, n_pieces, FLOATS)
    found = out.values[:, :heads].reshape(n, config.n_heads, config.d_v)
    error = np.abs(found - expected(config, qkv[:, :width].astype(float), n, kv_dtype))
    tolerance = TOLERANCE * {"f32": 1, "f16": 100, "q8": 1000}[kv_dtype]  # a key may be rounded to another number
    return float(np.nan_to_num(error, nan=np.inf).max() / tolerance)


def place(
    device: Device, config: ModelConfig, qkv: Array, rings: Array, positions: Array, q: Array, n_tokens: int
) -> None:
    rope = config.layers[0].rope
    assert rope is not None
    n_pairs = len(rope.frequencies)
    angles = Array.unwritten(device, n_tokens, 2, n_pairs)
    tables = [Array(device, np.array(values)) for values in (rope.frequencies, (rope.magnitude,))]
    launch(device, "angles", (n_tokens, 1, 1), positions, *tables, angles, n_pairs)
    sizes = (0, config.n_heads, config.n_kv_heads, config.d_k, config.d_v, qkv.shape[1], n_pairs, n_pairs, 1e-5, 0)
    grid = (-(-(config.n_heads + 2 * config.n_kv_heads) // PLACE_WARPS), n_tokens, 1)
    launch(device, "place", grid, qkv, 0, 0, angles, rings, positions, q, q, *sizes)
    grid = (-(-2 * config.n_kv_heads // PLACE_WARPS), n_tokens, 1)
    launch(device, "place_bytes", grid, qkv, rings, positions, *sizes[:6])
    device.synchronise()  # before the angles' memory is free


def expected(config: ModelConfig, qkv: np.ndarray, n: int, kv_dtype: str) -> np.ndarray:
    """softmax(Q·Kᵀ·scale)·V of the last n tokens, float64 (n, n_heads, d_v); keys and values as the ring holds them."""
    span, q_width, k_width = len(qkv), config.n_heads * config.d_k, config.n_kv_heads * config.d_k
    Q = rotated(config, qkv[:, :q_width].reshape(span, -1, config.d_k))[-n:]
    K = rotated(config, qkv[:, q_width : q_width + k_width].reshape(span, -1, config.d_k))
    V = qkv[:, q_width + k_width :].reshape(span, -1, config.d_v)
    K, V = (np.repeat(as_kept(X, kv_dtype), GROUP, axis=1) for X in (K, V))
    S = np.einsum("qhd,khd->hqk", Q, K) * config.score_scale
    S[:, np.arange(span)[None, :] > np.arange(span - n, span)[:, None]] = -np.inf
    weights = np.exp(S - S.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), V)


def as_kept(X: np.ndarray, kv_dtype: str) -> np.ndarray:
    """Keys or values as a ring holds them, float64."""
    if kv_dtype == "q8":
        q, d = quantize_rows(X.astype(np.float32))
        return q * d[..., None].astype(float)
    return X.astype(HOST_DTYPES[kv_dtype]).astype(float)


def rotated(config: ModelConfig, heads: np.ndarray) -> np.ndarray:
    """RoFormer, eq. 34, pairs i and i + d_k/2."""
    rope = config.layers[0].rope
    assert rope is not None
    angles = np.arange(len(heads))[:, None, None] * np.array(rope.frequencies)
    a, b = np.split(heads, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
