"""The type that rows of a snapshot have in format `maxwell`."""

from __future__ import annotations

import pytest

from changefeed.formats.format import FormatSettings
from changefeed.formats.registry import format_of
from changefeed.formats.template import Op
from changefeed.model.table_schema import Column, TableSchema

TABLE = TableSchema("shop", "orders", (Column("id", "int"),), (0,))


@pytest.mark.parametrize(("options", "read"), [({}, b"bootstrap-insert"), ({"bootstrap_type": "insert"}, b"insert")])
def test_rows_that_were_read_have_the_chosen_type(options: dict[str, str], read: bytes) -> None:
    maxwell = format_of("maxwell", FormatSettings("eu", 1, options=options))
    types: dict[Op, bytes] = {"r": read, "c": b"insert", "u": b"update", "d": b"delete"}
    for op, kind in types.items():
        head = maxwell.value(TABLE, op)[0]
        assert isinstance(head, bytes)
        assert b'"type":"%b"' % kind in head
