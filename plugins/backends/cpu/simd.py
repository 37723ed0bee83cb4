"""SIMD vectors as values inside kernels: a Numba type whose value is an LLVM vector.

`a + b`, `a * 2`, `a < b`, `a & 15` and the functions below each emit one or two LLVM instructions of portable vector
IR, which LLVM lowers for any CPU. Nothing is reassociated or fused but where a function says so.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model

from ringlet.plugins.backends.cpu.target import LANES

I1, I8, I16, I32 = ir.IntType(1), ir.IntType(8), ir.IntType(16), ir.IntType(32)
F32 = ir.FloatType()
ELEMENTS = {
    "mask": (I1, types.boolean),
    "u8": (I8, types.uint8),
    "i8": (I8, types.int8),
    "i32": (I32, types.int32),
    "f32": (F32, types.float32),
}


class Vector(types.Type):
    """`lanes` values of one element type."""

    def __init__(self, element: str, lanes: int) -> None:
        self.element, self.lanes = element, lanes
        super().__init__(name=f"{element}x{lanes}")

    @property
    def key(self) -> tuple[str, int]:
        return self.element, self.lanes

    @property
    def llvm(self) -> ir.VectorType:
        return ir.VectorType(ELEMENTS[self.element][0], self.lanes)

    @property
    def scalar(self) -> types.Type:
        return ELEMENTS[self.element][1]

    def of(self, element: str) -> Vector:
        """The vector of as many other elements."""
        return Vector(element, self.lanes)


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.llvm)


f32s = Vector("f32", LANES)  # the vector that most kernels use
f32x16, u8x16, i8x16 = Vector("f32", 16), Vector("u8", 16), Vector("i8", 16)


def broadcast(builder: Any, value: Any, lanes: int) -> Any:
    vector = ir.VectorType(value.type, lanes)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def constant(llvm_type: Any, value: float) -> Any:
    """The value in every lane of an LLVM vector type, or itself of a scalar one."""
    return ir.Constant(llvm_type, [value] * llvm_type.count if isinstance(llvm_type, ir.VectorType) else value)


def call(builder: Any, name: str, result: Any, arguments: Sequence[Any], **options: Any) -> Any:
    """Call an LLVM intrinsic by its full name."""
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), arguments, **options)


def _operator(function: Any, on_floats: Any, on_ints: Any, result_element: str | None = None) -> None:
    """Give vectors the operator: vector with vector, and vector with a number on either side.

    on_floats, on_ints: (builder, a, b, is_unsigned) -> value, or None where there is no such operation.
    """

    @infer_global(function)
    class Typing(AbstractTemplate):
        def generic(self, args, kws):
            if len(args) != 2:
                return None
            a, b = args
            vector = a if isinstance(a, Vector) else b
            if not isinstance(vector, Vector) or (on_floats if vector.element == "f32" else on_ints) is None:
                return None
            sides = []
            for side in (a, b):
                if isinstance(side, Vector):
                    if side != vector:
                        return None
                elif not isinstance(side, types.Number):
                    return None
                sides.append(vector if isinstance(side, Vector) else vector.scalar)
            return signature(vector.of(result_element) if result_element else vector, *sides)

    def lower(context, builder, sig, args):
        vector = next(side for side in sig.args if isinstance(side, Vector))
        a, b = (
            value if isinstance(side, Vector) else broadcast(builder, value, vector.lanes)
            for side, value in zip(sig.args, args, strict=True)
        )
        emit = on_floats if vector.element == "f32" else on_ints
        return emit(builder, a, b, vector.element.startswith("u"))

    for sides in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(function, *sides)(lower)


def _compare(symbol: str, function: Any) -> None:
    def on_ints(builder, a, b, unsigned):
        return (builder.icmp_unsigned if unsigned else builder.icmp_signed)(symbol, a, b)

    _operator(function, lambda builder, a, b, _: builder.fcmp_ordered(symbol, a, b), on_ints, "mask")


_operator(operator.add, lambda b, x, y, _: b.fadd(x, y), lambda b, x, y, _: b.add(x, y))
_operator(operator.sub, lambda b, x, y, _: b.fsub(x, y), lambda b, x, y, _: b.sub(x, y))
_operator(operator.mul, lambda b, x, y, _: b.fmul(x, y), lambda b, x, y, _: b.mul(x, y))
_operator(operator.truediv, lambda b, x, y, _: b.fdiv(x, y), None)
_operator(operator.and_, None, lambda b, x, y, _: b.and_(x, y))
_operator(operator.or_, None, lambda b, x, y, _: b.or_(x, y))
_operator(operator.xor, None, lambda b, x, y, _: b.xor(x, y))
_operator(operator.lshift, None, lambda b, x, y, _: b.shl(x, y))
_operator(operator.rshift, None, lambda b, x, y, unsigned: (b.lshr if unsigned else b.ashr)(x, y))
_compare("<", operator.lt)
_compare(">", operator.gt)
_compare("==", operator.eq)


@intrinsic
def splat(typingctx, value):
    """The number in every lane."""

    def generate(context, builder, sig, args):
        return broadcast(builder, args[0], LANES)

    return f32s(types.float32), generate


@intrinsic
def fma(typingctx, a, b, c):
    """a·b + c of vectors, fused where the CPU does it in one instruction."""

    def generate(context, builder, sig, args):
        return call(builder, f"llvm.fmuladd.v{a.lanes}f32", a.llvm, args)

    return a(a, a, a), generate


def _reduction(name: str, start: float | None, promise: str = "reassoc") -> Any:
    @intrinsic
    def reduce(typingctx, vector):
        def generate(context, builder, sig, args):
            arguments = args if start is None else [F32(start), *args]
            return call(builder, f"llvm.vector.reduce.{name}.v{vector.lanes}f32", F32, arguments, fastmath=(promise,))

        return types.float32(vector), generate

    return reduce


sum_lanes = _reduction("fadd", -0.0)
max_lanes = _reduction("fmax", None)  # NaN lanes are passed over
max_number = _reduction("fmax", None, "nnan")  # there must be no NaN; quicker


@intrinsic
def sums_of_four(typingctx, a, b, c, d):
    """f32x4 of the four vectors' sums. Lanes are added crosswise inside blocks of four, then block to block."""

    def generate(context, builder, sig, args):
        n = a.lanes

        def pick(x, y, places):
            return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(places)), places))

        def in_blocks(x, y, places):
            """The places, of two blocks of four side by side, in each block."""
            blocks = range(0, n, 4)
            return pick(x, y, [block + (place if place < 4 else n + place - 4) for block in blocks for place in places])

        def paired(x, y):
            """x0 + x2, y0 + y2, x1 + x3, y1 + y3 in each block."""
            return builder.fadd(in_blocks(x, y, [0, 4, 1, 5]), in_blocks(x, y, [2, 6, 3, 7]))

        ab, cd = paired(args[0], args[1]), paired(args[2], args[3])
        total = builder.fadd(in_blocks(ab, cd, [0, 1, 4, 5]), in_blocks(ab, cd, [2, 3, 6, 7]))
        while n > 4:
            n //= 2
            total = builder.fadd(pick(total, total, list(range(n))), pick(total, total, list(range(n, 2 * n))))
        return total

    return Vector("f32", 4)(a, a, a, a), generate


def _lane(place: int) -> Any:
    @intrinsic
    def lane(typingctx, vector):
        def generate(context, builder, sig, args):
            return builder.extract_element(args[0], I32(place))

        return vector.scalar(vector), generate

    return lane


first_lane, second_lane, third_lane, fourth_lane = map(_lane, range(4))


def _unary(name: str) -> Any:
    @intrinsic
    def function(typingctx, vector):
        def generate(context, builder, sig, args):
            return call(builder, f"llvm.{name}.v{vector.lanes}f32", vector.llvm, args)

        return vector(vector), generate

    return function


absolute = _unary("fabs")
nearest = _unary("rint")  # halves to even


@intrinsic
def select(typingctx, mask, a, b):
    """In each lane a where the mask is true, else b; a or b may be a number."""
    vector = a if isinstance(a, Vector) else b
    sides = [side if isinstance(side, Vector) else vector.scalar for side in (a, b)]

    def generate(context, builder, sig, args):
        values = [
            value if isinstance(side, Vector) else broadcast(builder, value, vector.lanes)
            for side, value in zip(sides, args[1:], strict=True)
        ]
        return builder.select(args[0], *values)

    return vector(mask, *sides), generate


@intrinsic
def to_f32(typingctx, vector):
    """Whole numbers as float32."""

    def generate(context, builder, sig, args):
        convert = builder.uitofp if vector.element.startswith("u") else builder.sitofp
        return convert(args[0], sig.return_type.llvm)

    return vector.of("f32")(vector), generate


@intrinsic
def to_i8(typingctx, vector):
    """The bytes of u8, read as signed."""

    def generate(context, builder, sig, args):
        return args[0]

    return vector.of("i8")(vector), generate


ROUNDS, ROUNDS_BITS = 1.5 * 2**23, 0x4B400000  # added, it leaves a number's nearest whole number in the lowest bits


@intrinsic
def round_to_i32(typingctx, vector):
    """The nearest whole number, halves to even, of float32 below 2²² in size; NaN gives 0. (LLVM's own conversions are
    undefined for NaN, or go lane by lane.)"""
    result = vector.of("i32")

    def generate(context, builder, sig, args):
        bits = builder.bitcast(builder.fadd(args[0], constant(vector.llvm, ROUNDS)), result.llvm)
        rounded = builder.sub(bits, constant(result.llvm, ROUNDS_BITS))
        return builder.select(builder.fcmp_ordered("ord", args[0], args[0]), rounded, constant(result.llvm, 0))

    return result(vector), generate


@intrinsic
def power_of_two(typingctx, vector):
    """2ⁿ for whole numbers n from -126 to 127; NaN gives some power."""
    ints = vector.of("i32").llvm

    def generate(context, builder, sig, args):
        bits = builder.bitcast(builder.fadd(args[0], constant(vector.llvm, ROUNDS)), ints)
        return builder.bitcast(builder.shl(builder.add(bits, constant(ints, 127)), constant(ints, 23)), vector.llvm)

    return vector(vector), generate


@intrinsic
def bits_x16(typingctx, mask):
    """u8x16 of 0 and 1: bit i of the 16-bit mask in lane i."""

    def generate(context, builder, sig, args):
        bits = builder.bitcast(builder.trunc(args[0], I16), ir.VectorType(I1, 16))
        return builder.zext(bits, u8x16.llvm)

    return u8x16(types.int64), generate


def table_of_16(values: Any) -> Any:
    """A function that looks up each lane of a u8x16 of numbers below 16 in 16 int8 values, as i8x16."""

    @intrinsic
    def look_up(typingctx, index):
        def generate(context, builder, sig, args):
            found = constant(i8x16.llvm, int(values[0]))
            for place, value in enumerate(values[1:], start=1):
                here = builder.icmp_unsigned("==", args[0], constant(i8x16.llvm, place))
                found = builder.select(here, constant(i8x16.llvm, int(value)), found)
            return found

        return i8x16(u8x16), generate

    return look_up
