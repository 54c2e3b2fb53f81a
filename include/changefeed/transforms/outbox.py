"""Rows of an outbox table as the messages that an application wrote there.

As Debezium's outbox event router makes them: a row that is inserted is a message, whose topic, key and value are the
texts of its columns; a delete is the application's tidying up. Source:
https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
"""

from __future__ import annotations

import base64
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from changefeed.binlog.unfinished import Routed
from changefeed.block import Message
from changefeed.column_types import DATA_TYPES
from changefeed.errors import SettingsError
from changefeed.formats.columns import ColumnsFormat
from changefeed.formats.render import RowChange
from changefeed.message_key import chosen_columns
from changefeed.partition import partition_of
from changefeed.pipelines.column_rules import ColumnRules, Excluded
from changefeed.pipelines.outbox_settings import OutboxColumns
from changefeed.table_schema import Column, TableSchema
from changefeed.transforms.chain import TransformFailed
from changefeed.transforms.change import Change
from changefeed.transforms.plain_rows import PlainRows, row_change
from changefeed.transforms.rendering import masked_value

NAME = "outbox"
"""Under which rows are counted that are no messages, and failures told."""
ROWS = PlainRows(ColumnsFormat())
"""What the kernel writes rows of outbox tables in, whatever the pipeline's format: texts are as the source has them."""
_BYTES = frozenset(data_type.binary for data_type in DATA_TYPES.values() if data_type.binary)

_log = logging.getLogger(__name__)


class OutboxTable:
    """One outbox table. ``change`` makes of a row what messages about failures say of it.

    Raises SettingsError for columns that the table does not have, or that the pipeline leaves out.
    """

    def __init__(
        self,
        columns: OutboxColumns,
        schema: TableSchema,
        rules: ColumnRules,
        change: Callable[[RowChange], Change],
        suffix: str,
        left_out: Counter[str],
    ) -> None:
        self.change = change
        self._columns, self._suffix, self._left_out = columns, suffix, left_out
        placed = [name for name, _ in columns.placements]
        names = (columns.id, columns.key, columns.payload, columns.route_by, *placed)
        positions = chosen_columns(schema, names, "outbox takes", "")
        self._of: dict[str, Column] = {name: schema.columns[at] for name, at in zip(names, positions, strict=True)}
        treatments = rules.of(schema)
        self._masks = {schema.columns[position].name: each for position, each in treatments.items()}
        for name, column in self._of.items():
            if self._masks.get(column.name) == Excluded():
                raise SettingsError(
                    f"column {name!r} of {schema.database}.{schema.table} is left out by columns.exclude, and `outbox` "
                    "makes messages of it: take it out of one of the two"
                )

    def finished(
        self, messages: Sequence[Message], partitions: Callable[[str], int]
    ) -> Iterator[list[Routed] | TransformFailed]:
        """For each of ``messages`` the one that its row is, or none for a delete or an update."""
        for message in messages:
            try:
                yield list(self._made(message, partitions))
            except TransformFailed as failed:
                yield failed

    def _made(self, message: Message, partitions: Callable[[str], int]) -> Iterator[Routed]:
        given = row_change(message)
        if given.op not in "cr":
            if given.op == "u" and self._columns.stops_at_updates:
                raise TransformFailed(
                    NAME, "a row of an outbox was updated, and table.op.invalid.behavior is not `warn`"
                )
            if given.op == "u":
                _log.warning("%s:%d: a row of an outbox was updated: it makes no message", given.file, given.position)
            self._left_out[NAME] += 1
            return
        row = given.after or {}
        columns = self._columns
        route, event, key = (self._text(row, name) for name in (columns.route_by, columns.id, columns.key))
        if route is None or event is None:
            raise TransformFailed(NAME, f"its {columns.route_by if route is None else columns.id!r} is NULL")
        value = self._text(row, columns.payload)
        if value == b"" and columns.empty_is_tombstone:
            value = None
        headers = [("id", event)]
        headers += (
            (name, text) for column, name in columns.placements if (text := self._text(row, column)) is not None
        )
        try:
            topic = columns.topic(route.decode()) + self._suffix
            where = (topic, partition_of(key, message.event_id, partitions(topic)))
        except ValueError as error:
            raise TransformFailed(NAME, str(error)) from error
        yield (
            where,
            Message(
                message.position,
                message.sequence,
                key,
                value,
                message.event_id,
                message.gtid,
                tuple(headers),
                message.seconds,
            ),
        )

    def _text(self, row: Any, name: str) -> bytes | None:
        """The value of a column as its text, or its bytes; None for NULL."""
        column = self._of[name]
        value = masked_value(row.get(column.name), self._masks.get(column.name), column.name)
        if value is None:
            return None
        if column.data_type in _BYTES and column.name not in self._masks:
            return base64.b64decode(value)
        return value.encode() if isinstance(value, str) else orjson.dumps(value)
