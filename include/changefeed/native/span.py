"""Spans: the address and length of an array, which the functions of a kernel pass instead of arrays.

numba passes an array as seven words, and a function of a kernel takes up to a dozen arrays. This took a fifth of the
decoding time, so a kernel first creates spans of its arrays. An index must not be negative; it is checked only with
NUMBA_BOUNDSCHECK=1, as in `memory`. In plain Python a span is the array itself.

Source: https://numba.readthedocs.io/en/stable/extending/low-level.html
"""

# kernels read this file
# ruff: noqa: ARG001 - numba calls intrinsics and their generators with fixed arguments
from __future__ import annotations

from typing import Any, TypeVar, cast

from numpy.typing import NDArray

from changefeed.native.compiled import BOUNDS, JIT_OFF

Array = TypeVar("Array", bound=NDArray[Any])

if JIT_OFF:

    def span(array: Array) -> Array:
        """The span of an array."""
        return array

    def length(array: NDArray[Any]) -> int:
        """The number of items of a span."""
        return int(array.shape[0])

    def part(array: Array, begin: int, end: int) -> Array:
        """The span of ``array[begin:end]``."""
        if not 0 <= begin <= end <= array.shape[0]:
            raise IndexError(f"{begin} to {end} of {array.shape[0]}")
        return cast(Array, array[begin:end])

else:
    import operator

    from llvmlite import ir
    from numba.core import datamodel as numba_datamodel
    from numba.core import imputils, types
    from numba.core.typing import templates as numba_templates
    from numba.extending import intrinsic

    datamodel: Any = numba_datamodel  # untyped, as numba's internals are
    templates: Any = numba_templates
    pointer_to: Any = types.CPointer
    lower: Any = imputils.lower_builtin

    class SpanType(types.Type):
        """numba's type of a span of ``dtype``."""

        def __init__(self, dtype: Any) -> None:
            self.dtype = dtype
            super().__init__(name=f"span({dtype})")

    def _model(manager: Any, of: Any) -> Any:
        return datamodel.StructModel(manager, of, [("data", pointer_to(of.dtype)), ("size", types.int64)])

    datamodel.register_default(SpanType)(_model)

    def parts(context: Any, builder: Any, of: Any, value: Any) -> tuple[Any, Any]:
        """LLVM's values of the address of an array or a span, and of its length in items."""
        if isinstance(of, SpanType):
            return builder.extract_value(value, 0), builder.extract_value(value, 1)
        view = context.make_array(of)(context, builder, value)
        return view.data, builder.extract_value(view.shape, 0)

    def check(context: Any, builder: Any, at: Any, count: Any, size: Any) -> None:
        """With NUMBA_BOUNDSCHECK=1: raise IndexError if ``count`` items at ``at`` are not all within ``size`` items."""
        if not BOUNDS:
            return
        end = builder.add(at, count)
        zero = ir.Constant(ir.IntType(64), 0)
        outside = builder.or_(
            builder.or_(builder.icmp_signed("<", at, zero), builder.icmp_signed("<", count, zero)),
            builder.icmp_signed(">", end, size),
        )
        with builder.if_then(outside, likely=False):
            context.call_conv.return_user_exc(builder, IndexError, ("a kernel accessed memory outside of its array",))

    @intrinsic
    def span(typing_context: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data, size = parts(context, builder, signature.args[0], args[0])
            value = ir.Constant(context.get_value_type(signature.return_type), ir.Undefined)
            return builder.insert_value(builder.insert_value(value, data, 0), size, 1)

        return SpanType(array.dtype)(array), generate

    @intrinsic
    def length(typing_context: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return parts(context, builder, signature.args[0], args[0])[1]

        return types.int64(array), generate

    @intrinsic
    def part(typing_context: Any, array: Any, begin: Any, end: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data, size = parts(context, builder, signature.args[0], args[0])
            count = builder.sub(args[2], args[1])
            check(context, builder, args[1], count, size)
            value = ir.Constant(context.get_value_type(signature.return_type), ir.Undefined)
            return builder.insert_value(builder.insert_value(value, builder.gep(data, [args[1]]), 0), count, 1)

        return array(array, types.int64, types.int64), generate

    class _Item(templates.AbstractTemplate):  # type: ignore[misc]
        """The types of `span[at]` and `span[at] = value`."""

        def generic(self, args: Any, _kws: Any) -> Any:
            if not isinstance(args[0], SpanType):
                return None
            if len(args) == 2:
                return templates.signature(args[0].dtype, args[0], types.int64)
            return templates.signature(types.none, args[0], types.int64, args[0].dtype)

    def _place(context: Any, builder: Any, of: Any, value: Any, at: Any) -> Any:
        data, size = parts(context, builder, of, value)
        check(context, builder, at, ir.Constant(ir.IntType(64), 1), size)
        return builder.gep(data, [at])

    def _get_item(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_place(context, builder, signature.args[0], *args))

    def _set_item(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _place(context, builder, signature.args[0], *args[:2]))
        return context.get_dummy_value()

    for operation in (operator.getitem, operator.setitem):
        templates.infer_global(operation)(_Item)
    lower(operator.getitem, SpanType, types.Integer)(_get_item)
    lower(operator.setitem, SpanType, types.Integer, types.Any)(_set_item)
