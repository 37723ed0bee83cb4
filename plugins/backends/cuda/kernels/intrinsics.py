"""Single instructions of the GPU as functions; `twins` holds a plain twin of each, which the simulator runs.

A word is 32 bits. Positions in memory count bytes from the pointer, unless said otherwise. Numba's integers have 64
bits; the compiler narrows them again where only words go in and out.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
GLOBAL, SHARED = 1, 3  # address spaces


def word(builder: Any, value: Any) -> Any:
    """The lower 32 bits of an integer."""
    return builder.trunc(value, I32) if value.type.width > 32 else value


def returned(context: Any, builder: Any, signature: Any, values: list[Any]) -> Any:
    return context.make_tuple(builder, signature.return_type, values)


def elements(builder: Any, vector: Any, n: int) -> list[Any]:
    return [builder.extract_element(vector, I32(i)) for i in range(n)]


def at(builder: Any, pointer: Any, offset: Any, kind: Any) -> Any:
    """The global address `offset` bytes from the pointer, as a pointer to `kind`."""
    base = builder.bitcast(pointer, ir.PointerType(I8, pointer.type.addrspace))
    base = builder.addrspacecast(base, ir.PointerType(I8, GLOBAL))
    return builder.bitcast(builder.gep(base, [offset]), ir.PointerType(kind, GLOBAL))


def wide_loader(result: Any, kind: Any, n: int, size: int) -> Any:
    """A load of n values at once, aligned to the bytes of all; as a tuple."""

    @intrinsic
    def load(typingctx, pointer, offset):
        def generate(context, builder, signature, args):
            place = at(builder, args[0], args[1], ir.VectorType(kind, n))
            return returned(context, builder, signature, elements(builder, builder.load(place, align=size), n))

        return types.UniTuple(result, n)(pointer, types.int64), generate

    return load


load_words4 = wide_loader(types.uint32, I32, 4, 16)
load_words2 = wide_loader(types.uint32, I32, 2, 8)
load_floats4 = wide_loader(types.float32, F32, 4, 16)


@intrinsic
def load_word(typingctx, pointer, offset):
    """Aligned to 4 bytes."""

    def generate(context, builder, signature, args):
        return builder.load(at(builder, args[0], args[1], I32), align=4)

    return types.uint32(pointer, types.int64), generate


@intrinsic
def load_short(typingctx, pointer, offset):
    """Two bytes as a word; aligned to 2 bytes."""

    def generate(context, builder, signature, args):
        return builder.zext(builder.load(at(builder, args[0], args[1], I16), align=2), I32)

    return types.uint32(pointer, types.int64), generate


@intrinsic
def half_of(typingctx, bits):
    """float32 of the float16 in the lower half of a word."""

    def generate(context, builder, signature, args):
        return builder.fpext(builder.bitcast(builder.trunc(args[0], I16), F16), F32)

    return types.float32(bits), generate


@intrinsic
def float_of(typingctx, bits):
    """The float32 that has these 32 bits."""

    def generate(context, builder, signature, args):
        return builder.bitcast(word(builder, args[0]), F32)

    return types.float32(bits), generate


@intrinsic
def bits_of(typingctx, value):
    """The 32 bits of a float32, as a word."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], I32)

    return types.uint32(types.float32), generate


@intrinsic
def nearest(typingctx, value):
    """The nearest int32, ties to even."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(I32, [F32])
        return builder.call(ir.InlineAsm(kind, "cvt.rni.s32.f32 $0, $1;", "=r,f"), args)

    return types.int32(types.float32), generate


@intrinsic
def signed_byte(typingctx, bits, index):
    """The index-th byte of a word, from the lowest, as an int32."""

    def generate(context, builder, signature, args):
        shift = builder.mul(word(builder, args[1]), I32(8))
        byte = builder.trunc(builder.lshr(word(builder, args[0]), shift), I8)
        return builder.sext(byte, I32)

    return types.int32(bits, index), generate


@intrinsic
def dot4(typingctx, a, b, total):
    """total + Σ aᵢ·bᵢ over the four signed bytes of two words: dp4a."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(I32, [I32] * 3)
        instruction = ir.InlineAsm(kind, "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r")
        return builder.call(instruction, [word(builder, value) for value in args])

    return types.int32(a, b, total), generate


@intrinsic
def permute_bytes(typingctx, a, b, selector):
    """A word of bytes of a (0 to 3) and b (4 to 7) that the four lowest nibbles of the selector name: prmt."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(I32, [I32] * 3)
        instruction = ir.InlineAsm(kind, "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r")
        return builder.call(instruction, [word(builder, value) for value in args])

    return types.uint32(a, b, selector), generate


@intrinsic
def pack_halves(typingctx, low, high):
    """Two float32 rounded to float16, in a word."""

    def generate(context, builder, signature, args):
        vector = ir.Constant(ir.VectorType(F16, 2), ir.Undefined)
        for index, value in enumerate(args):
            vector = builder.insert_element(vector, builder.fptrunc(value, F16), I32(index))
        return builder.bitcast(vector, I32)

    return types.uint32(types.float32, types.float32), generate


@intrinsic
def pack_bfloats(typingctx, low, high):
    """Two float32 rounded to bfloat16, in a word; from compute capability 8.0 on."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(I32, [F32] * 2)
        instruction = ir.InlineAsm(kind, "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f")
        return builder.call(instruction, [args[1], args[0]])

    return types.uint32(types.float32, types.float32), generate


def _product_of_fragments(kind: str) -> Any:
    """mma.sync on 16×16 by 16×8: see `mma_halves`."""
    text = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "
    text += "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
    return _mma(lambda builder, c, a, b: _call_mma(builder, text, c, a, b))


def _call_mma(builder: Any, text: str, c: list[Any], a: list[Any], b: list[Any]) -> list[Any]:
    kind = ir.FunctionType(ir.LiteralStructType([F32] * 4), [I32] * (len(a) + len(b)) + [F32] * 4)
    constraints = ",".join(["=f"] * 4 + ["r"] * (len(a) + len(b)) + ["f"] * 4)
    result = builder.call(ir.InlineAsm(kind, text, constraints), [*a, *b, *c])
    return [builder.extract_value(result, i) for i in range(4)]


def _mma(emit: Any) -> Any:
    @intrinsic
    def mma(typingctx, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
        def generate(context, builder, signature, args):
            c, a, b = list(args[:4]), args[4:8], args[8:]
            words = [[word(builder, value) for value in part] for part in (a, b)]
            return returned(context, builder, signature, emit(builder, c, *words))

        floats, words = [types.float32] * 4, [a0, a1, a2, a3, b0, b1]
        return types.UniTuple(types.float32, 4)(*floats, *words), generate

    return mma


def _two_products(builder: Any, c: list[Any], a: list[Any], b: list[Any]) -> list[Any]:
    """The same for GPUs before 8.0, which multiply 16×8 by 8×8."""
    text = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$4,$5}, {$6}, {$7,$8,$9,$10};"
    c = _call_mma(builder, text, c, a[:2], b[:1])
    return _call_mma(builder, text, c, a[2:], b[1:])


# c + A·B of a warp's 32 lanes together, in float32. With group = lane // 4 and pair = lane % 4, a lane holds of
# C (16, 8): c0, c1 at (group, 2·pair + 0 and 1), c2, c3 eight rows below; of A (16, 16), two values a word: a0 at
# (group, 2·pair), a1 eight rows below, a2 and a3 eight columns on; of B (16, 8): b0 at (2·pair, group), b1 eight rows
# below.
mma_bfloats = _product_of_fragments("bf16")
mma_halves = _product_of_fragments("f16")
mma_halves_75 = _mma(_two_products)


@intrinsic
def load_matrices4(typingctx, array, offset):
    """Four 8×8 matrices of 16-bit numbers from a shared array of words: ldmatrix.

    Lane 8·i + r names the row r of matrix i by the offset of its first word, a multiple of 4; every lane gets two
    numbers of each matrix: row lane // 4, columns 2·(lane % 4) and the next.
    """

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.gep(data, [args[1]])
        place = builder.addrspacecast(place, ir.PointerType(place.type.pointee, SHARED))
        kind = ir.FunctionType(ir.LiteralStructType([I32] * 4), [I32])
        text = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];"
        instruction = ir.InlineAsm(kind, text, "=r,=r,=r,=r,r,~{memory}", side_effect=True)
        result = builder.call(instruction, [builder.ptrtoint(place, I32)])
        return returned(context, builder, signature, [builder.extract_value(result, i) for i in range(4)])

    return types.UniTuple(types.uint32, 4)(array, types.int64), generate


@intrinsic
def load_shared4(typingctx, array, offset):
    """Four words of a shared array at once; the offset, in words, is a multiple of 4."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.gep(data, [args[1]])
        place = builder.addrspacecast(place, ir.PointerType(place.type.pointee, SHARED))
        place = builder.bitcast(place, ir.PointerType(ir.VectorType(I32, 4), SHARED))
        return returned(context, builder, signature, elements(builder, builder.load(place, align=16), 4))

    return types.UniTuple(types.uint32, 4)(array, types.int64), generate


def _pointer_to(kind: Any, element: Any) -> Any:
    @intrinsic
    def pointer(typingctx, address):
        def generate(context, builder, signature, args):
            place = builder.inttoptr(args[0], ir.PointerType(element, GLOBAL))
            return builder.addrspacecast(place, ir.PointerType(element))

        return types.CPointer(kind)(types.int64), generate

    return pointer


longs_at = _pointer_to(types.int64, I64)
shorts_at = _pointer_to(types.uint16, I16)
bytes_at = _pointer_to(types.int8, I8)
floats_at = _pointer_to(types.float32, F32)
