"""The arrays of a kernel call, as one value for all functions of the kernel.

Python calls a kernel with a `Workspace` of arrays. The kernel creates spans of the arrays on its stack. Its functions
pass the address of these spans, and each function reads the fields that it needs. The alternative, tuples of spans,
made decoding 5 to 9 % slower, because numba passes a tuple item by item.

Source: https://numba.readthedocs.io/en/stable/extending/low-level.html
"""

# kernels read this file
# ruff: noqa: ARG001 - numba calls intrinsics and their generators with fixed arguments
from __future__ import annotations

from typing import Any, NamedTuple, get_type_hints

from numba.core import types as numba_types

from changefeed.native.compiled import JIT_OFF
from changefeed.native.memory import Bytes, Ends, Words


class Workspace(NamedTuple):
    """The spans of the kernel's arrays; in plain Python the arrays themselves."""

    data: Bytes
    """The input, which is consecutive events."""
    state: Words
    """The state between calls: the words of `layout` from `layout.AT` on."""
    words: Words
    """Tables, their columns and programs: a `ProgramMemory`'s words."""
    literals: Bytes
    """The bytes that programs write unchanged: a `ProgramMemory`'s bytes."""
    tables: Words
    """Table ids: a `TableIndex`'s words."""
    texts: Bytes
    """The texts of the run, from `layout.NAMES` on."""
    query: Bytes
    """The statement's text as a JSON string."""
    scratch: Words
    """Addresses of values, and other scratch words of an event: see `layout`, "scratch words"."""
    bytes_scratch: Bytes
    counts: Words
    """Rows by table counter and op."""
    orders: Words
    """Messages of the current transaction by table counter: `transaction_orders.ORDER` words each."""
    runs: Words
    """GTIDs that were seen: `layout.RUN` words each."""
    out: Bytes
    """Finished messages, each as key, value, event id, and GTID with further headers (`records.block`)."""
    positions: Words
    """For each message the position of its event."""
    sequences: Words
    """For each message its number within the event: row << 2 | step."""
    groups: Words
    """For each message the number of its topic-partition."""
    ends: Ends
    """For each message the ends in ``out`` of key, value, event id and GTID."""
    seconds: Ends
    """For each message the time of its event, in seconds since 1970."""
    commit_infos: Words
    """Where the commit infos belong in the messages: `layout.COMMIT_INFO` words each."""
    nulls: Bytes
    """For each message: bit 0 for a null key, bit 1 for a null value, bit 2 for headers after the GTID."""


types: Any = numba_types  # untyped, as numba's internals are

_ITEMS: dict[Any, Any] = {Bytes: types.uint8, Words: types.int64, Ends: types.uint32}
ARRAYS: Any = types.NamedTuple(
    [types.Array(_ITEMS[hint], 1, "C") for hint in get_type_hints(Workspace).values()], Workspace
)
"""numba's type of the workspace that Python gives to a kernel."""

if JIT_OFF:

    def spans(arrays: Workspace) -> Workspace:
        """The workspace of the arrays' spans."""
        return arrays

else:
    from numba.core import cgutils as numba_cgutils
    from numba.core import datamodel as numba_datamodel
    from numba.core import imputils
    from numba.core.typing import templates as numba_templates
    from numba.extending import intrinsic

    from changefeed.native.span import SpanType, parts

    cgutils: Any = numba_cgutils
    datamodel: Any = numba_datamodel
    templates: Any = numba_templates
    lower_field: Any = imputils.lower_getattr_generic

    class WorkspaceType(types.Type):  # type: ignore[misc]
        """numba's type of the address of a workspace's spans."""

        def __init__(self) -> None:
            self.spans = types.Tuple([SpanType(array.dtype) for array in ARRAYS])
            super().__init__(name="workspace")

    @datamodel.register_default(WorkspaceType)
    class _Model(datamodel.PrimitiveModel):  # type: ignore[misc]
        def __init__(self, manager: Any, of: Any) -> None:
            super().__init__(manager, of, manager.lookup(of.spans).get_value_type().as_pointer())

    @intrinsic
    def spans(typing_context: Any, arrays: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            address = cgutils.alloca_once(builder, context.get_value_type(signature.return_type).pointee)
            for field, array in enumerate(signature.args[0]):
                span = cgutils.gep_inbounds(builder, address, 0, field)
                for part, value in enumerate(parts(context, builder, array, builder.extract_value(args[0], field))):
                    builder.store(value, cgutils.gep_inbounds(builder, span, 0, part))
            return address

        return WorkspaceType()(arrays), generate

    @templates.infer_getattr
    class _Fields(templates.AttributeTemplate):  # type: ignore[misc]
        """The types of a workspace's fields."""

        key = WorkspaceType

        def generic_resolve(self, of: Any, name: str) -> Any:
            return of.spans[Workspace._fields.index(name)]

    def _get_field(context: Any, builder: Any, of: Any, address: Any, name: str) -> Any:
        return builder.load(cgutils.gep_inbounds(builder, address, 0, Workspace._fields.index(name)))

    lower_field(WorkspaceType)(_get_field)
