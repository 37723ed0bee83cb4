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

from ringlet.plugins.backends.cpu.memory import load_at, loader, store_at
from ringlet.plugins.backends.cpu.simd import I8, I16, I32, Vector, broadcast, call, constant
from ringlet.plugins.backends.cpu.target import FEATURES, IS_ARM64, IS_X86, LANES

HAS_AVX512_VNNI = IS_X86 and {"avx512vnni", "avx512vl"} <= FEATURES
HAS_VNNI = HAS_AVX512_VNNI or (IS_X86 and "avxvnni" in FEATURES)
HAS_AVX2 = IS_X86 and "avx2" in FEATURES
HAS_ARM_DOT = IS_ARM64 and "dotprod" in FEATURES

# Unsigned bytes above 127 are of use where one instruction multiplies them with signed ones.
TAKES_WIDE_UNSIGNED = HAS_VNNI

f32x4 = Vector("f32", 4)
u8s, i8s, i32s = Vector("u8", 4 * LANES), Vector("i8", 4 * LANES), Vector("i32", LANES)

load_u8s, load_i8s, load_i32s = (loader(vector, vector.llvm) for vector in (u8s, i8s, i32s))
load_u16s = loader(i32s, ir.VectorType(I16, LANES), lambda builder, value: builder.zext(value, i32s.llvm))


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
def flip_top_bits(typingctx, vector):
    """Signed bytes plus 128, as unsigned ones."""

    def generate(context, builder, sig, args):
        return builder.xor(args[0], constant(vector.llvm, 0x80))

    return vector.of("u8")(vector), generate


@intrinsic
def zeros_i32s(typingctx):
    def generate(context, builder, sig, args):
        return constant(i32s.llvm, 0)

    return i32s(), generate


@intrinsic
def repeat_four(typingctx, address):
    """The four signed bytes at the address, over and over."""

    def generate(context, builder, sig, args):
        return builder.bitcast(broadcast(builder, load_at(builder, args[0], I32), LANES), i8s.llvm)

    return i8s(types.int64), generate


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
def bits(typingctx, vector, shift, mask):
    """Some bits of each byte, as numbers: (byte >> shift) & mask. They lie within the byte."""

    def generate(context, builder, sig, args):
        words = builder.bitcast(args[0], i32s.llvm)
        shifted = builder.bitcast(_shifted(builder, words, args[1]), vector.llvm)
        return builder.and_(shifted, broadcast(builder, builder.trunc(args[2], I8), vector.lanes))

    return vector(vector, types.int64, types.int64), generate


@intrinsic
def bits_of_words(typingctx, words, shift, mask):
    """(word >> shift) & mask."""

    def generate(context, builder, sig, args):
        mask = broadcast(builder, builder.trunc(args[2], I32), LANES)
        return builder.and_(_shifted(builder, args[0], args[1]), mask)

    return i32s(i32s, types.int64, types.int64), generate


def _shifted(builder: Any, words: Any, shift: Any) -> Any:
    return builder.lshr(words, broadcast(builder, builder.trunc(shift, I32), LANES))


@intrinsic
def spread_bits(typingctx, words, first, place):
    """Four neighbouring bits of each word, from `first` on: one in each of its bytes, at the place there."""

    def generate(context, builder, sig, args):
        four_bits = builder.and_(_shifted(builder, args[0], args[1]), constant(i32s.llvm, 15))
        copies = builder.mul(four_bits, constant(i32s.llvm, 0x00204081))  # bit i at the bottom of byte i
        spread = builder.and_(copies, constant(i32s.llvm, 0x01010101))
        placed = builder.shl(spread, broadcast(builder, builder.trunc(args[2], I32), LANES))
        return builder.bitcast(placed, u8s.llvm)

    return u8s(i32s, types.int64, types.int64), generate


def byte_table(values: Any, offset: float) -> Any:
    """A function that looks up each byte of u8s, a number below 16, in 16 int8 values; they come plus the offset as
    u8s, or without one as i8s."""
    table = [(int(value) + int(offset)) & 255 for value in values]
    result = u8s if offset else i8s

    @intrinsic
    def look_up(typingctx, index):
        def generate(context, builder, sig, args):
            if HAS_AVX2:
                return _x86_shuffle(builder, args[0], table)
            found = constant(result.llvm, table[0])
            for place, value in enumerate(table[1:], start=1):
                here = builder.icmp_unsigned("==", args[0], constant(u8s.llvm, place))
                found = builder.select(here, constant(result.llvm, value), found)
            return found

        return result(u8s), generate

    return look_up


def _x86_shuffle(builder: Any, index: Any, table: list[int]) -> Any:
    n = index.type.count
    bytes = ir.Constant(index.type, table * (n // 16))
    name = "llvm.x86.avx512.pshuf.b.512" if n == 64 else "llvm.x86.avx2.pshuf.b"
    return call(builder, name, index.type, [bytes, index])
