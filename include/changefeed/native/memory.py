"""Raw reads and writes of byte arrays, and operations on 64-bit words that Python's ints do not have.

Only these functions differ between compiled kernels and the same code as plain Python (NUMBA_DISABLE_JIT=1). Inside
kernels an integer is an int64; words that are unsigned in the binlog keep their bit pattern. Bounds are checked only
with NUMBA_BOUNDSCHECK=1. Callers check an event's end and the buffer's size first; tests with NUMBA_BOUNDSCHECK=1 prove
that they do.
"""

# ruff: noqa: ARG001 - numba calls intrinsics and their generators with fixed arguments
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from changefeed.native.compiled import JIT_OFF, inline

Bytes = NDArray[np.uint8]
Words = NDArray[np.int64]
Ends = NDArray[np.uint32]

FULL = -1
"""What functions that write return if their buffer has no room."""

STEP = 16
"""Bytes that `copy_short` moves at once."""

_WORD = 1 << 64
_SIGN = 1 << 63

if JIT_OFF:

    def _check(array: Any, at: int, count: int) -> None:
        if at < 0 or count < 0 or at + count > array.shape[0]:
            raise IndexError(f"{count} bytes at {at} of {array.shape[0]}")

    def wrap(value: int) -> int:
        """``value`` reduced to a signed 64-bit word."""
        value = int(value) & (_WORD - 1)
        return value - _WORD if value >= _SIGN else value

    def shift_right(value: int, count: int) -> int:
        """Logical shift of a 64-bit word."""
        return wrap((int(value) & (_WORD - 1)) >> int(count))

    def multiply_high(a: int, b: int) -> int:
        """The upper 64 bits of the unsigned product."""
        return wrap(((int(a) & (_WORD - 1)) * (int(b) & (_WORD - 1))) >> 64)

    def divide(value: int, by: int) -> int:
        """Unsigned division of a 64-bit word."""
        return wrap((int(value) & (_WORD - 1)) // int(by))

    def u8(array: Bytes, at: int) -> int:
        """The unsigned byte at ``at``."""
        _check(array, at, 1)
        return int(array[at])

    def u16(array: Bytes, at: int) -> int:
        """The unsigned little-endian number in two bytes at ``at``."""
        _check(array, at, 2)
        return int(array[at]) | int(array[at + 1]) << 8

    def u32(array: Bytes, at: int) -> int:
        """The unsigned little-endian number in four bytes at ``at``."""
        _check(array, at, 4)
        return int.from_bytes(array[at : at + 4].tobytes(), "little")

    def i64(array: Bytes, at: int) -> int:
        """The little-endian word in eight bytes at ``at``."""
        _check(array, at, 8)
        return int.from_bytes(array[at : at + 8].tobytes(), "little", signed=True)

    def put8(array: Bytes, at: int, value: int) -> None:
        """Write the lowest byte of ``value``."""
        _check(array, at, 1)
        array[at] = int(value) & 0xFF

    def put16(array: Bytes, at: int, value: int) -> None:
        """Write the two lowest bytes of ``value``, little-endian."""
        put8(array, at, value)
        put8(array, at + 1, value >> 8)

    def put32(array: Bytes, at: int, value: int) -> None:
        """Write the four lowest bytes of ``value``, little-endian."""
        put16(array, at, value)
        put16(array, at + 2, value >> 16)

    def put64(array: Bytes, at: int, value: int) -> None:
        """Write the eight bytes of ``value``, little-endian."""
        put32(array, at, value)
        put32(array, at + 4, value >> 32)

    def copy(to: Bytes, to_at: int, source: Bytes, at: int, count: int) -> None:
        """Copy ``count`` bytes; source and destination must not overlap."""
        _check(to, to_at, count)
        _check(source, at, count)
        to[to_at : to_at + count] = source[at : at + count]

    def copy_short(to: Bytes, to_at: int, source: Bytes, at: int, count: int) -> None:
        """Copy ``count`` bytes in steps of STEP; for few bytes. Both sides must have room for up to STEP more bytes."""
        _check(to, to_at, -(-count // STEP) * STEP)
        _check(source, at, -(-count // STEP) * STEP)
        copy(to, to_at, source, at, count)

else:
    from llvmlite import ir
    from numba.core import cgutils as numba_cgutils
    from numba.core import types
    from numba.extending import intrinsic

    from changefeed.native.span import check, parts

    cgutils: Any = numba_cgutils

    def _pointer(context: Any, builder: Any, of: Any, array: Any, at: Any, count: Any) -> Any:
        """The address of ``count`` bytes at ``at``; IndexError outside of the array with NUMBA_BOUNDSCHECK=1."""
        data, size = parts(context, builder, of, array)
        check(context, builder, at, count, size)
        return builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [at])

    def _size(count: int) -> Any:
        return ir.Constant(ir.IntType(64), count)

    def _load_of(width: int, signed: bool) -> Any:
        @intrinsic
        def load(typing_context: Any, array: Any, at: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                pointer = _pointer(context, builder, signature.args[0], args[0], args[1], _size(width // 8))
                word = builder.load(builder.bitcast(pointer, ir.IntType(width).as_pointer()), align=1)
                if width == 64:
                    return word
                return (builder.sext if signed else builder.zext)(word, ir.IntType(64))

            return types.int64(array, types.int64), generate

        return load

    def _store_of(width: int) -> Any:
        @intrinsic
        def store(typing_context: Any, array: Any, at: Any, value: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                pointer = _pointer(context, builder, signature.args[0], args[0], args[1], _size(width // 8))
                word = args[2] if width == 64 else builder.trunc(args[2], ir.IntType(width))
                builder.store(word, builder.bitcast(pointer, ir.IntType(width).as_pointer()), align=1)
                return context.get_dummy_value()

            return types.void(array, types.int64, types.int64), generate

        return store

    @intrinsic
    def copy(typing_context: Any, to: Any, to_at: Any, source: Any, at: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            cgutils.raw_memcpy(
                builder,
                _pointer(context, builder, signature.args[0], args[0], args[1], args[4]),
                _pointer(context, builder, signature.args[2], args[2], args[3], args[4]),
                args[4],
                1,
            )
            return context.get_dummy_value()

        return types.void(to, types.int64, source, types.int64, types.int64), generate

    @intrinsic
    def copy_short(typing_context: Any, to: Any, to_at: Any, source: Any, at: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            rounded = builder.and_(builder.add(args[4], _size(STEP - 1)), _size(-STEP))
            destination = _pointer(context, builder, signature.args[0], args[0], args[1], rounded)
            origin = _pointer(context, builder, signature.args[2], args[2], args[3], rounded)
            step = ir.VectorType(ir.IntType(64), STEP // 8)
            with cgutils.for_range_slice(builder, _size(0), rounded, _size(STEP), ir.IntType(64)) as (index, _):
                part = builder.load(builder.bitcast(builder.gep(origin, [index]), step.as_pointer()), align=1)
                builder.store(part, builder.bitcast(builder.gep(destination, [index]), step.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(to, types.int64, source, types.int64, types.int64), generate

    def _word_operation(operate: Any) -> Any:
        @intrinsic
        def operation(typing_context: Any, a: Any, b: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return operate(builder, args[0], args[1])

            return types.int64(types.int64, types.int64), generate

        return operation

    def _multiply_high(builder: Any, a: Any, b: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(a, wide), builder.zext(b, wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    shift_right = _word_operation(lambda builder, a, b: builder.lshr(a, b))
    multiply_high = _word_operation(_multiply_high)
    divide = _word_operation(lambda builder, a, b: builder.udiv(a, b))

    @inline
    def wrap(value: int) -> int:
        return value

    u8, u16, u32, i64 = _load_of(8, False), _load_of(16, False), _load_of(32, False), _load_of(64, True)
    put8, put16, put32, put64 = _store_of(8), _store_of(16), _store_of(32), _store_of(64)


@inline
def little_endian(array: Bytes, at: int, width: int) -> int:
    """An unsigned number of 0 to 8 bytes, as a 64-bit word."""
    if width == 1:
        return u8(array, at)
    if width == 2:
        return u16(array, at)
    if width == 4:
        return u32(array, at)
    if width == 8:
        return i64(array, at)
    value = 0
    for index in range(width):
        value |= u8(array, at + index) << (8 * index)
    return value


@inline
def big_endian(array: Bytes, at: int, width: int) -> int:
    """An unsigned number of 0 to 8 bytes, the highest byte first, as a 64-bit word."""
    value = 0
    for index in range(width):
        value = wrap(value << 8) | u8(array, at + index)
    return value
