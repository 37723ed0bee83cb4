"""Loads and stores by address, aligned or not: numbers, vectors, half floats and records."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic

from ringlet.plugins.backends.cpu import records
from ringlet.plugins.backends.cpu.simd import F32, I8, I16, I32, Vector, call, constant, f32s, i8x16, u8x16
from ringlet.plugins.backends.cpu.target import HAS_HALVES

I64 = ir.IntType(64)


def load_at(builder: Any, address: Any, llvm_type: Any) -> Any:
    value = builder.load(builder.inttoptr(address, ir.PointerType(llvm_type)))
    value.align = 1
    return value


def store_at(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, ir.PointerType(value.type))).align = 1


def like(llvm_type: Any, element: Any) -> Any:
    """The element type, as a vector of as many lanes where the given type is a vector."""
    return ir.VectorType(element, llvm_type.count) if isinstance(llvm_type, ir.VectorType) else element


def half_to_float(builder: Any, bits: Any) -> Any:
    """float32 of IEEE halves given as i16, a number or a vector."""
    floats = like(bits.type, F32)
    if HAS_HALVES:
        return builder.fpext(builder.bitcast(bits, like(bits.type, ir.HalfType())), floats)
    ints = like(bits.type, I32)
    bits = builder.zext(bits, ints)
    sign = builder.shl(builder.and_(bits, constant(ints, 0x8000)), constant(ints, 16))
    magnitude = builder.shl(builder.and_(bits, constant(ints, 0x7FFF)), constant(ints, 13))
    finite = builder.fmul(builder.bitcast(magnitude, floats), constant(floats, 2.0**112))  # mends the exponent's bias
    special = builder.icmp_unsigned(">=", magnitude, constant(ints, 0x7C00 << 13))  # infinities and NaN
    kept = builder.or_(magnitude, constant(ints, 0x7F800000))
    return builder.bitcast(builder.or_(builder.select(special, kept, builder.bitcast(finite, ints)), sign), floats)


def float_to_half(builder: Any, value: Any) -> Any:
    """IEEE halves as i16 of float32, to the nearest, ties to even; a number or a vector."""
    shorts = like(value.type, I16)
    if HAS_HALVES:
        return builder.bitcast(builder.fptrunc(value, like(value.type, ir.HalfType())), shorts)
    ints, floats = like(value.type, I32), value.type
    bits = builder.bitcast(value, ints)
    magnitude = builder.and_(bits, constant(ints, 0x7FFFFFFF))
    sign = builder.lshr(builder.xor(bits, magnitude), constant(ints, 16))
    nan = builder.icmp_unsigned(">", magnitude, constant(ints, 0x7F800000))
    large = builder.select(nan, constant(ints, 0x7E00), constant(ints, 0x7C00))
    # Below 2^-14 an addition of 0.5 rounds and shifts at once.
    shifted = builder.bitcast(builder.fadd(builder.bitcast(magnitude, floats), constant(floats, 0.5)), ints)
    small = builder.sub(shifted, constant(ints, 126 << 23))
    odd = builder.and_(builder.lshr(magnitude, constant(ints, 13)), constant(ints, 1))
    rounded = builder.add(builder.add(magnitude, odd), constant(ints, 0xFFF - (112 << 23)))
    half = builder.lshr(rounded, constant(ints, 13))
    half = builder.select(builder.icmp_unsigned("<", magnitude, constant(ints, 0x38800000)), small, half)
    half = builder.select(builder.icmp_unsigned(">=", magnitude, constant(ints, 0x47800000)), large, half)
    return builder.trunc(builder.or_(half, sign), shorts)


def bfloat_to_float(builder: Any, bits: Any) -> Any:
    """float32 of bfloat16 given as i16: its upper half."""
    ints = like(bits.type, I32)
    return builder.bitcast(builder.shl(builder.zext(bits, ints), constant(ints, 16)), like(bits.type, F32))


def loader(result: Any, stored: Any, convert: Any = None) -> Any:
    """A load of what is stored as the LLVM type, as a Numba value of type `result`."""

    @intrinsic
    def load(typingctx, address):
        def generate(context, builder, sig, args):
            value = load_at(builder, args[0], stored)
            return value if convert is None else convert(builder, value)

        return result(types.int64), generate

    return load


def _storer(value_type: Any, convert: Any = None) -> Any:
    @intrinsic
    def store(typingctx, address, value):
        def generate(context, builder, sig, args):
            value = args[1] if convert is None else convert(builder, args[1])
            store_at(builder, value, args[0])
            return context.get_dummy_value()

        return types.void(types.int64, value_type), generate

    return store


def _widen(numeric: Any) -> Any:
    return lambda builder, value: numeric(builder, value, I64)


_signed, _unsigned = _widen(lambda b, v, t: b.sext(v, t)), _widen(lambda b, v, t: b.zext(v, t))
load_i8, load_u8 = loader(types.int64, I8, _signed), loader(types.int64, I8, _unsigned)
load_u16, load_u32 = loader(types.int64, I16, _unsigned), loader(types.int64, I32, _unsigned)
load_i32, load_i64 = loader(types.int64, I32, _signed), loader(types.int64, I64)
load_f32, load_f64 = loader(types.float32, F32), loader(types.float64, ir.DoubleType())
load_f16, load_bf16 = loader(types.float32, I16, half_to_float), loader(types.float32, I16, bfloat_to_float)
store_f32, store_f16 = _storer(types.float32), _storer(types.float32, float_to_half)
store_u8 = _storer(types.int64, lambda builder, value: builder.trunc(value, I8))
store_u16 = _storer(types.int64, lambda builder, value: builder.trunc(value, I16))
store_u32 = _storer(types.int64, lambda builder, value: builder.trunc(value, I32))
store_i64 = _storer(types.int64)

_SHORTS = ir.VectorType(I16, f32s.lanes)
load_f32s, load_u8x16, load_i8x16 = loader(f32s, f32s.llvm), loader(u8x16, u8x16.llvm), loader(i8x16, i8x16.llvm)
load_f16s, load_bf16s = loader(f32s, _SHORTS, half_to_float), loader(f32s, _SHORTS, bfloat_to_float)
load_i8s_as_f32s = loader(f32s, ir.VectorType(I8, f32s.lanes), lambda builder, value: builder.sitofp(value, f32s.llvm))
store_f16s = _storer(f32s, float_to_half)


@intrinsic
def store(typingctx, address, vector):
    """A vector, its lanes one after the other."""
    if not isinstance(vector, Vector):
        return None

    def generate(context, builder, sig, args):
        store_at(builder, args[1], args[0])
        return context.get_dummy_value()

    return types.void(types.int64, vector), generate


@intrinsic
def prefetch(typingctx, address):
    """Ask for the cache line at the address, which need not be there; it will be read soon, once."""

    def generate(context, builder, sig, args):
        pointer = builder.inttoptr(args[0], ir.PointerType(I8))
        call(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, I32(0), I32(3), I32(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def record_reader(dtype: np.dtype) -> Any:
    """A function (address, index) -> the record there; its fields are read when they are named."""
    record = from_dtype(dtype)

    @intrinsic
    def read(typingctx, address, index):
        def generate(context, builder, sig, args):
            at = builder.add(args[0], builder.mul(args[1], I64(dtype.itemsize)))
            return builder.inttoptr(at, context.get_value_type(record))

        return record(types.int64, types.int64), generate

    return read


job_at, model_at = record_reader(records.JOB), record_reader(records.MODEL)
layer_at, rope_at = record_reader(records.LAYER), record_reader(records.ROPE)
ring_at, ring_layer_at = record_reader(records.RING), record_reader(records.RING_LAYER)
angle_row_at, choice_at = record_reader(records.ANGLE_ROW), record_reader(records.CHOICE)


@intrinsic
def ring_layer_address(typingctx, layers, index):
    """Where the record of a ring's layer is."""

    def generate(context, builder, sig, args):
        return builder.add(args[0], builder.mul(args[1], I64(records.RING_LAYER.itemsize)))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def run_code(typingctx, address, arguments):
    """Call a unit's machine code (see `units`) at the address with int64 arguments."""
    if not isinstance(arguments, types.BaseTuple):
        return None
    signature = types.void(types.int64, types.UniTuple(types.int64, len(arguments)))

    def generate(context, builder, sig, args):
        pointer = ir.PointerType(ir.PointerType(I8))
        function = ir.FunctionType(I32, [pointer, pointer, *[I64] * len(arguments)])
        code = builder.inttoptr(args[0], ir.PointerType(function))
        unused = cgutils.alloca_once(builder, pointer.pointee)
        builder.call(code, [unused, unused, *(builder.extract_value(args[1], i) for i in range(len(arguments)))])
        return context.get_dummy_value()

    return signature, generate
