"""What attention reads and writes: keys and values of rings, by the pieces of a context; see `traffic`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ringlet.core.batch import Batch
from ringlet.core.config import ModelConfig
from ringlet.plugins.backends.cuda.device import Grid
from ringlet.plugins.backends.cuda.planning import tiles
from ringlet.plugins.backends.cuda.rings import head_width
from ringlet.plugins.backends.cuda.shapes import PLACE_WARPS, QUERY_ROWS, VALUE_COLUMNS, attention_warps

FLOAT = 4
NUMBER = {"f16": 2, "q8": 1}  # bytes of a ring's numbers
SCALE = {"f16": 0, "q8": 4}  # and of what stands beside each key and value
Span = tuple[int, int]  # positions, from and to


@dataclass(frozen=True)
class Cut:
    """How one layer's launch of attention cuts the context, and what a batch's tokens see of it."""

    batch: Batch
    config: ModelConfig
    layer: int
    n_pieces: int
    sink_pieces: int
    length: int

    def pieces(self, first_token: int, last_token: int) -> Iterator[Span]:
        """Of what the tokens, of one sequence, see together; empty ones too."""
        layout = self.batch.rings[self.batch.sequence[first_token]].layout.layers[self.layer]
        start, stop = int(self.batch.positions[first_token]), int(self.batch.positions[last_token]) + 1
        visible = layout.first_visible(start)
        for piece in range(self.n_pieces):
            if piece < self.sink_pieces:
                yield 0, min(layout.sinks, stop)
            else:
                base = (visible // self.length + piece - self.sink_pieces) * self.length
                yield max(visible, base), min(stop, base + self.length)

    def full(self, token: int) -> list[Span]:
        """The pieces that hold keys which the token sees."""
        return [(start, stop) for start, stop in self.pieces(token, token) if start < stop]

    @property
    def n_full(self) -> int:
        return sum(len(self.full(token)) for token in range(len(self.batch.token_ids)))

    def tokens(self, kv_dtype: str) -> list[int]:
        """Whose rings are of that dtype."""
        rings = self.batch.rings
        return [t for t, s in enumerate(self.batch.sequence) if rings[s].memory.kv_dtype == kv_dtype]

    def least(self, kv_dtype: str, key_bytes: int) -> float:
        """Queries, and every key and value that one of its sequence's tokens sees, once."""
        seen: dict[int, list[Span]] = defaultdict(list)
        queries = 0
        for token in self.tokens(kv_dtype):
            full = self.full(token)
            seen[int(self.batch.sequence[token])] += full
            sees_sinks = self.sink_pieces > 0 and self._sinks(token) > 0
            queries += sees_sinks + (len(full) > sees_sinks)
        keys = sum(covered(spans) for spans in seen.values())
        config = self.config
        return queries * config.n_heads * config.d_k * FLOAT + keys * config.n_kv_heads * key_bytes

    def _sinks(self, token: int) -> int:
        return self.batch.rings[self.batch.sequence[token]].layout.layers[self.layer].sinks


def covered(spans: list[Span]) -> int:
    """Positions in some of the spans."""
    total, end = 0, 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


def attention(cut: Cut, grid: Grid, kv_dtype: str) -> tuple[float, float]:
    """Bytes moved, and the least, of attention over rings of float16 or bytes."""
    config, batch = cut.config, cut.batch
    group, key_width, value_width = config.heads_per_kv_head, head_width(config.d_k), head_width(config.d_v)
    of_tiles, warps = tiles(batch, group), attention_warps(config.d_k)
    moved = 0.0
    for block in range(grid[0]):
        queries: set[tuple[int, bool]] = set()
        spans: dict[int, list[Span]] = defaultdict(list)
        n_queries, n_full_rows, n_rows = 0, 0, 0
        for index in range(block * warps, min((block + 1) * warps, len(of_tiles) * cut.n_pieces)):
            tile, piece = index % len(of_tiles), index // len(of_tiles)
            start, count, number = (int(n) for n in of_tiles[tile])
            first, last = number * QUERY_ROWS, min((number + 1) * QUERY_ROWS, count * group) - 1
            if batch.rings[batch.sequence[start]].memory.kv_dtype != kv_dtype:
                continue
            n_rows += last - first + 1
            span = list(cut.pieces(start + first // group, start + last // group))[piece]
            if span[0] < span[1]:
                is_sinks = piece < cut.sink_pieces
                n_full_rows += last - first + 1
                n_queries += 0 if (tile, is_sinks) in queries else last - first + 1
                queries.add((tile, is_sinks))
                spans[int(batch.sequence[start])].append(span)
        keys = sum(covered(of_sequence) for of_sequence in spans.values())
        size, scale = NUMBER[kv_dtype], SCALE[kv_dtype]
        for column in range(0, config.d_v, VALUE_COLUMNS):
            of_values = min(VALUE_COLUMNS, value_width - column)
            moved += n_queries * config.d_k * FLOAT + keys * (size * (key_width + of_values) + 2 * scale)
            moved += n_full_rows * FLOAT * min(VALUE_COLUMNS, config.d_v - column)
        moved += 2 * FLOAT * n_rows
    key_bytes = NUMBER[kv_dtype] * (key_width + value_width) + 2 * SCALE[kv_dtype]
    return grid[1] * moved, cut.least(kv_dtype, key_bytes)


def float_attention(cut: Cut, grid: Grid) -> tuple[float, float]:
    """The same over rings of float32."""
    config, moved = cut.config, 0.0
    for token in cut.tokens("f32"):
        spans = list(cut.pieces(token, token))
        for first in range(0, cut.n_pieces, PLACE_WARPS):
            full = [
                (number < cut.sink_pieces, start, stop)
                for number, (start, stop) in enumerate(spans)
                if first <= number < first + PLACE_WARPS and start < stop
            ]
            keys = sum(stop - start for _, start, stop in full)
            moved += FLOAT * (len({is_sinks for is_sinks, _, _ in full}) * config.d_k + len(full) * config.d_v)
            moved += FLOAT * keys * (config.d_k + config.d_v)
        moved += 2 * FLOAT * cut.n_pieces
    return config.n_heads * moved, cut.least("f32", FLOAT * (config.d_k + config.d_v))


def merged(cut: Cut, d_v: int, threads: int) -> float:
    """What putting the pieces together reads."""
    width, n_full = cut.config.n_heads * d_v, cut.n_full
    heads = sum((min(first + threads, width) - 1) // d_v - first // d_v + 1 for first in range(0, width, threads))
    return float(FLOAT * heads * (len(cut.batch.token_ids) * cut.n_pieces + n_full) + FLOAT * width * n_full)
