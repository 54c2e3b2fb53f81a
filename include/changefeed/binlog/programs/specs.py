"""The columns of a table as words for the kernel, which describe how to find a value in an image, mask and write it.

A constant mask is a kind of column, because the value is never written. The other masks are steps after a value
(`kernel.masks`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.sha256 import BLOCK
from changefeed.binlog.programs import binary_codecs, codecs
from changefeed.binlog.programs.bound_table import BoundTable
from changefeed.binlog.programs.codecs import BoundColumn, Spec
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.errors import SettingsError
from changefeed.formats.notation import ColumnText, Notation
from changefeed.formats.style import Style
from changefeed.model.column_rules import (
    Constant,
    Excluded,
    FirstCharacters,
    HmacSha256,
    Sha256,
    Treatment,
    mask_column,
)

_TEXTS = frozenset({layout.UTF8, layout.CODE_TABLE, layout.UTF16, layout.UTF32, layout.ENUM, layout.SET})


Mask = tuple[int, int, int, int]
"""The kind of a mask and its three parameters, for `kernel.masks`."""
NO_MASK: Mask = (layout.MASK_NONE, 0, 0, 0)


def masked_spec(
    spec: Spec,
    column: BoundColumn,
    treatment: Treatment | None,
    memory: ProgramMemory,
    notation: Notation,
    where: str,
) -> tuple[Spec, Mask]:
    """The spec of a column under its treatment, and its mask.

    Raises SettingsError, whose message begins with ``where``, if a column that is not text is to be cut.
    """
    match treatment:
        case Constant(text):
            literal = notation.text(text) if text is not None else b""  # null is written without a value
            place = memory.place_bytes(literal)
            return replace(spec, kind=layout.CONSTANT, a=place, b=len(literal), c=0, d=0), NO_MASK
        case FirstCharacters(count):
            if spec.kind not in _TEXTS:
                raise SettingsError(
                    f"{where}.{column.name} is not text, so columns.mask cannot keep its first {count} characters: "
                    "mask it with `text` or a hash, or leave it out"
                )
            return spec, (layout.MASK_FIRST, count, 0, 0)
        case Sha256(salt):
            data = salt.encode()
            return spec, (layout.MASK_SHA256, memory.place_bytes(data), len(data), 0)
        case HmacSha256(key):
            inner, outer = _key_blocks(key.encode())
            return spec, (layout.MASK_HMAC_SHA256, memory.place_bytes(inner), len(inner), memory.place_bytes(outer))
        case Excluded() | None:
            return spec, NO_MASK


def _key_blocks(key: bytes) -> tuple[bytes, bytes]:
    """The inner and the outer block of HMAC: the key with each of two paddings (RFC 2104)."""
    block = (hashlib.sha256(key).digest() if len(key) > BLOCK else key).ljust(BLOCK, b"\0")
    return bytes(byte ^ 0x36 for byte in block), bytes(byte ^ 0x5C for byte in block)


_REFUSED = (0, -1)
"""Instead of a literal's address and size: the column must not be omitted, so the kernel refuses the row."""


class Specs:
    """The words of one table's columns, stored once for each notation of its rows.

    ``treatments`` has the treatments by the number of the column; ``where`` begins the error messages about them.
    """

    def __init__(
        self, memory: ProgramMemory, table: BoundTable, style: Style, treatments: Mapping[int, Treatment], where: str
    ) -> None:
        self._memory, self._table, self._style = memory, table, style
        self._treatments, self._where = treatments, where
        self._known: dict[Notation, tuple[int, list[int]]] = {}

    def of(self, notation: Notation) -> tuple[int, list[int]]:
        """The address of the words for ``notation``, and the numbers of the columns that it shows.

        Raises SettingsError for a treatment that does not fit its column.
        """
        if notation not in self._known:
            self._known[notation] = self._place(notation)
        return self._known[notation]

    def _place(self, notation: Notation) -> tuple[int, list[int]]:
        words: list[int] = []
        shown: list[int] = []
        for number, column in enumerate(self._table.columns):
            treatment = self._treatments.get(number)
            shown_column = mask_column(self._table.schema.columns[number], treatment)
            text = notation.column(shown_column)
            if _is_shown(treatment, text):
                shown.append(number)
            plain = codecs.spec_of(column, self._style, self._memory)
            if plain.kind & layout.GROUP == layout.TEMPORALS and shown_column.nullable is False:
                plain = replace(plain, d=plain.d | layout.STRICT)
            spec, mask = masked_spec(plain, column, treatment, self._memory, notation, self._where)
            if treatment is None and notation.binary is not None:
                spec = binary_codecs.binary_spec(spec, column, notation.binary.type_of(shown_column), self._memory)
            words += (spec.fixed, spec.prefix, spec.kind, spec.a, spec.b, spec.c, spec.d)
            if treatment == Constant(None):
                text = replace(text, value=text.null or b"", after=b"")
            words.append(self._steps(mask, text.after, is_sized=notation.binary is not None))
            words += self._literal(notation.separator + text.value)
            for literal in (text.null, text.missing):
                words += (
                    _REFUSED if literal is None else self._literal(notation.separator + literal if literal else b"")
                )
        return self._memory.place_words(words), shown

    def _steps(self, mask: Mask, after: bytes, *, is_sized: bool) -> int:
        """The address of the steps after a value: a mask, and the literal after the value; -1 if there is neither."""
        if mask == NO_MASK and not after:
            return -1
        return self._memory.place_words([*mask, *self._literal(after), int(is_sized)])

    def _literal(self, data: bytes) -> tuple[int, int]:
        return self._memory.place_bytes(data), len(data)


def _is_shown(treatment: Treatment | None, text: ColumnText) -> bool:
    return treatment != Excluded() and (treatment != Constant(None) or bool(text.null))
