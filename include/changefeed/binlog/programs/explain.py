"""Describes a table's row program as text, for `changefeed explain TABLE`."""

from __future__ import annotations

from collections.abc import Iterator

from changefeed.binlog.kernel import layout
from changefeed.binlog.programs.programs import Programs
from changefeed.model.column_rules import Constant, Excluded, FirstCharacters, HmacSha256, Sha256, Treatment
from changefeed.model.column_types import WIRE_TYPES

_KINDS = {  # the constants of `layout` that are kinds: a group, and a number within it
    value: name.lower()
    for name, value in vars(layout).items()
    if isinstance(value, int) and value > ~layout.GROUP and value & ~layout.GROUP
}
_OPS = {value: name[3:].lower() for name, value in vars(layout).items() if name.startswith("OP_")}
_IMAGES = ("before", "after", "key's image")


def explain(programs: Programs, table: str) -> str:
    """The last program of ``table`` ("database.table"), as text; KeyError for a table without rows in any slice."""
    return "\n".join(_lines(programs, table)) + "\n"


def _lines(programs: Programs, table: str) -> Iterator[str]:
    bound, header = programs.bound[table]
    words = programs.memory.words
    yield f"table {table}, {len(bound.columns)} columns"
    key = ", ".join(bound.schema.columns[column].name for column in bound.schema.primary_key)
    yield f"message key: {key or 'none'}"
    yield "columns:"
    specs = int(words[header + layout.TABLE_SPECS])
    captured = bool(words[header + layout.TABLE_CAPTURED])
    treatments = programs.columns.of(bound.schema) if captured else {}
    for number, column in enumerate(bound.columns):
        spec = [int(word) for word in words[specs + layout.SPEC * number : specs + layout.SPEC * (number + 1)]]
        size = f"length in {spec[1]}" if spec[layout.SPEC_PREFIX] else f"{spec[0]} bytes"
        parameters = ", ".join(str(word) for word in spec[layout.SPEC_A : layout.SPEC_D + 1])
        wire = WIRE_TYPES[column.type].name
        yield (
            f"  {number:4} {column.name!r}: {wire}, {size} -> {_KINDS[spec[layout.SPEC_KIND]]}({parameters})"
            + (f", charset {column.charset}" if column.charset != "binary" else "")
            + _treatment(treatments.get(number))
        )
    if not captured:
        yield "no programs: the pipeline leaves this table out"
        return
    if words[header + layout.TABLE_KEY] >= 0:
        yield "key:"
        yield from _program(programs, int(words[header + layout.TABLE_KEY]))
    for index, op in enumerate("cud"):
        yield f"value of op {op}:"
        yield from _program(programs, int(words[header + layout.TABLE_VALUES + index]))


def _treatment(treatment: Treatment | None) -> str:
    match treatment:
        case None:
            return ""
        case Excluded():
            return ", left out"
        case Constant(text):
            return f", masked: always {text!r}" if text is not None else ", masked: always null"
        case FirstCharacters(count):
            return f", masked: its first {count} characters"
        case Sha256():
            return ", masked: its salted SHA-256"
        case HmacSha256():
            return ", masked: its keyed HMAC-SHA256"


def _program(programs: Programs, program: int) -> Iterator[str]:
    words = programs.memory.words
    for number in range(int(words[program])):
        at = program + 1 + layout.OP * number
        code, a, b = (int(word) for word in words[at : at + layout.OP])
        if code == layout.OP_LITERAL:
            literal = programs.memory.bytes[a : a + b].tobytes()
            yield f"  {number:4} literal {literal.decode('utf-8', 'backslashreplace')!r}"
        elif code == layout.OP_OBJECT:
            first = b + layout.LIST
            columns = [int(word) for word in words[first : first + int(words[b])]]
            yield f"  {number:4} object of {_IMAGES[a]}, columns {columns}"
        elif code == layout.OP_SAME:
            yield f"  {number:4} same {a}: from the event's second row on, copy and go on at {b}"
        else:
            yield f"  {number:4} {_OPS[code]}"
