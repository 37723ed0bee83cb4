"""The same for each of several values, held in a tuple: registers by number, so to speak. LLVM sees single values."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic


def for_each(function: Any, count: int, n_shared: int) -> Any:
    """The kernel that calls another for each of `count` values: its first n_shared arguments are the same for all, the
    others are tuples, of which each call gets its part. It returns a tuple of what they return, if they do."""

    @intrinsic
    def call_each(typingctx, arguments):
        shared, apart = tuple(arguments)[:n_shared], tuple(arguments)[n_shared:]
        callee = typingctx.resolve_value_type(function)
        part = callee.get_call_type(typingctx, (*shared, *(tuple_type.dtype for tuple_type in apart)), {})
        result = part.return_type if part.return_type is types.none else types.UniTuple(part.return_type, count)

        def generate(context, builder, sig, args):
            values = [builder.extract_value(args[0], i) for i in range(len(shared) + len(apart))]
            code, done = context.get_function(callee, part), []
            for index in range(count):
                own = [builder.extract_value(value, index) for value in values[n_shared:]]
                done.append(code(builder, [*values[:n_shared], *own]))
            if result is types.none:
                return context.get_dummy_value()
            return context.make_tuple(builder, result, done)

        return result(arguments), generate

    from ringlet.plugins.backends.cpu.compiling import kernel

    @kernel
    def each(*arguments):
        return call_each(arguments)

    return each


def same(function: Any, count: int) -> Any:
    """The kernel that returns a tuple of what a function without arguments returns, `count` times."""

    @intrinsic
    def repeat(typingctx):
        callee = typingctx.resolve_value_type(function)
        part = callee.get_call_type(typingctx, (), {})
        result = types.UniTuple(part.return_type, count)

        def generate(context, builder, sig, args):
            code = context.get_function(callee, part)
            return context.make_tuple(builder, result, [code(builder, []) for _ in range(count)])

        return result(), generate

    return repeat
