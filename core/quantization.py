"""Block formats of weights: how many weights share a block of how many bytes, and their values in float32.

A block is a run of a row's weights. The layouts are those of ggml (`ggml-common.h`), the sums those of its
`dequantize_row_*`, in the same order, so that the values are the same to the last bit. In the docstrings, d and m are
float16, q are the integers, and bytes count from the block's first; numbers of several bytes are little-endian.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

WEIGHTS_AT_ONCE = 1 << 17  # unpacked together: few enough that the steps between stay in the processor's cache
IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


@dataclass(frozen=True)
class BlockFormat:
    n_weights: int  # weights in a block
    n_bytes: int  # bytes of a block
    gguf_type: int  # the number GGUF gives the format


BLOCK_FORMATS: dict[str, BlockFormat] = {
    "F32": BlockFormat(1, 4, 0),
    "F16": BlockFormat(1, 2, 1),
    "Q4_0": BlockFormat(32, 18, 2),
    "Q4_1": BlockFormat(32, 20, 3),
    "Q5_0": BlockFormat(32, 22, 6),
    "Q5_1": BlockFormat(32, 24, 7),
    "Q8_0": BlockFormat(32, 34, 8),
    "Q2_K": BlockFormat(256, 84, 10),
    "Q3_K": BlockFormat(256, 110, 11),
    "Q4_K": BlockFormat(256, 144, 12),
    "Q5_K": BlockFormat(256, 176, 13),
    "Q6_K": BlockFormat(256, 210, 14),
    "IQ4_NL": BlockFormat(32, 18, 20),
    "IQ4_XS": BlockFormat(256, 136, 23),
    "BF16": BlockFormat(1, 2, 30),
}


def dequantize(data: np.ndarray, format: str, n_columns: int) -> np.ndarray:
    """float32 (n_rows, n_columns) from uint8 (n_rows, bytes of a row) in the named block format.

    F32 comes back as a view of `data` where its memory is aligned, everything else as a new array.
    """
    n_rows = len(data)
    if format == "F32":
        return np.require(np.ascontiguousarray(data).view("<f4"), np.float32, ["C", "A"]).reshape(n_rows, n_columns)
    unpack, block = UNPACK[format], BLOCK_FORMATS[format]
    values = np.empty((n_rows, n_columns), np.float32)
    rows_at_once = max(1, WEIGHTS_AT_ONCE // max(1, n_columns))
    for start in range(0, n_rows, rows_at_once):
        rows = np.ascontiguousarray(data[start : start + rows_at_once])
        values[start : start + len(rows)] = unpack(rows.reshape(-1, block.n_bytes)).reshape(len(rows), n_columns)
    return values


# Each of these takes uint8 (n, bytes of a block) and returns float32 (n, weights of a block), or a shape that has the
# weights in the same order.


def _f16(blocks: np.ndarray) -> np.ndarray:
    """One float16."""
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: np.ndarray) -> np.ndarray:
    """One bfloat16: the upper half of a float32."""
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    """w = d·(q - 8). Bytes 0-1 d; 2-17 q, weights 0-15 in the low and 16-31 in the high halves."""
    q = _fields(blocks[:, 2:], 4, 16).reshape(-1, 32) - np.int8(8)
    return _f16(blocks[:, :2]) * q.astype(np.float32)


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    """w = d·q + m. Bytes 0-1 d; 2-3 m; 4-19 q as in Q4_0."""
    q = _fields(blocks[:, 4:], 4, 16).reshape(-1, 32)
    return _f16(blocks[:, 0:2]) * q.astype(np.float32) + _f16(blocks[:, 2:4])


def _q5_0(blocks: np.ndarray) -> np.ndarray:
    """w = d·(q - 16). Bytes 0-1 d; 2-5 the fifth bit of each q, in order; 6-21 the four lower bits as in Q4_0."""
    q = (_fields(blocks[:, 6:], 4, 16).reshape(-1, 32) | _bits(blocks[:, 2:6]) << 4) - np.int8(16)
    return _f16(blocks[:, :2]) * q.astype(np.float32)


def _q5_1(blocks: np.ndarray) -> np.ndarray:
    """w = d·q + m. Bytes 0-1 d; 2-3 m; 4-7 the fifth bits and 8-23 the lower bits as in Q5_0."""
    q = _fields(blocks[:, 8:], 4, 16).reshape(-1, 32) | _bits(blocks[:, 4:8]) << 4
    return _f16(blocks[:, 0:2]) * q.astype(np.float32) + _f16(blocks[:, 2:4])


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    """w = d·q. Bytes 0-1 d; 2-33 q, int8."""
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _f16(blocks[:, :2])


def _q2_k(blocks: np.ndarray) -> np.ndarray:
    """w = (d·s)·q - (m·t), s and t one a run of 16 weights.

    Bytes 0-15 s in the low and t in the high halves; 16-79 q, two bits each: of each 32 bytes the lowest bits are the
    first 32 weights, the next bits the next 32; 80-81 d; 82-83 m.
    """
    s, t = (blocks[:, :16] & 15).astype(np.float32), (blocks[:, :16] >> 4).astype(np.float32)
    q = _fields(blocks[:, 16:80], 2, 32).reshape(-1, 16, 16).astype(np.float32)
    return (_f16(blocks[:, 80:82]) * s)[:, :, None] * q - (_f16(blocks[:, 82:84]) * t)[:, :, None]


def _q3_k(blocks: np.ndarray) -> np.ndarray:
    """w = d·(s - 32)·(q - 4), s of six bits, one a run of 16 weights.

    Bytes 0-31 the third bit of each q, bit i for weights 32i to 32i + 31; 32-95 the two lower bits as in Q2_K; 96-103
    the four lower bits of s, 0-7 in the low and 8-15 in the high halves; 104-107 the two upper bits, s 0-3 lowest;
    108-109 d.
    """
    low, high = _fields(blocks[:, 96:104], 4, 8).reshape(-1, 16), _fields(blocks[:, 104:108], 2, 4).reshape(-1, 16)
    s = ((low | high << 4) - np.int8(32)).astype(np.float32)
    third_bits = _fields(blocks[:, :32], 1, 32).reshape(-1, 16, 16)
    q = (_fields(blocks[:, 32:96], 2, 32).reshape(-1, 16, 16) | third_bits << 2) - np.int8(4)
    return (_f16(blocks[:, 108:110]) * s)[:, :, None] * q.astype(np.float32)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    """w = (d·s)·q - (m·t), s and t of six bits, one a run of 32 weights.

    Bytes 0-1 d; 2-3 m; 4-15 s and t (see `_six_bit_scales`); 16-143 q, four bits each: of each 32 bytes the low halves
    are the first 32 weights, the high halves the next 32.
    """
    scale, minimum = _six_bit_scales(blocks)
    return scale * _fields(blocks[:, 16:], 4, 32).reshape(-1, 8, 32).astype(np.float32) - minimum


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    """w = (d·s)·q - (m·t). Bytes 0-15 as in Q4_K; 16-47 the fifth bit of each q, bit i for weights 32i to 32i + 31;
    48-175 the four lower bits as in Q4_K."""
    scale, minimum = _six_bit_scales(blocks)
    fifth_bits = _fields(blocks[:, 16:48], 1, 32).reshape(-1, 8, 32)
    q = _fields(blocks[:, 48:], 4, 32).reshape(-1, 8, 32) | fifth_bits << 4
    return scale * q.astype(np.float32) - minimum


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    """w = (d·s)·(q - 32), s one a run of 16 weights.

    Bytes 0-127 the four lower bits of q: of each 64 bytes the low halves are the first 64 weights, the high halves the
    next 64; 128-191 the two upper bits, laid out as in Q2_K; 192-207 s, int8; 208-209 d.
    """
    low, high = _fields(blocks[:, :128], 4, 64).reshape(-1, 16, 16), _fields(blocks[:, 128:192], 2, 32)
    q = (low | high.reshape(-1, 16, 16) << 4) - np.int8(32)
    s = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (_f16(blocks[:, 208:210]) * s)[:, :, None] * q.astype(np.float32)


def _iq4_nl(blocks: np.ndarray) -> np.ndarray:
    """w = d·IQ4_VALUES[q]. Bytes as in Q4_0."""
    return _f16(blocks[:, :2]) * IQ4_VALUES[_fields(blocks[:, 2:], 4, 16).reshape(-1, 32)]


def _iq4_xs(blocks: np.ndarray) -> np.ndarray:
    """w = d·(s - 32)·IQ4_VALUES[q], s of six bits, one a run of 32 weights.

    Bytes 0-1 d; 2-3 the two upper bits of each s, in order; 4-7 its four lower bits, two to a byte, the first in the
    low half; 8-135 q: each run's 16 bytes as in Q4_0.
    """
    low, high = _fields(blocks[:, 4:8], 4, 1).reshape(-1, 8), _fields(blocks[:, 2:4], 2, 1).reshape(-1, 8)
    s = ((low | high << 4) - np.int8(32)).astype(np.float32)
    return (_f16(blocks[:, :2]) * s)[:, :, None] * IQ4_VALUES[_fields(blocks[:, 8:], 4, 16)].reshape(-1, 8, 32)


def _six_bit_scales(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """d·s and m·t of Q4_K and Q5_K, float32 (n, 8, 1) each.

    Bytes 4-7 s 0-3, 8-11 t 0-3 in their six lower bits; 12-15 the four lower bits of s 4-7 in the low and of t 4-7 in
    the high halves; their two upper bits stand in the upper bits of bytes 4-7 and 8-11.
    """
    s, t, both = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([s & 63, both & 15 | s >> 2 & 48], axis=1).astype(np.float32)
    minima = np.concatenate([t & 63, both >> 4 | t >> 2 & 48], axis=1).astype(np.float32)
    return (_f16(blocks[:, 0:2]) * scales)[:, :, None], (_f16(blocks[:, 2:4]) * minima)[:, :, None]


def _fields(packed: np.ndarray, width: int, run: int) -> np.ndarray:
    """int8 (n, runs, 8/width, run): of each `run` bytes all lowest bit fields, then all the next, and so on."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    fields = packed.reshape(len(packed), packed.shape[1] // run, 1, run) >> shifts & np.uint8((1 << width) - 1)
    return fields.view(np.int8)


def _bits(packed: np.ndarray) -> np.ndarray:
    """int8 (n, 8·bytes), the bits in order, lowest first."""
    return np.unpackbits(packed, axis=1, bitorder="little").view(np.int8)


UNPACK: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "F16": _f16,
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
}
