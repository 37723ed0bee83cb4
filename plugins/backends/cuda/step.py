"""A forward step as a row of launches. Read `Step.run` from top to bottom for the order, which is that of
`backends/numpy.py`; nothing in it waits or allocates, so that it can be recorded as a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ringlet.core.config import ModelConfig
from ringlet.plugins.backends.cuda.device import Device
from ringlet.plugins.backends.cuda.planes import padded
from ringlet.plugins.backends.cuda.products import Products
from ringlet.plugins.backends.cuda.scratch import Scratch, Sizes
from ringlet.plugins.backends.cuda.shapes import (
    ACCUMULATE,
    ACTIVATIONS,
    ADD,
    ADJACENT,
    CHOSEN,
    COLUMN_THREADS,
    FLOATS,
    LAYER_NORM,
    NORM_BIAS,
    PLACE_WARPS,
    POST_NORM,
    QK_NORM,
    SINKS,
    VALUE_COLUMNS,
    attention_warps,
    ranked_parts,
)
from ringlet.plugins.backends.cuda.weights import DeviceLayer, DeviceMatrix, DeviceNorm, DeviceWeights

NO_NORM = DeviceNorm()


class Pieces(NamedTuple):
    """How attention cuts a layer's context: into n pieces of `length`, or less; `sinks`: 1 where the first of
    them are the sinks, else 0. See `kernels/attention_places.py`."""

    n: int
    sinks: int
    length: int


@dataclass(frozen=True)
class Shape:
    """All that decides which kernels a step launches, and how; the rest it reads from memory.

    pieces: of the context, a layer each. ring_dtypes: of its rings.
    n_listed: how many of the likeliest tokens of each wanted row are listed. with_hidden: whether the hidden states of
    all tokens are wanted.
    """

    n_tokens: int
    n_wanted: int
    n_tiles: int
    pieces: tuple[Pieces, ...]
    ring_dtypes: frozenset[str]
    n_listed: int = 0
    with_hidden: bool = False

    @property
    def sizes(self) -> Sizes:
        partials, listed = max(pieces.n for pieces in self.pieces), self.n_wanted * self.n_listed
        return Sizes(self.n_tokens, self.n_wanted, self.n_tiles, self.n_tokens * partials, listed)

    @property
    def has_sinks(self) -> bool:
        return any(pieces.sinks for pieces in self.pieces)


class Step:
    """Launches the steps of one model."""

    def __init__(self, device: Device, config: ModelConfig, weights: DeviceWeights, scratch: Scratch) -> None:
        self._device, self._config, self._weights, self._scratch = device, config, weights, scratch
        self._products = Products(device)
        self._norm_flags = LAYER_NORM if config.norm == "layer" else 0
        self._heads_width = config.n_heads * config.d_v
        self._qkv_stride = padded(config.n_heads * config.d_k + config.n_kv_heads * (config.d_k + config.d_v))
        self._up_width = config.d_ff * (2 if config.gated else 1)

    def kernels(self, n_tokens: int) -> set[str]:
        """Names of those that steps of so many tokens launch, whatever rings they have of float16."""
        weights = self._weights
        names = {
            "angles",
            "place",
            "merge",
            "normalise",
            "hidden",
            "rank",
            "likeliest",
            self._attention("f16"),
            f"lookup-{weights.embedding.format}",
        }
        names |= {f"lookup-{weights.positions.format}"} if weights.positions is not None else set()
        names |= {"soft_cap"} if self._config.logit_soft_cap is not None else set()
        names |= self._products.kernels(weights.W_t, n_tokens)
        for layer in weights.layers:
            for product in (layer.qkv, layer.output, layer.up, layer.down):
                names |= self._products.kernels(product, n_tokens)
        return names

    def run(self, shape: Shape) -> None:
        """Leaves the logits of the wanted tokens in scratch["logits"], hidden states in scratch["last"], the likeliest
        tokens in scratch["listed"]: ids, int32 (n_wanted, n_listed), then as many logits."""
        config, scratch, weights, n = self._config, self._scratch, self._weights, shape.n_tokens
        self._look_up(weights.embedding, scratch["token_ids"], n, config.embedding_scale, 0)
        if weights.positions is not None:
            self._look_up(weights.positions, scratch["positions"], n, 1.0, ACCUMULATE)
        self._fill_angles(shape)
        added = NO_NORM  # the norm of what the last product returned, where it has one and is still to be added
        for index, layer in enumerate(weights.layers):
            self._normalise(layer.attention_norm, n, self._forms([layer.qkv], n), added)
            self._products.multiply(layer.qkv, scratch.rows("normed"), scratch["qkv"], self._qkv_stride, n)
            self._place(index, layer, shape)
            self._attend(index, shape, self._forms([layer.output], n))
            if config.residual == "parallel":  # the feed-forward part sees the residual before attention
                self._normalise(layer.feed_forward_norm, n, self._forms([layer.up], n), NO_NORM)
            self._return(layer.output, "heads", layer.attention_post_norm, n)
            if config.residual == "sequential":
                self._normalise(layer.feed_forward_norm, n, self._forms([layer.up], n), layer.attention_post_norm)
            stride = padded(self._up_width)
            self._products.multiply(layer.up, scratch.rows("normed"), scratch["up"], stride, n)
            self._hide(n, self._forms([layer.down], n))
            added = NO_NORM if config.residual == "parallel" else layer.feed_forward_post_norm
            self._return(layer.down, "hidden", added, n)
        if shape.with_hidden:
            self._launch_norm(weights.final_norm, n, FLOATS, added, 0, (scratch["last"], 0, 0, 0, 0))
            added = NO_NORM
        self._logits(shape, added)
        if shape.n_listed and shape.n_wanted:
            self._list(shape)

    def _forms(self, products: list, n_tokens: int) -> int:
        return self._products.forms(products, n_tokens)

    def _look_up(self, matrix: DeviceMatrix, indices: int, n_tokens: int, scale: float, flags: int) -> None:
        out, width = self._scratch["x"], self._config.d_model
        arguments = (*matrix.planes, indices, out, matrix.n_blocks, width, scale, flags)
        self._device.launch(f"lookup-{matrix.format}", (n_tokens, 1, 1), arguments)

    def _fill_angles(self, shape: Shape) -> None:
        weights, scratch = self._weights, self._scratch
        if weights.pairs_of_rope:
            grid = (self._angle_rows(shape), len(weights.pairs_of_rope), 1)
            arguments = (
                scratch["positions"],
                weights.frequencies,
                weights.magnitudes,
                scratch["angles"],
                weights.n_pairs,
            )
            self._device.launch("angles", grid, arguments)

    @staticmethod
    def _angle_rows(shape: Shape) -> int:
        """The tokens' positions, then those among the sinks where some ring keeps any."""
        return shape.n_tokens * (1 + shape.has_sinks)

    def _normalise(self, norm: DeviceNorm, n_tokens: int, forms: int, added: DeviceNorm, chosen: int = 0) -> None:
        self._launch_norm(norm, n_tokens, forms, added, chosen, self._scratch.rows("normed").all)

    def _launch_norm(
        self, norm: DeviceNorm, n_rows: int, forms: int, added: DeviceNorm, chosen: int, out: tuple[int, ...]
    ) -> None:
        """added: the norm of what is added to the residual first, if there is one. chosen: indices of rows, or 0."""
        config, scratch = self._config, self._scratch
        flags = self._norm_flags
        flags |= ADD | POST_NORM if added.weight else 0
        flags |= NORM_BIAS if norm.bias and config.norm == "layer" else 0
        flags |= CHOSEN if chosen else 0
        rows = (scratch["x"], scratch["added"], added.weight, norm.weight, norm.bias, chosen, *out)
        self._device.launch("normalise", (n_rows, 1, 1), (*rows, config.d_model, config.norm_epsilon, flags, forms))

    def _place(self, index: int, layer: DeviceLayer, shape: Shape) -> None:
        config, scratch, weights = self._config, self._scratch, self._weights
        rope, turned, angles = config.layers[index].rope, 0, scratch["angles"]
        flags = (QK_NORM if layer.q_norm else 0) | (SINKS if shape.has_sinks else 0)
        if rope is not None:
            turned = weights.pairs_of_rope[layer.rope]
            angles += 8 * layer.rope * self._angle_rows(shape) * weights.n_pairs
            flags |= ADJACENT if rope.pairing == "adjacent" else 0
        grid = (-(-(config.n_heads + 2 * config.n_kv_heads) // PLACE_WARPS), shape.n_tokens, 1)
        pointers = (scratch["qkv"], layer.q_norm, layer.k_norm, angles, scratch["rings"], scratch["positions"])
        outputs = (scratch["q_ring"], scratch["q_sinks"])
        heads = (index, config.n_heads, config.n_kv_heads, config.d_k, config.d_v)
        sizes = (self._qkv_stride, weights.n_pairs, turned, config.norm_epsilon, flags)
        self._device.launch("place", grid, (*pointers, *outputs, *heads, *sizes))
        if "q8" in shape.ring_dtypes:
            grid = (-(-2 * config.n_kv_heads // PLACE_WARPS), shape.n_tokens, 1)
            told = (scratch["rings"], scratch["positions"])
            self._device.launch("place_bytes", grid, (scratch["qkv"], *told, *heads, self._qkv_stride))

    def _attention(self, kv_dtype: str) -> str:
        """The kernel for rings of float16 or bytes."""
        instruction = "k16" if self._device.capability >= (8, 0) else "k8"
        name = f"attention-{self._config.d_k}-{self._config.d_v}-{instruction}"
        return name if kv_dtype == "f16" else f"{name}-{kv_dtype}"

    def _attend(self, index: int, shape: Shape, forms: int) -> None:
        """O_head of all tokens and heads, piece by piece and merged, in scratch "heads"."""
        config, scratch = self._config, self._scratch
        pointers = (scratch["q_ring"], scratch["q_sinks"], scratch["partials"], scratch["states"])
        told = (scratch["rings"], scratch["positions"], index, config.heads_per_kv_head)
        pieces, scores = shape.pieces[index], (config.score_scale, config.score_soft_cap or 0.0)
        for kv_dtype in sorted(shape.ring_dtypes - {"f32"}):
            workers = shape.n_tiles * pieces.n
            columns = -(-config.d_v // VALUE_COLUMNS)
            grid = (-(-workers // attention_warps(config.d_k)), config.n_kv_heads, columns)
            arguments = (*pointers, scratch["tiles"], *told, shape.n_tiles, *pieces, *scores)
            self._device.launch(self._attention(kv_dtype), grid, arguments)
        if "f32" in shape.ring_dtypes:
            grid = (-(-pieces.n // PLACE_WARPS), config.n_heads, shape.n_tokens)
            self._device.launch(
                f"float_attention-{config.d_k}-{config.d_v}", grid, (*pointers, *told, *pieces, *scores)
            )
        grid = (-(-padded(self._heads_width) // COLUMN_THREADS), shape.n_tokens, 1)
        out = scratch.rows("heads").all
        sizes = (config.n_heads, config.d_v, pieces.n, forms)
        self._device.launch("merge", grid, (scratch["partials"], scratch["states"], *out, *sizes))

    def _return(self, product: object, source: str, post_norm: DeviceNorm, n_tokens: int) -> None:
        """What a part of the block returns: into the residual, or beside it where a norm comes between."""
        scratch, stride = self._scratch, padded(self._config.d_model)
        out, flags = (scratch["added"], 0) if post_norm.weight else (scratch["x"], ACCUMULATE)
        self._products.multiply(product, scratch.rows(source), out, stride, n_tokens, flags)  # type: ignore[arg-type]

    def _hide(self, n_tokens: int, forms: int) -> None:
        config, scratch = self._config, self._scratch
        grid = (-(-padded(config.d_ff) // COLUMN_THREADS), n_tokens, 1)
        sizes = (config.d_ff, padded(self._up_width), ACTIVATIONS.index(config.activation), int(config.gated), forms)
        self._device.launch("hidden", grid, (scratch["up"], *scratch.rows("hidden").all, *sizes))

    def _logits(self, shape: Shape, added: DeviceNorm) -> None:
        """O_vocab = norm(x)·W_t of the wanted tokens, capped where the model caps it."""
        config, scratch, weights, n = self._config, self._scratch, self._weights, shape.n_wanted
        if n == 0:
            return
        forms = self._forms([weights.W_t], n)
        self._normalise(weights.final_norm, n, forms, added, scratch["wanted"])
        self._products.multiply(weights.W_t, scratch.rows("normed"), scratch["logits"], config.d_vocab, n)
        if config.logit_soft_cap is not None:
            count = n * config.d_vocab
            grid = (-(-count // COLUMN_THREADS), 1, 1)
            self._device.launch("soft_cap", grid, (scratch["logits"], count, config.logit_soft_cap))

    def _list(self, shape: Shape) -> None:
        scratch, d_vocab, rows, count = self._scratch, self._config.d_vocab, shape.n_wanted, shape.n_listed
        parts, rows_of = ranked_parts(d_vocab), (scratch["logits"], scratch["keys"])
        self._device.launch("rank", (parts, rows, 1), (*rows_of, d_vocab, count))
        listed = (scratch["listed"], scratch["listed"] + 4 * rows * count)
        self._device.launch("likeliest", (rows, 1, 1), (*rows_of, *listed, d_vocab, parts * count, count))


def products_by_source(weights: DeviceWeights) -> Iterator[tuple[str, list]]:
    """Which products take which activations."""
    yield "normed", [weights.W_t, *(product for layer in weights.layers for product in (layer.qkv, layer.up))]
    yield "heads", [layer.output for layer in weights.layers]
    yield "hidden", [layer.down for layer in weights.layers]
