"""Vectors of bytes: their dot product, which is the heart of the integer kernels, and what brings bytes into place.

A weight's byte is signed, or unsigned where the format says so; an activation's byte is signed. The target decides how
the products are summed: by one instruction where it has one (AVX-512 VNNI, AVX-VNNI, Arm's dot product), by two on
AVX2, by portable vector IR elsewhere.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ringlet.plugins.backends.cpu.memory import half_to_float, load_at, loader, store_at
from ringlet.plugins.backends.cpu.simd import F32, I8, I16, I32, Vector, broadcast, call, constant
from ringlet.plugins.backends.cpu.target import FEATURES, IS_ARM64, IS_X86, LANES

HAS_AVX512_VNNI = IS_X86 and {"avx512vnni", "avx512vl"} <= FEATURES
HAS_VNNI = HAS_AVX512_VNNI or (IS_X86 and "avxvnni" in FEATURES)
HAS_AVX2 = IS_X86 and "avx2" in FEATURES
HAS_ARM_DOT = IS_ARM64 and "dotprod" in FEATURES

# Unsigned bytes above 127 are of use where one instruction multiplies them with signed ones.
TAKES_WIDE_UNSIGNED = HAS_VNNI

u8x32, i8x32, i32x8, f32x8, f32x4 = (
    Vector(e, n) for e, n in (("u8", 32), ("i8", 32), ("i32", 8), ("f32", 8), ("f32", 4))
)
u8x8 = Vector("u8", 8)
u8s, i8s, i32s = Vector("u8", 4 * LANES), Vector("i8", 4 * LANES), Vector("i32", LANES)

load_u8x32, load_i8x32 = loader(u8x32, u8x32.llvm), loader(i8x32, i8x32.llvm)
load_f32x8 = loader(f32x8, f32x8.llvm)
load_f32_x4 = loader(f32x4, F32, lambda builder, value: broadcast(builder, value, 4))
load_u8s, load_i8s, load_i32s = (loader(vector, vector.llvm) for vector in (u8s, i8s, i32s))


def pick(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    """The lanes of a and b, side by side, at the places."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(places)), places))


@intrinsic
def dot(typingctx, total, weights, activations):
    """total + the sums of four neighbouring products each, in int32 lanes.

    weights: signed, or unsigned; unsigned ones are at most 127 unless TAKES_WIDE_UNSIGNED.
    """
    is_unsigned = weights.element == "u8"

    def generate(context, builder, sig, args):
        if HAS_VNNI and is_unsigned:
            return _vnni(builder, args[0], args[1], args[2])
        if HAS_VNNI or HAS_AVX2:
            return _by_signs(builder, args[0], args[1], args[2], is_unsigned)
        if HAS_ARM_DOT:
            return _in_parts(builder, args[0], args[1], args[2], 4, _arm_dot)
        return _portable(builder, args[0], args[1], args[2], is_unsigned)

    return total(total, weights, activations), generate


def _vnni(builder: Any, total: Any, weights: Any, activations: Any) -> Any:
    n = total.type.count
    if not HAS_AVX512_VNNI and n > 8:
        return _in_parts(builder, total, weights, activations, 8, _vnni)
    return call(builder, f"llvm.x86.avx512.vpdpbusd.{32 * n}", total.type, [total, weights, activations])


def _by_signs(builder: Any, total: Any, weights: Any, activations: Any, is_unsigned: bool) -> Any:
    """|w|·(a with w's sign): with |w| unsigned. Pairs are summed in int16, where two of at most 128·127 have room."""
    if total.type.count > 8:
        return _in_parts(builder, total, weights, activations, 8, lambda b, t, w, a: _by_signs(b, t, w, a, is_unsigned))
    if not is_unsigned:
        activations = call(builder, "llvm.x86.avx2.psign.b", weights.type, [activations, weights])
        weights = call(builder, f"llvm.abs.v{weights.type.count}i8", weights.type, [weights, ir.IntType(1)(0)])
    if HAS_VNNI:
        return _vnni(builder, total, weights, activations)
    shorts = ir.VectorType(I16, 16)
    pairs = call(builder, "llvm.x86.avx2.pmadd.ub.sw", shorts, [weights, activations])
    fours = call(builder, "llvm.x86.avx2.pmadd.wd", total.type, [pairs, constant(shorts, 1)])
    return builder.add(total, fours)


def _arm_dot(builder: Any, total: Any, weights: Any, activations: Any) -> Any:
    return call(builder, "llvm.aarch64.neon.sdot.v4i32.v16i8", total.type, [total, weights, activations])


def _in_parts(builder: Any, total: Any, weights: Any, activations: Any, lanes: int, part: Any) -> Any:
    """The dot product of wide vectors, `lanes` int32 lanes at a time."""
    n = total.type.count
    parts = []
    for start in range(0, n, lanes):
        ints, eights = list(range(start, start + lanes)), list(range(4 * start, 4 * (start + lanes)))
        vectors = pick(builder, total, total, ints), pick(builder, weights, weights, eights)
        parts.append(part(builder, *vectors, pick(builder, activations, activations, eights)))
    while len(parts) > 1:
        places = list(range(2 * parts[0].type.count))
        parts = [pick(builder, a, b, places) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _portable(builder: Any, total: Any, weights: Any, activations: Any, is_unsigned: bool) -> Any:
    n = weights.type.count
    shorts, ints = ir.VectorType(I16, n), ir.VectorType(I32, n)
    widened = (builder.zext if is_unsigned else builder.sext)(weights, shorts)
    products = builder.sext(builder.mul(widened, builder.sext(activations, shorts)), ints)
    for place in range(4):
        total = builder.add(total, pick(builder, products, products, list(range(place, n, 4))))
    return total


@intrinsic
def join(typingctx, a, b):
    """The lanes of a, then those of b."""
    both = Vector(a.element, 2 * a.lanes)

    def generate(context, builder, sig, args):
        return pick(builder, args[0], args[1], list(range(both.lanes)))

    return both(a, a), generate


@intrinsic
def flip_top_bits(typingctx, vector):
    """Signed bytes plus 128, as unsigned ones."""

    def generate(context, builder, sig, args):
        return builder.xor(args[0], constant(vector.llvm, 0x80))

    return vector.of("u8")(vector), generate


def _zeros(vector: Vector) -> Any:
    @intrinsic
    def zeros(typingctx):
        def generate(context, builder, sig, args):
            return constant(vector.llvm, 0)

        return vector(), generate

    return zeros


zeros_i32x8, zeros_i32s, zeros_f32x8, zeros_f32x4 = map(_zeros, (i32x8, i32s, f32x8, f32x4))


@intrinsic
def repeat_four(typingctx, address):
    """The four signed bytes at the address, over and over."""

    def generate(context, builder, sig, args):
        return builder.bitcast(broadcast(builder, load_at(builder, args[0], I32), LANES), i8s.llvm)

    return i8s(types.int64), generate


@intrinsic
def load_two_halves(typingctx, address):
    """Two neighbouring float16 in the first lanes of f32x4, zeros in the others."""

    def generate(context, builder, sig, args):
        both = builder.insert_element(constant(ir.VectorType(I32, 2), 0), load_at(builder, args[0], I32), I32(0))
        return half_to_float(builder, builder.bitcast(both, ir.VectorType(I16, 4)))

    return f32x4(types.int64), generate


@intrinsic
def four(typingctx, a, b, c, d):
    """f32x4 of four numbers."""

    def generate(context, builder, sig, args):
        vector = ir.Constant(f32x4.llvm, ir.Undefined)
        for place, value in enumerate(args):
            vector = builder.insert_element(vector, value, I32(place))
        return vector

    return f32x4(*[types.float32] * 4), generate


@intrinsic
def to_i32(typingctx, vector):
    """float32 lanes that hold whole numbers, as int32; what does not fit becomes the nearest that does, NaN 0."""
    result = vector.of("i32")

    def generate(context, builder, sig, args):
        n = vector.lanes
        return call(builder, f"llvm.fptosi.sat.v{n}i32.v{n}f32", result.llvm, args)

    return result(vector), generate


@intrinsic
def sum_of_ints(typingctx, vector):
    def generate(context, builder, sig, args):
        return call(builder, f"llvm.vector.reduce.add.v{vector.lanes}i32", I32, args)

    return types.int32(vector), generate


@intrinsic
def store_bytes(typingctx, address, vector):
    """The low byte of each int32 lane."""

    def generate(context, builder, sig, args):
        store_at(builder, builder.trunc(args[1], ir.VectorType(I8, vector.lanes)), args[0])
        return context.get_dummy_value()

    return types.void(types.int64, vector), generate


@intrinsic
def bits_x32(typingctx, mask, value):
    """u8x32: the value in lane i where bit i of the 32-bit mask is set, else 0."""

    def generate(context, builder, sig, args):
        bits = builder.bitcast(builder.trunc(args[0], I32), ir.VectorType(ir.IntType(1), 32))
        values = broadcast(builder, builder.trunc(args[1], I8), 32)
        return builder.select(bits, values, constant(u8x32.llvm, 0))

    return u8x32(types.int64, types.int64), generate


@intrinsic
def bytes_of_i64(typingctx, value):
    """u8x8: the eight bytes of a number, the lowest first."""

    def generate(context, builder, sig, args):
        return builder.bitcast(args[0], u8x8.llvm)

    return u8x8(types.int64), generate


@intrinsic
def load_half_x8(typingctx, address):
    """One float16 in every lane of f32x8."""

    def generate(context, builder, sig, args):
        return half_to_float(builder, broadcast(builder, load_at(builder, args[0], I16), 8))

    return f32x8(types.int64), generate


def _rearranged(source: Vector, result: Vector, places: list[int]) -> Any:
    @intrinsic
    def rearrange(typingctx, vector):
        def generate(context, builder, sig, args):
            return pick(builder, args[0], args[0], places)

        return result(source), generate

    return rearrange


spread_first = _rearranged(f32x4, f32x8, [0] * 8)
lower_half = _rearranged(f32x8, f32x4, [0, 1, 2, 3])


@intrinsic(prefer_literal=True)
def spread_lane(typingctx, vector, lane):
    """The lane, a number in the source, in every lane of f32x8."""
    if not isinstance(lane, types.IntegerLiteral):
        return None

    def generate(context, builder, sig, args):
        return pick(builder, args[0], args[0], [lane.literal_value] * 8)

    return f32x8(f32x8, lane), generate


@intrinsic(prefer_literal=True)
def spread_lanes(typingctx, vector, pair):
    """Two neighbouring lanes of f32x8, the pair a number in the source: one in the first half, one in the second."""
    if not isinstance(pair, types.IntegerLiteral):
        return None

    def generate(context, builder, sig, args):
        first = 2 * pair.literal_value
        return pick(builder, args[0], args[0], [first] * 4 + [first + 1] * 4)

    return f32x8(f32x8, pair), generate


def _rows_reader(element: str) -> Any:
    """A function that brings the bytes of LANES rows together: see `columns_of_rows`."""
    row, column = Vector(element, 32), Vector(element, 4 * LANES)

    @intrinsic
    def columns(typingctx, rows):
        result = types.UniTuple(column, 8)

        def generate(context, builder, sig, args):
            fours = ir.VectorType(I32, 8)
            parts = [builder.bitcast(builder.extract_value(args[0], r), fours) for r in range(LANES)]
            turned = [_transpose(builder, parts[start : start + 8]) for start in range(0, LANES, 8)]
            while len(turned) > 1:
                turned = [[pick(builder, a, b, list(range(16))) for a, b in zip(*turned, strict=True)]]
            return context.make_tuple(builder, result, [builder.bitcast(c, column.llvm) for c in turned[0]])

        return result(types.UniTuple(row, LANES)), generate

    return columns


def _transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """8 vectors of 8 lanes, rows to columns."""
    a = []
    for x, y in zip(rows[::2], rows[1::2], strict=True):
        a += [pick(builder, x, y, [0, 8, 1, 9, 4, 12, 5, 13]), pick(builder, x, y, [2, 10, 3, 11, 6, 14, 7, 15])]
    b = []
    for start in (0, 4):
        for low, high in ((a[start], a[start + 2]), (a[start + 1], a[start + 3])):
            b += [
                pick(builder, low, high, [0, 1, 8, 9, 4, 5, 12, 13]),
                pick(builder, low, high, [2, 3, 10, 11, 6, 7, 14, 15]),
            ]
    firsts = [pick(builder, b[i], b[i + 4], [0, 1, 2, 3, 8, 9, 10, 11]) for i in range(4)]
    return firsts + [pick(builder, b[i], b[i + 4], [4, 5, 6, 7, 12, 13, 14, 15]) for i in range(4)]


# Of LANES rows of 32 bytes each: 8 vectors, the j-th with bytes 4j to 4j + 3 of every row.
columns_of_unsigned, columns_of_signed = _rows_reader("u8"), _rows_reader("i8")
