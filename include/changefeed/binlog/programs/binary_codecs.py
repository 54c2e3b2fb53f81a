"""Column codecs of binary notations: how `kernel.binary` writes a value in the form that its Connect schema defines."""

from __future__ import annotations

from dataclasses import replace

from changefeed.binlog.kernel import layout
from changefeed.binlog.programs.codecs import BoundColumn, Spec
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.errors import SettingsError
from changefeed.formats import connect_types
from changefeed.formats.connect_types import ConnectSchema, Type

_MICROS_DIGITS = 6
"""The digits of a fraction with which numbers are in microseconds."""
_TEXTS = {
    layout.UTF8: layout.SIZED_UTF8,
    layout.CODE_TABLE: layout.SIZED_TABLE,
    layout.UTF16: layout.SIZED_UTF16,
    layout.UTF32: layout.SIZED_UTF32,
    layout.JSON: layout.SIZED_JSON,
}
_AS_THEY_ARE = {
    layout.WRITTEN: layout.WRITTEN,
    layout.YEAR: layout.LONG_YEAR,
    layout.DECIMAL_BYTES: layout.UNSCALED,
    layout.UNSIGNED_BYTES: layout.UNSIGNED_WORD,
}
_SHAPES = {connect_types.GEOMETRY: layout.SHAPE, connect_types.POINT: layout.SHAPE_POINT}


def binary_spec(plain: Spec, column: BoundColumn, type: ConnectSchema, memory: ProgramMemory) -> Spec:
    """The spec of ``column`` for values of ``type``; ``plain`` is its spec as text.

    Raises SettingsError for a column that ``type`` cannot represent.
    """
    kind = plain.kind
    if kind in _AS_THEY_ARE:
        return replace(plain, kind=_AS_THEY_ARE[kind])
    match type.type:
        case Type.ARRAY:
            return replace(plain, kind=layout.SINGLES)
        case Type.STRUCT:
            return replace(plain, kind=_SHAPES[str(type.name)])
        case Type.BOOLEAN:
            return replace(plain, kind=layout.FLAG)
        case Type.FLOAT32 | Type.FLOAT64 if kind in (layout.FLOAT, layout.DOUBLE):
            if kind == layout.DOUBLE and plain.a:
                return replace(plain, kind=layout.ROUNDED)
            wide = type.type is Type.FLOAT64 and kind == layout.FLOAT
            return replace(plain, kind=layout.WIDE_FLOAT if wide else layout.COPY, a=plain.fixed)
        case Type.INT16 | Type.INT32 | Type.INT64:
            return _number(plain, type)
        case Type.BYTES:
            return replace(plain, kind=layout.SIZED_BITS if type.name == connect_types.BITS else layout.SIZED_BYTES)
        case Type.STRING:
            return _text(plain, column, memory)
    raise SettingsError(
        f"column {column.name!r} cannot be written in binary as {type.type}: choose `precise` or `string` for DECIMAL"
    )


def _number(plain: Spec, type: ConnectSchema) -> Spec:
    if plain.kind & layout.GROUP == layout.TEMPORALS:
        micros = type.name == connect_types.MICRO_TIME
        return replace(plain, kind=layout.LONG_TIME, a=_MICROS_DIGITS if micros else plain.a, c=plain.kind)
    return replace(plain, kind=layout.LONG, a=plain.fixed, b=int(plain.kind == layout.SIGNED))


def _text(plain: Spec, column: BoundColumn, memory: ProgramMemory) -> Spec:
    if plain.kind in _TEXTS:
        return replace(plain, kind=_TEXTS[plain.kind])
    if plain.kind & layout.GROUP == layout.LABELS and column.labels is not None:
        plain = replace(plain, b=memory.labels(column.labels, plain=True))
    return replace(plain, kind=layout.SIZED + plain.kind)
