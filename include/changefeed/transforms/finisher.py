"""Makes messages from the rows of tables with functions; it runs between kernel and blocks and keeps the rows'
order."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from changefeed.binlog.kernel import plain_rows
from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import Topics, UnfinishedTable
from changefeed.binlog.unfinished import Routed
from changefeed.errors import SettingsError
from changefeed.formats.by_table import of_table
from changefeed.formats.format import RowFormat
from changefeed.model.column_rules import ColumnRules
from changefeed.model.topic_name import check_chosen_name
from changefeed.native.memory import Words
from changefeed.records.block import Arrays, Message, messages_of, pack
from changefeed.records.partition import partition_of
from changefeed.settings.outbox_settings import OutboxSettings
from changefeed.settings.transform_settings import TransformCall
from changefeed.transforms import outbox
from changefeed.transforms.chain import Chain, Failures
from changefeed.transforms.change import Change
from changefeed.transforms.column_messages import ColumnMessages
from changefeed.transforms.loading import Transform
from changefeed.transforms.outbox import OutboxTable
from changefeed.transforms.plain_rows import PlainFormat, PlainRows, PlainTable
from changefeed.transforms.sequences import make_room_for_parts

_AT_ONCE = 8192
"""The number of rows that are processed together, and so the maximum of a batch."""
REASON_HEADER, TOPIC_HEADER, TABLE_HEADER = "changefeed.reason", "changefeed.topic", "changefeed.table"

_log = logging.getLogger(__name__)


class TransformFinisher:
    """A `RowTransformer` for tables with functions and for outbox tables; each of ``calls`` is imported at its first
    row.

    - ``partitions`` returns the number of partitions of a topic and creates a missing topic.
    - ``reserved`` are topics with other records of the pipeline. Functions and outbox rows may choose any topic,
      existing or not, except these and the state topics of pipelines and of Kafka.
    - ``suffix`` is added to the names of topics after the functions, which do not see it.
    - ``dead_letters`` is the topic for changes for which a function fails; without it such a change stops the slice
      with BadRecordError. A dead letter has headers that describe the change. It has no key and no value, because they
      could contain values that the function should hide.
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
        reserved: Collection[str] = (),
    ) -> None:
        self._outbox, self._reserved = outbox, reserved
        self._calls, self._rules, self._partitions, self._dead_letters = calls, rules, partitions, dead_letters
        self._suffix = suffix
        self._format = format
        self._tables: dict[int, _Table | OutboxTable] = {}
        self._dropped: Counter[str] = Counter()

    def take_drop_counts(self) -> dict[str, int]:
        """The number of changes that each function dropped since the last call, by the function's name."""
        counts = dict(self._dropped)
        self._dropped.clear()
        return counts

    def row_format(self, database: str, table: str) -> RowFormat | None:
        """See `RowTransformer.row_format`."""
        transformed = any(call.matches(database, table) for call in self._calls)
        if self._outbox is None or not self._outbox.matches(database, table):
            return PlainFormat(of_table(self._format, database, table)) if transformed else None
        if transformed:
            raise SettingsError(
                f"{database}.{table} is an outbox, and `transforms` matches it, too: expected one of them"
            )
        return outbox.ROWS

    def output(self, count: int, output: Output, topics: Topics) -> tuple[int, Output]:
        """See `RowTransformer.output`."""
        make_room_for_parts(output.sequences[:count])
        is_unfinished = np.array([topic in topics.unfinished for topic, _ in topics.groups], bool)
        where = is_unfinished[output.groups[:count]]
        if not where.any():
            return count, output
        message_parts, groups = [output.arrays(0, count)], [output.groups[:count]]
        for group in np.unique(output.groups[:count][where]).tolist():
            rows = np.flatnonzero(output.groups[:count] == group)
            unfinished = topics.unfinished[topics.groups[group][0]]
            for at in range(0, len(rows), _AT_ONCE):
                for arrays, part_groups in self._make_messages(
                    output.selected_output(rows[at : at + _AT_ONCE]), unfinished, topics
                ):
                    message_parts.append(arrays)
                    groups.append(part_groups)
        joined_output = Output.joined_output(message_parts, np.concatenate(groups))
        order = np.lexsort((joined_output.sequences, joined_output.positions))
        order = order[(order >= count) | ~where[np.minimum(order, count - 1)]]
        return len(order), joined_output.selected_output(order)

    def messages(self, unfinished: Iterable[Routed], topics: Topics) -> Iterator[Routed]:
        """See `RowTransformer.messages`."""
        for name, run in groupby(unfinished, key=lambda routed: routed[0][0]):
            table = topics.unfinished.get(name)
            if table is None:
                yield from run
            else:
                yield from self._route([message for _, message in run], table, topics)

    def _route(self, messages: Sequence[Message], unfinished: UnfinishedTable, topics: Topics) -> Iterator[Routed]:
        for at in range(0, len(messages), _AT_ONCE):
            arrays = Arrays.of(pack(messages[at : at + _AT_ONCE]))
            rows = Output.joined_output([arrays], np.zeros(len(arrays.positions), np.int64))
            made = self._make_messages(rows, unfinished, topics)
            if not made:
                continue
            joined_output = Output.joined_output(
                [arrays for arrays, _ in made], np.concatenate([groups for _, groups in made])
            )
            order = np.lexsort((joined_output.sequences, joined_output.positions))
            ordered = joined_output.selected_output(order)
            written = messages_of(ordered.arrays(0, len(order)))
            yield from zip((topics.groups[group] for group in ordered.groups.tolist()), written, strict=True)

    def _make_messages(self, output: Output, unfinished: UnfinishedTable, topics: Topics) -> list[tuple[Arrays, Words]]:
        """The messages of the rows of ``output``, with their groups, in no order."""
        table = self._table(unfinished)
        rows = table.rows.read(output)

        def partitions(topic: str) -> int:
            if topic != unfinished.route.topic:  # the pipeline's own template was checked
                self._check_chosen(topic)
            return self._partitions(topic)

        made, failures = table.write(rows, partitions, topics)
        return [*made, *self._make_dead_letters(rows, failures, topics)]

    def _check_chosen(self, topic: str) -> None:
        check_chosen_name(topic)
        if topic in self._reserved:
            raise ValueError(f"topic {topic!r} is not for rows: it has the records of transactions")

    def _make_dead_letters(self, rows: PlainRows, failures: Failures, topics: Topics) -> Iterator[tuple[Arrays, Words]]:
        """The dead letters of rows from which no message can be made. Without a topic for them, raises the first
        error."""
        if not failures:
            return
        numbers = sorted(failures)
        letters: list[Routed] = []
        statement_rows = rows.facts[numbers, plain_rows.STATEMENT_ROW].tolist()
        for number, row, change in zip(numbers, statement_rows, rows.objects(numbers).changes, strict=True):
            error = failures[number].error(change)
            if self._dead_letters is None:
                raise error from failures[number]
            _log.warning("%s", error)
            (message,) = rows.output.messages(number, number + 1)
            letters.append(self._dead_letter(self._dead_letters, message, change, row))
        groups = [topics.group_of(topic, self._partitions(topic)) + partition for (topic, partition), _ in letters]
        yield Arrays.of(pack(letter for _, letter in letters)), np.array(groups, np.int64)

    def _table(self, unfinished: UnfinishedTable) -> _Table | OutboxTable:
        known = self._tables.get(id(unfinished))
        if known is None:
            # The value refers to ``unfinished``, so that no other object gets the same id.
            known = self._tables[id(unfinished)] = self._create_table(unfinished)
        return known

    def _create_table(self, unfinished: UnfinishedTable) -> _Table | OutboxTable:
        schema, rules = unfinished.schema, self._rules
        if self._outbox is not None and self._outbox.matches(schema.database, schema.table):
            return OutboxTable(self._outbox.columns, unfinished, rules, self._suffix, self._dropped)
        functions = [Transform.of(call) for call in self._calls if call.matches(schema.database, schema.table)]
        format = of_table(self._format, schema.database, schema.table)
        return _Table(unfinished, Chain(functions, self._dropped), format, rules, self._suffix)

    def _dead_letter(self, topic: str, message: Message, change: Change, statement_row: int) -> Routed:
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
        count = self._partitions(topic)
        partition = partition_of(None, message.event_id, count, gtid=message.gtid, statement_row=statement_row)
        return (topic, partition), letter


class _Table:
    """A table whose rows go through functions."""

    def __init__(
        self, unfinished: UnfinishedTable, chain: Chain, format: RowFormat, rules: ColumnRules, suffix: str
    ) -> None:
        has_event = PlainFormat(format).has_event(unfinished.schema)
        self.unfinished = unfinished
        self.rows = PlainTable(unfinished, unfinished.route.topic.removesuffix(suffix), has_event)
        self._chain = chain
        self._messages = ColumnMessages(unfinished, format, rules, suffix)

    def write(
        self, rows: PlainRows, partitions: Callable[[str], int], topics: Topics
    ) -> tuple[list[tuple[Arrays, Words]], Failures]:
        """The messages of ``rows`` with their groups, and the failures by row."""
        changes, failures = self._chain.of_rows(rows)
        made, unwritten = self._messages.write(changes, rows, self._chain.last, partitions, topics)
        return made, failures | unwritten
