"""Readers of Debezium's envelopes, which return table, row images and coordinates of a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from changefeed.errors import BadRecordError
from changefeed.formats.notation import json_string
from changefeed.formats.reader import Envelope, ReadChange, RowFinder, RowRanges
from changefeed.model.table_schema import TableSchema

if TYPE_CHECKING:
    from changefeed.native.memory import Bytes, Words


def read_envelope(value: bytes) -> Envelope:
    """The envelope of a message's value, with or without its schema. Raises BadRecordError for any other value."""
    try:
        fields = orjson.loads(value)
        if "payload" in fields and "schema" in fields:
            fields = fields["payload"]
        source = fields["source"]
        return Envelope(
            fields["op"],
            source["db"],
            source["table"] or "",
            fields["before"],
            fields["after"],
            source["file"],
            source["pos"],
            source["gtid"] or "",
            fields,
        )
    except (ValueError, TypeError, KeyError) as error:
        raise BadRecordError(
            f"{value[:200]!r} is no envelope of Debezium's ({error!r}): another program writes "
            "to its topic, or it had another format before"
        ) from error


def read_envelopes(value: bytes) -> Sequence[Envelope]:
    """The change of a message's value; () for a record without an op. For `reader.Envelopes`."""
    return (read_envelope(value),) if b'"op"' in value else ()


def change_of(value: Any) -> ReadChange:
    """The change of an envelope or of a schema change record, from its JSON values."""
    if "op" not in value:
        if "ddl" not in value:
            raise KeyError("op")
        return ReadChange("")
    source = value["source"]
    return ReadChange(value["op"], f"{source['db']}.{source['table']}", value["before"], value["after"])


def rows_of_envelopes(tables: Sequence[TableSchema]) -> RowFinder:
    """A finder of the rows of ``tables`` in envelopes without a schema."""
    import numpy as np  # imported here, as reading settings needs no kernels

    from changefeed.formats import envelope_kernel as kernel

    names = [json_string(name) for table in tables for name in (table.database, table.table)]
    texts = np.frombuffer(bytearray().join(names), np.uint8)
    ends = np.cumsum([len(name) for name in names]).astype(np.int64)

    def found(data: Bytes, starts: Words, ends_of_values: Words) -> RowRanges:
        words = np.empty((len(starts), kernel.ENVELOPE_WORDS), np.int64)
        starts, ends_of_values = np.ascontiguousarray(starts), np.ascontiguousarray(ends_of_values)
        kernel.read_envelopes(data, starts, ends_of_values, texts, ends, words.reshape(-1))
        before, after = words[:, kernel.BEFORE : kernel.BEFORE_END + 1], words[:, kernel.AFTER : kernel.AFTER_END + 1]
        return RowRanges(words[:, kernel.OP], words[:, kernel.TABLE], before, after)

    return found
