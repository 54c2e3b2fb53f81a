"""Between the kernel and the blocks: rows of tables with functions become messages, each where it stood."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import Topics, UnfinishedTable
from changefeed.binlog.unfinished import Routed
from changefeed.block import Arrays, Message, pack
from changefeed.errors import ChangefeedError, SettingsError
from changefeed.formats.by_table import of_table
from changefeed.formats.format import RowFormat
from changefeed.formats.render import RowChange
from changefeed.partition import partition_of
from changefeed.pipelines.column_rules import ColumnRules
from changefeed.pipelines.outbox_settings import OutboxSettings
from changefeed.pipelines.transform_settings import TransformCall
from changefeed.transforms import outbox
from changefeed.transforms.chain import BatchTransform, Chain, Transform, TransformFailed
from changefeed.transforms.change import Change, Coordinates
from changefeed.transforms.outbox import OutboxTable
from changefeed.transforms.plain_rows import PlainRows, row_change
from changefeed.transforms.rendering import Rendering
from changefeed.transforms.sequences import PART_BITS, STEP_BITS, make_room_for_parts

if TYPE_CHECKING:
    from changefeed.transforms.column_chain import ColumnTable

_AT_ONCE, _IN_COLUMNS = 1024, 8192
"""How many rows are Python objects at a time, and how many a function of batches gets at most."""
REASON_HEADER, TOPIC_HEADER, TABLE_HEADER = "changefeed.reason", "changefeed.topic", "changefeed.table"

_log = logging.getLogger(__name__)


class TransformFinisher:
    """A `Finisher` of the tables that functions are for; each of ``calls`` is imported when its first row comes.

    ``partitions`` tells of a topic how many it has, and has it made where it is not there; it raises ValueError for a
    name that messages may not be sent to. ``suffix`` is added to the names of topics behind the functions, which do
    not see it. ``dead_letters`` is the topic for changes that a function fails on; without one such a change stops the
    slice with BadRecordError. A dead letter has headers that say what it was, and neither key nor value: what the
    function was to hide would stand there.
    """

    def __init__(
        self,
        calls: Sequence[TransformCall],
        format: RowFormat,
        rules: ColumnRules,
        partitions: Callable[[str], int],
        *,
        suffix: str = "",
        dead_letters: str | None = None,
        outbox: OutboxSettings | None = None,
    ) -> None:
        self._outbox = outbox
        self._calls, self._rules, self._partitions, self._dead_letters = calls, rules, partitions, dead_letters
        self._suffix = suffix
        self._format = format
        self._tables: dict[int, _Table | OutboxTable] = {}
        self._dropped: Counter[str] = Counter()

    def taken_counts(self) -> dict[str, int]:
        """How many changes each function dropped since the last call, by its name."""
        counts = dict(self._dropped)
        self._dropped.clear()
        return counts

    def row_format(self, database: str, table: str) -> RowFormat | None:
        """See `Finisher.row_format`."""
        transformed = any(call.takes(database, table) for call in self._calls)
        if self._outbox is None or not self._outbox.takes(database, table):
            return PlainRows(of_table(self._format, database, table)) if transformed else None
        if transformed:
            raise SettingsError(f"{database}.{table} is an outbox, and `transforms` take it too: wanted one of them")
        return outbox.ROWS

    def output(self, count: int, output: Output, topics: Topics) -> tuple[int, Output]:
        """See `Finisher.output`."""
        make_room_for_parts(output.sequences[:count])
        is_unfinished = np.array([topic in topics.unfinished for topic, _ in topics.groups], bool)
        where = is_unfinished[output.groups[:count]]
        if not where.any():
            return count, output
        pieces, groups = [output.piece(0, count)], [output.groups[:count]]
        for group in np.unique(output.groups[:count][where]).tolist():
            rows = np.flatnonzero(output.groups[:count] == group)
            unfinished = topics.unfinished[topics.groups[group][0]]
            for at in range(0, len(rows), _IN_COLUMNS):
                for piece, of_piece in self._pieces(output.selected(rows[at : at + _IN_COLUMNS]), unfinished, topics):
                    pieces.append(piece)
                    groups.append(of_piece)
        joined = Output.joined(pieces, np.concatenate(groups))
        order = np.lexsort((joined.sequences, joined.positions))
        order = order[(order >= count) | ~where[np.minimum(order, count - 1)]]
        return len(order), joined.selected(order)

    def _pieces(
        self, rows: Output, unfinished: UnfinishedTable, topics: Topics
    ) -> Iterable[tuple[Arrays, NDArray[np.int64]]]:
        table = self._table(unfinished)
        made = table.by_columns.finished(rows, self._partitions, topics) if table.by_columns is not None else None
        if made is not None:
            yield from made
            return
        routed = list(self._finished(list(rows.messages(0, len(rows.positions))), unfinished))
        groups = [topics.group_of(topic, self._partitions(topic)) + partition for (topic, partition), _ in routed]
        yield Arrays.of(pack(message for _, message in routed)), np.array(groups, np.int64)

    def messages(self, unfinished: Iterable[Routed], topics: Topics) -> Iterator[Routed]:
        """See `Finisher.messages`."""
        for name, run in groupby(unfinished, key=lambda routed: routed[0][0]):
            table = topics.unfinished.get(name)
            if table is None:
                yield from run
            else:
                yield from self._finished([message for _, message in run], table)

    def _finished(self, messages: Sequence[Message], unfinished: UnfinishedTable) -> Iterator[Routed]:
        table = self._table(unfinished)
        for at in range(0, len(messages), _AT_ONCE):
            few = messages[at : at + _AT_ONCE]
            for message, made in zip(few, table.finished(few, self._partitions), strict=True):
                if isinstance(made, TransformFailed):
                    yield self._failed(table.change(row_change(message)), message, made)
                else:
                    yield from made

    def _failed(self, change: Change, message: Message, failed: TransformFailed) -> Routed:
        error = failed.error(change)
        if self._dead_letters is None:
            raise error from failed
        _log.warning("%s", error)
        return self._dead_letter(self._dead_letters, message, change)

    def _table(self, unfinished: UnfinishedTable) -> _Table | OutboxTable:
        known = self._tables.get(id(unfinished))
        if known is None:
            # It holds ``unfinished``, so that no other gets its id.
            known = self._tables[id(unfinished)] = self._made_table(unfinished)
        return known

    def _made_table(self, unfinished: UnfinishedTable) -> _Table | OutboxTable:
        schema, rules = unfinished.schema, self._rules
        functions = [Transform.of(call) for call in self._calls if call.takes(schema.database, schema.table)]
        format = of_table(self._format, schema.database, schema.table)
        rendering = Rendering(format, rules, schema, unfinished.route)
        table = _Table(unfinished, Chain(functions, self._dropped), rendering, self._suffix)
        if self._outbox is not None and self._outbox.takes(schema.database, schema.table):
            return OutboxTable(self._outbox.columns, unfinished, rules, table.change, self._suffix, self._dropped)
        if all(isinstance(function, BatchTransform) for function in functions):
            from changefeed.transforms.column_chain import ColumnTable  # loads pyarrow, which no other function needs

            table.by_columns = ColumnTable(
                unfinished,
                functions,
                format,
                rules,
                suffix=self._suffix,
                has_event=PlainRows(format).has_event(schema),
                dropped=self._dropped,
            )
        return table

    def _dead_letter(self, topic: str, message: Message, change: Change) -> Routed:
        headers = (
            (REASON_HEADER, b"a transform of the pipeline failed on this change: see the log of its run"),
            (TOPIC_HEADER, (change.topic + self._suffix).encode()),
            (TABLE_HEADER, f"{change.database}.{change.table}".encode()),
        )
        letter = Message(
            message.position,
            message.sequence,
            None,
            None,
            message.event_id,
            message.gtid,
            headers,
            message.seconds,
        )
        return (topic, partition_of(None, message.event_id, self._partitions(topic))), letter


class _Table:
    """What is the same for all changes of a table."""

    def __init__(self, unfinished: UnfinishedTable, chain: Chain, rendering: Rendering, suffix: str) -> None:
        self._chain, self._rendering, self._suffix = chain, rendering, suffix
        self.by_columns: ColumnTable | None = None
        self._unfinished = unfinished
        self._schema = schema = unfinished.schema
        self._topic = unfinished.route.topic.removesuffix(suffix)
        self._key = tuple(schema.columns[number].name for number in schema.primary_key)

    def change(self, given: RowChange) -> Change:
        """What functions get of a row change."""
        return Change(
            given.op,
            self._schema.database,
            self._schema.table,
            given.before,  # type: ignore[arg-type]  # dicts, as they were just parsed
            given.after,  # type: ignore[arg-type]
            self._key,
            self._topic,
            datetime.fromtimestamp(given.ts_seconds, UTC),
            given.gtid or None,
            Coordinates(given.file, given.position, given.row),
        )

    def finished(
        self, messages: Sequence[Message], partitions: Callable[[str], int]
    ) -> Iterator[list[Routed] | TransformFailed]:
        """For each of ``messages`` those that are made of it, all of them or none."""
        given = [row_change(message) for message in messages]
        outcomes = self._chain([self.change(change) for change in given])
        for message, change, outcome in zip(messages, given, outcomes, strict=True):
            if isinstance(outcome, TransformFailed):
                yield outcome
            else:
                yield self._written(outcome, change, message, partitions)

    def _written(
        self, changes: Sequence[Change], given: RowChange, message: Message, partitions: Callable[[str], int]
    ) -> list[Routed] | TransformFailed:
        made: list[Routed] = []
        try:
            if len(changes) >> PART_BITS:
                raise ValueError(f"more than {1 << PART_BITS:,} changes were made of one")
            for part, change in enumerate(changes):
                made += self._rendered(change, part, given, message, partitions)
        except ChangefeedError:
            raise
        except Exception as error:
            reason = f"what it returned cannot be written: {type(error).__name__}: {error}"
            return TransformFailed(self._chain.last, reason)
        return made

    def _rendered(
        self, change: Change, part: int, given: RowChange, message: Message, partitions: Callable[[str], int]
    ) -> Iterator[Routed]:
        topic = change.topic + self._suffix
        count = partitions(topic)
        event_id = message.event_id + (b".%d" % part if part else b"")
        for hashed, rendered in self._rendering.messages(change, given, part):
            step_id = event_id + (b"/%d" % rendered.step if rendered.step else b"")
            where = (topic, partition_of(hashed, step_id, count))
            sequence = message.sequence | part << STEP_BITS | rendered.step
            key, value, headers = rendered.key, rendered.value, rendered.headers
            yield (
                where,
                Message(message.position, sequence, key, value, step_id, message.gtid, headers, message.seconds),
            )
