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
from typing import TYPE_CHECKING, Any

import orjson

from changefeed.binlog.programs.topics import UnfinishedTable
from changefeed.binlog.unfinished import Routed
from changefeed.block import Message
from changefeed.column_types import DATA_TYPES
from changefeed.errors import SettingsError
from changefeed.formats.columns import ColumnsFormat
from changefeed.formats.render import RowChange
from changefeed.message_key import chosen_columns
from changefeed.partition import partition_of
from changefeed.pipelines.column_rules import ColumnRules, Excluded
from changefeed.pipelines.outbox_settings import PAYLOAD, OutboxColumns, Place
from changefeed.table_schema import Column
from changefeed.transforms.chain import TransformFailed
from changefeed.transforms.change import Change
from changefeed.transforms.plain_rows import PlainRows, row_change
from changefeed.transforms.rendering import masked_value

if TYPE_CHECKING:
    from changefeed.transforms.outbox_columns import OutboxByColumns

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
        unfinished: UnfinishedTable,
        rules: ColumnRules,
        change: Callable[[RowChange], Change],
        suffix: str,
        left_out: Counter[str],
    ) -> None:
        self.change = change
        self.by_columns: OutboxByColumns | None = None
        self._columns, self._suffix, self._left_out = columns, suffix, left_out
        schema = unfinished.schema
        there = {column.name.lower() for column in schema.columns}
        placements = [each for each in columns.placements if columns.stops_at_missing or each.column.lower() in there]
        self._placed = {place: [each for each in placements if each.place is place] for place in Place}
        names = (columns.id, columns.key, columns.payload, columns.route_by, *(each.column for each in placements))
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
        used = {column.name for column in self._of.values()}
        if not columns.expands_payload and not self._placed[Place.ENVELOPE] and not used & self._masks.keys():
            from changefeed.transforms.outbox_columns import OutboxByColumns  # loads pyarrow, which no other way needs
            from changefeed.transforms.plain_columns import PlainTable

            self.by_columns = OutboxByColumns(
                PlainTable(unfinished, unfinished.route.topic, has_event=False),
                columns,
                placements,
                {name: column.name for name, column in self._of.items()},
                frozenset(column.name for column in self._of.values() if column.data_type in _BYTES),
                suffix=suffix,
                left_out=left_out,
                name=NAME,
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
        headers = [("id", event)]
        for placed in self._placed[Place.HEADER]:
            if (text := self._text(row, placed.column)) is not None:
                headers.append((placed.name, text))
        try:
            topic = columns.topic(route.decode()) + self._suffix
            where = (topic, self._partition(row, key, message, partitions(topic)))
        except ValueError as error:
            raise TransformFailed(NAME, str(error)) from error
        yield (
            where,
            Message(
                message.position,
                message.sequence,
                key,
                self._message_value(row),
                message.event_id,
                message.gtid,
                tuple(headers),
                message.seconds,
            ),
        )

    def _partition(self, row: Any, key: bytes | None, message: Message, count: int) -> int:
        """The partition that a column names, or that of the key; ValueError where the topic has none such."""
        for placed in self._placed[Place.PARTITION]:
            text = self._text(row, placed.column)
            if text is None:
                break
            if not text.isdigit() or int(text) >= count:
                raise ValueError(
                    f"its {placed.column!r} is {text.decode(errors='replace')!r}: wanted a partition of its topic, "
                    f"which has {count}"
                )
            return int(text)
        return partition_of(key, message.event_id, count)

    def _message_value(self, row: Any) -> bytes | None:
        """The payload's text; as JSON, and in an envelope, where the options say so. None for a tombstone."""
        columns, is_alone = self._columns, not self._placed[Place.ENVELOPE]
        text = self._text(row, columns.payload)
        if (columns.empty_is_tombstone and not text) or (text is None and is_alone):
            return None
        expanded = _expanded(text, keeps_nulls=columns.keeps_nulls) if text and columns.expands_payload else None
        if is_alone:
            return text if expanded is None else orjson.dumps(expanded)
        payload = self._value(row, columns.payload) if expanded is None else expanded
        placed = {each.name: self._value(row, each.column) for each in self._placed[Place.ENVELOPE]}
        return orjson.dumps({PAYLOAD: payload, **placed})

    def _value(self, row: Any, name: str) -> Any:
        """The value of a column as JSON has it: bytes are in base64."""
        column = self._of[name]
        return masked_value(row.get(column.name), self._masks.get(column.name), column.name)

    def _text(self, row: Any, name: str) -> bytes | None:
        """The value of a column as its text, or its bytes; None for NULL."""
        column, value = self._of[name], self._value(row, name)
        if value is None:
            return None
        if column.data_type in _BYTES and column.name not in self._masks:
            return base64.b64decode(value)
        return value.encode() if isinstance(value, str) else orjson.dumps(value)


def _expanded(text: bytes, *, keeps_nulls: bool) -> Any:
    """The JSON object or array that ``text`` is; None for any other text."""
    if text.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return document if keeps_nulls else _without_nulls(document)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
