"""Debezium's envelope read back: which row of which table changed, from what to what, and where in the binlog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from changefeed.errors import BadRecordError
from changefeed.formats.notation import json_string
from changefeed.formats.reader import Envelope, FoundRows, ReadChange, RowFinder
from changefeed.model.table_schema import TableSchema

if TYPE_CHECKING:
    from changefeed.native.memory import Bytes, Words


def read_envelope(value: bytes) -> Envelope:
    """Read a message's value, with its schema or without; raises BadRecordError for one that is no envelope."""
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
            f"{value[:200]!r} is no envelope of Debezium's ({error!r}): something else than this pipeline writes "
            "to its topic, or it had another format before"
        ) from error


def read_envelopes(value: bytes) -> Sequence[Envelope]:
    """The change that a message is of, as `Envelopes`."""
    return (read_envelope(value),) if b'"op"' in value else ()


def change_of(value: Any) -> ReadChange:
    """What an envelope says, or the record of a definition."""
    if "op" not in value:
        if "ddl" not in value:
            raise KeyError("op")
        return ReadChange("")
    source = value["source"]
    return ReadChange(value["op"], f"{source['db']}.{source['table']}", value["before"], value["after"])


def rows_of_envelopes(tables: Sequence[TableSchema]) -> RowFinder:
    """What finds the rows of ``tables`` in envelopes without a schema."""
    import numpy as np  # here, as whoever only looks at settings has no use for kernels

    from changefeed.formats import envelope_kernel as kernel

    names = [json_string(name) for table in tables for name in (table.database, table.table)]
    texts = np.frombuffer(bytearray().join(names), np.uint8)
    ends = np.cumsum([len(name) for name in names]).astype(np.int64)

    def found(data: Bytes, starts: Words, ends_of_values: Words) -> FoundRows:
        words = np.empty((len(starts), kernel.ENVELOPE_WORDS), np.int64)
        starts, ends_of_values = np.ascontiguousarray(starts), np.ascontiguousarray(ends_of_values)
        kernel.read_envelopes(data, starts, ends_of_values, texts, ends, words.reshape(-1))
        before, after = words[:, kernel.BEFORE : kernel.BEFORE_END + 1], words[:, kernel.AFTER : kernel.AFTER_END + 1]
        return FoundRows(words[:, kernel.OP], words[:, kernel.TABLE], before, after)

    return found
