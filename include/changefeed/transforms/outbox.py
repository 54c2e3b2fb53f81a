"""Makes messages from the rows that an application inserted into an outbox table.

As with Debezium's outbox event router, an inserted row is a message; its topic, key and value are the texts of its
columns. Deletes are ignored. Messages are built column by column. Source:
https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from changefeed.binlog.kernel import plain_rows
from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import Topics, UnfinishedTable
from changefeed.errors import SettingsError
from changefeed.formats.columns import ColumnsFormat
from changefeed.formats.template import OPS
from changefeed.model.column_rules import ColumnRules, Excluded
from changefeed.model.column_types import DATA_TYPES
from changefeed.model.message_key import chosen_columns
from changefeed.model.table_schema import Column
from changefeed.native.memory import Words
from changefeed.records.block import HAS_HEADERS, NULL_KEY, NULL_VALUE, Arrays
from changefeed.records.key_partitions import key_partitions
from changefeed.records.varint import encode_bytes, encode_varint
from changefeed.settings.outbox_settings import PAYLOAD, OutboxColumns, Place
from changefeed.transforms.chain import Failures, TransformFailed
from changefeed.transforms.column_messages import bytes_of, from_base64
from changefeed.transforms.masked_values import mask_value, text_to_hash
from changefeed.transforms.plain_rows import PlainFormat, PlainRows, PlainTable

NAME = "outbox"
"""The name of the outbox in counts of skipped rows and in failures."""
ROWS = PlainFormat(ColumnsFormat())
"""The format in which the kernel passes outbox rows, for every format of the pipeline; it does not change texts."""
_BYTES = frozenset(data_type.binary for data_type in DATA_TYPES.values() if data_type.binary)
_BYTES_TYPE = pa.large_binary()
_UPDATE, _DELETE = OPS.index("u"), OPS.index("d")

_log = logging.getLogger(__name__)


@dataclass
class _Parts:
    """Collects parts of messages in one array of bytes; a part has an address and a size for each row."""

    rows: int
    parts: list[NDArray[np.uint8]] = field(default_factory=list)
    size: int = 0

    def add(self, data: NDArray[np.uint8]) -> int:
        """Append ``data`` and return its address."""
        at, self.size = self.size, self.size + len(data)
        self.parts.append(data)
        return at

    def one_of(self, literals: Mapping[int, bytes], which: Words) -> tuple[Words, Words]:
        """The address and size of a literal for each row; ``which`` has the number of the row's literal."""
        at = {number: self.add(np.frombuffer(text, np.uint8)) for number, text in literals.items()}
        numbers, index = np.unique(which, return_inverse=True)
        starts = np.array([at[number] for number in numbers.tolist()], np.int64)
        sizes = np.array([len(literals[number]) for number in numbers.tolist()], np.int64)
        return starts[index], sizes[index]

    def texts(self, values: pa.Array) -> tuple[Words, Words]:
        """The address and size of a column's text for each row; NULL and 0 if it is null."""
        data, starts, sizes = bytes_of(values)
        is_there = values.is_valid().to_numpy(zero_copy_only=False)
        return np.where(is_there, starts + self.add(data), plain_rows.NULL), np.where(is_there, sizes, 0)


@dataclass(frozen=True)
class _Rows:
    """Inserted rows, from which messages are made.

    ``numbers`` are the rows' numbers among all rows that were read, ``statement_rows`` their numbers in their
    statements.
    """

    numbers: Words
    statement_rows: Words
    output: Output
    columns: Mapping[str, pa.Array]

    def without(self, failed: Failures) -> _Rows:
        """The rows without the ``failed`` ones."""
        if not failed:
            return self
        stay = np.flatnonzero(~np.isin(self.numbers, list(failed)))
        taken = pa.array(stay)
        columns = {name: values.take(taken) for name, values in self.columns.items()}
        return _Rows(self.numbers[stay], self.statement_rows[stay], self.output.selected_output(stay), columns)


class OutboxTable:
    """Makes the messages of one outbox table.

    Raises SettingsError if the settings name columns that the table does not have or that the pipeline leaves out.
    """

    def __init__(
        self,
        columns: OutboxColumns,
        unfinished: UnfinishedTable,
        rules: ColumnRules,
        suffix: str,
        left_out: Counter[str],
    ) -> None:
        self._columns, self._suffix, self._left_out = columns, suffix, left_out
        schema = unfinished.schema
        self.rows = PlainTable(unfinished, unfinished.route.topic.removesuffix(suffix), has_event=False)
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

    def write(
        self, rows: PlainRows, partitions: Callable[[str], int], topics: Topics
    ) -> tuple[list[tuple[Arrays, Words]], Failures]:
        """The messages of inserted rows with their groups, and the failures by row."""
        failures: Failures = {}
        ops = rows.ops
        self._count_changed(rows, ops, failures)
        made: list[tuple[Arrays, Words]] = []
        for first, last in rows.alike():
            chosen = first + np.flatnonzero((ops[first:last] != _UPDATE) & (ops[first:last] != _DELETE))
            if len(chosen):
                there = rows.columns(1, chosen)
                columns = {
                    column.name: there.get(column.name, pa.nulls(len(chosen), pa.string()))
                    for column in self._of.values()
                }
                statement_rows = rows.facts[chosen, plain_rows.STATEMENT_ROW]
                inserted = _Rows(chosen, statement_rows, rows.output.selected_output(chosen), columns)
                made += self._messages(inserted, partitions, topics, failures)
        return made, failures

    def _count_changed(self, rows: PlainRows, ops: Words, failures: Failures) -> None:
        """Count the skipped rows; an update fails or is logged."""
        updates = np.flatnonzero(ops == _UPDATE).tolist()
        if self._columns.stops_at_updates:
            reason = "a row of an outbox was updated, and table.op.invalid.behavior is not `warn`"
            failures.update((number, TransformFailed(NAME, reason)) for number in updates)
        else:
            for position in rows.facts[updates, plain_rows.POSITION].tolist():
                _log.warning("%s:%d: a row of an outbox was updated: it makes no message", rows.file, position)
        left_out = int((ops == _DELETE).sum()) + (0 if self._columns.stops_at_updates else len(updates))
        if left_out:
            self._left_out[NAME] += left_out

    def _messages(
        self, rows: _Rows, partitions: Callable[[str], int], topics: Topics, failures: Failures
    ) -> list[tuple[Arrays, Words]]:
        for name in (self._columns.id, self._columns.route_by):
            nulls = np.flatnonzero(self._texts(rows, name).is_null().to_numpy(zero_copy_only=False))
            failures |= {int(rows.numbers[row]): TransformFailed(NAME, f"its {name!r} is NULL") for row in nulls}
        rows = rows.without(failures)
        routes = self._texts(rows, self._columns.route_by).dictionary_encode()
        which = routes.indices.to_numpy(zero_copy_only=False)
        of_route = np.zeros((len(routes.dictionary), 2), np.int64)
        for number, route in enumerate(routes.dictionary.to_pylist()):
            try:
                of_route[number] = self._topic(route, partitions, topics)
            except ValueError as error:
                for row in np.flatnonzero(which == number).tolist():
                    failures[int(rows.numbers[row])] = TransformFailed(NAME, str(error))
        firsts, counts = of_route[which].T
        placed = self._placed_partitions(rows, counts, failures)
        stay = ~np.isin(rows.numbers, list(failures))
        rows = rows.without(failures)
        if not len(rows.numbers):
            return []
        return [self._put_together(rows, firsts[stay], counts[stay], placed[stay])]

    def _topic(self, route: bytes, partitions: Callable[[str], int], topics: Topics) -> tuple[int, int]:
        """The group of the topic's first partition, and its number of partitions; raises ValueError for an invalid
        topic name."""
        topic = self._columns.topic(route.decode()) + self._suffix
        count = partitions(topic)
        return topics.group_of(topic, count), count

    def _placed_partitions(self, rows: _Rows, counts: Words, failures: Failures) -> Words:
        """The partition that a column names for each row, -1 if it names none; ``counts`` has the numbers of
        partitions."""
        placed = np.full(len(rows.numbers), -1, np.int64)
        if not self._placed[Place.PARTITION]:
            return placed
        name = self._placed[Place.PARTITION][0].column
        for row, text in enumerate(self._texts(rows, name).to_pylist()):
            if text is None:
                continue
            if text.isdigit() and int(text) < counts[row]:
                placed[row] = int(text)
            else:
                reason = (
                    f"its {name!r} is {text.decode(errors='replace')!r}: expected a partition of its topic, which has "
                    f"{counts[row]}"
                )
                failures.setdefault(int(rows.numbers[row]), TransformFailed(NAME, reason))
        return placed

    def _put_together(self, rows: _Rows, firsts: Words, counts: Words, placed: Words) -> tuple[Arrays, Words]:
        output, count = rows.output, len(rows.numbers)
        message_parts = _Parts(count)
        source = message_parts.add(output.data)
        ends = output.ends.reshape(-1, 4).astype(np.int64)
        ids, gtids = (ends[:, 1] + source, ends[:, 2] - ends[:, 1]), (ends[:, 2] + source, ends[:, 3] - ends[:, 2])
        key, value = (
            message_parts.texts(self._texts(rows, self._columns.key)),
            message_parts.texts(self._message_values(rows)),
        )
        names = [("id", self._columns.id), *((each.name, each.column) for each in self._placed[Place.HEADER])]
        headers = [(name, message_parts.texts(self._texts(rows, column))) for name, column in names]
        there = [starts != plain_rows.NULL for _, (starts, _) in headers]
        begin = gtids[1] << 8 | np.sum(there, axis=0)
        parts = [key, value, ids]
        parts.append(
            message_parts.one_of({each: bytes((each >> 8, each & 255)) for each in np.unique(begin).tolist()}, begin)
        )
        parts.append(gtids)
        for (name, (starts, sizes)), is_there in zip(headers, there, strict=True):
            before = np.where(is_there, sizes, -1)
            literals = {each: encode_bytes(name.encode()) + encode_varint(each) for each in np.unique(before).tolist()}
            parts += [message_parts.one_of({**literals, -1: b""}, before), (starts, sizes)]
        data = np.concatenate(message_parts.parts)
        numbers = np.ascontiguousarray(counts)
        has_gtid = gtids[1] > 0
        texts = zip(gtids, ids, strict=True)
        starts, sizes = (np.ascontiguousarray(np.where(has_gtid, of_gtid, of_id)) for of_gtid, of_id in texts)
        shifts = np.ascontiguousarray(np.where(has_gtid, rows.statement_rows, 0))
        key_partitions(data, *key, starts, sizes, shifts, numbers)
        groups = np.ascontiguousarray(firsts + np.where(placed >= 0, placed, numbers))
        starts = np.ascontiguousarray(np.stack([start for start, _ in parts], axis=1)).reshape(-1)
        sizes = np.ascontiguousarray(np.stack([size for _, size in parts], axis=1)).reshape(-1)
        out, offsets = np.empty(int(sizes.sum()), np.uint8), np.empty(len(starts) + 1, np.uint32)
        plain_rows.texts(data, starts, sizes, 0, out, offsets)
        first = offsets[:-1].reshape(count, len(parts))
        last = np.append(first[1:, 0], offsets[-1])
        nulls = NULL_KEY * (key[0] < 0) + NULL_VALUE * (value[0] < 0) + HAS_HEADERS
        made = Arrays(
            output.positions.data,
            output.sequences.data,
            np.ascontiguousarray(np.stack([first[:, 1], first[:, 2], first[:, 3], last], axis=1)).reshape(-1).data,
            output.seconds.data,
            nulls.astype(np.uint8).data,
            out.data,
        )
        return made, groups

    def _message_values(self, rows: _Rows) -> pa.Array:
        """The values of messages: payload texts or, by the options, expanded JSON or an envelope. Null for a
        tombstone."""
        columns, envelope = self._columns, self._placed[Place.ENVELOPE]
        texts = self._texts(rows, columns.payload)
        if columns.empty_is_tombstone:
            texts = pc.if_else(pc.equal(pc.binary_length(texts), 0), pa.scalar(None, texts.type), texts)
        if not envelope and not columns.expands_payload:
            return texts
        given = texts.to_pylist()
        expanded: Sequence[Any] = [None] * len(given)
        if columns.expands_payload:
            expanded = [text and _expand(text, keeps_nulls=columns.keeps_nulls) for text in given]
        if not envelope:
            pairs = zip(given, expanded, strict=True)
            return pa.array(
                [orjson.dumps(json) if text and json is not None else text for text, json in pairs], _BYTES_TYPE
            )
        payloads = self._values(rows, columns.payload)
        placed = [(each.name, self._values(rows, each.column)) for each in envelope]
        values: list[bytes | None] = []
        for row, (text, json) in enumerate(zip(given, expanded, strict=True)):
            if columns.empty_is_tombstone and not text:
                values.append(None)
                continue
            payload = json if text and json is not None else payloads[row]
            values.append(orjson.dumps({PAYLOAD: payload, **{name: column[row] for name, column in placed}}))
        return pa.array(values, _BYTES_TYPE)

    def _values(self, rows: _Rows, name: str) -> list[Any]:
        """The values of a column, with masks, in the form of JSON: bytes are in base64."""
        column = self._of[name]
        mask = self._masks.get(column.name)
        values: list[Any] = rows.columns[column.name].to_pylist()
        return values if mask is None else [mask_value(value, mask, column.name) for value in values]

    def _texts(self, rows: _Rows, name: str) -> pa.Array:
        """The values of a column as a large_binary array of their texts or bytes; null for NULL."""
        column = self._of[name]
        values = rows.columns[column.name]
        if column.name not in self._masks:
            if column.data_type in _BYTES:
                return from_base64(values)
            if pa.types.is_string(values.type) or pa.types.is_integer(values.type):
                return pc.cast(pc.cast(values, pa.large_string()), _BYTES_TYPE)
        return pa.array(
            [None if value is None else text_to_hash(value) for value in self._values(rows, name)], _BYTES_TYPE
        )


def _expand(text: bytes, *, keeps_nulls: bool) -> Any:
    """The parsed ``text`` if it is a JSON object or array; None for any other text."""
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
