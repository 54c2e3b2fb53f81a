"""Between the kernel and the blocks: rows of tables with functions become messages, each where it stood."""

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
"""How many rows go through the functions at a time: the most that a function of batches gets."""
REASON_HEADER, TOPIC_HEADER, TABLE_HEADER = "changefeed.reason", "changefeed.topic", "changefeed.table"

_log = logging.getLogger(__name__)


class TransformFinisher:
    """A `RowTransformer` of the tables that functions are for; each of ``calls`` is imported when its first row comes.

    ``partitions`` tells of a topic how many it has, and has it made where it is not there. Functions and rows of an
    outbox choose topics by any name that is for messages, known or not: neither one that pipelines or Kafka keep their
    state in nor ``reserved`` ones, which have other records of the pipeline. ``suffix`` is added to the names of
    topics behind the functions, which do not see it. ``dead_letters`` is the topic for changes that a function fails
    on; without one such a change stops the slice with BadRecordError. A dead letter has headers that say what it was,
    and neither key nor value: what the function was to hide would stand there.
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

    def taken_counts(self) -> dict[str, int]:
        """How many changes each function dropped since the last call, by its name."""
        counts = dict(self._dropped)
        self._dropped.clear()
        return counts

    def row_format(self, database: str, table: str) -> RowFormat | None:
        """See `RowTransformer.row_format`."""
        transformed = any(call.takes(database, table) for call in self._calls)
        if self._outbox is None or not self._outbox.takes(database, table):
            return PlainFormat(of_table(self._format, database, table)) if transformed else None
        if transformed:
            raise SettingsError(f"{database}.{table} is an outbox, and `transforms` take it too: wanted one of them")
        return outbox.ROWS

    def output(self, count: int, output: Output, topics: Topics) -> tuple[int, Output]:
        """See `RowTransformer.output`."""
        make_room_for_parts(output.sequences[:count])
        is_unfinished = np.array([topic in topics.unfinished for topic, _ in topics.groups], bool)
        where = is_unfinished[output.groups[:count]]
        if not where.any():
            return count, output
        pieces, groups = [output.piece(0, count)], [output.groups[:count]]
        for group in np.unique(output.groups[:count][where]).tolist():
            rows = np.flatnonzero(output.groups[:count] == group)
            unfinished = topics.unfinished[topics.groups[group][0]]
            for at in range(0, len(rows), _AT_ONCE):
                for piece, of_piece in self._made(output.selected(rows[at : at + _AT_ONCE]), unfinished, topics):
                    pieces.append(piece)
                    groups.append(of_piece)
        joined = Output.joined(pieces, np.concatenate(groups))
        order = np.lexsort((joined.sequences, joined.positions))
        order = order[(order >= count) | ~where[np.minimum(order, count - 1)]]
        return len(order), joined.selected(order)

    def messages(self, unfinished: Iterable[Routed], topics: Topics) -> Iterator[Routed]:
        """See `RowTransformer.messages`."""
        for name, run in groupby(unfinished, key=lambda routed: routed[0][0]):
            table = topics.unfinished.get(name)
            if table is None:
                yield from run
            else:
                yield from self._routed([message for _, message in run], table, topics)

    def _routed(self, messages: Sequence[Message], unfinished: UnfinishedTable, topics: Topics) -> Iterator[Routed]:
        for at in range(0, len(messages), _AT_ONCE):
            arrays = Arrays.of(pack(messages[at : at + _AT_ONCE]))
            rows = Output.joined([arrays], np.zeros(len(arrays.positions), np.int64))
            made = self._made(rows, unfinished, topics)
            if not made:
                continue
            joined = Output.joined([piece for piece, _ in made], np.concatenate([groups for _, groups in made]))
            order = np.lexsort((joined.sequences, joined.positions))
            ordered = joined.selected(order)
            written = messages_of(ordered.piece(0, len(order)))
            yield from zip((topics.groups[group] for group in ordered.groups.tolist()), written, strict=True)

    def _made(self, output: Output, unfinished: UnfinishedTable, topics: Topics) -> list[tuple[Arrays, Words]]:
        """The messages that the rows of ``output`` become, with the groups that they go to, in no order."""
        table = self._table(unfinished)
        rows = table.rows.read(output)

        def partitions(topic: str) -> int:
            if topic != unfinished.route.topic:  # by the pipeline's own template, which was checked
                self._check_chosen(topic)
            return self._partitions(topic)

        made, failures = table.written(rows, partitions, topics)
        return [*made, *self._failed(rows, failures, topics)]

    def _check_chosen(self, topic: str) -> None:
        check_chosen_name(topic)
        if topic in self._reserved:
            raise ValueError(f"topic {topic!r} is not for rows: it has the records of transactions")

    def _failed(self, rows: PlainRows, failures: Failures, topics: Topics) -> Iterator[tuple[Arrays, Words]]:
        """The dead letters of rows that no message can be made of. Without a topic for them, raises the first error."""
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
            # It holds ``unfinished``, so that no other gets its id.
            known = self._tables[id(unfinished)] = self._made_table(unfinished)
        return known

    def _made_table(self, unfinished: UnfinishedTable) -> _Table | OutboxTable:
        schema, rules = unfinished.schema, self._rules
        if self._outbox is not None and self._outbox.takes(schema.database, schema.table):
            return OutboxTable(self._outbox.columns, unfinished, rules, self._suffix, self._dropped)
        functions = [Transform.of(call) for call in self._calls if call.takes(schema.database, schema.table)]
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

    def written(
        self, rows: PlainRows, partitions: Callable[[str], int], topics: Topics
    ) -> tuple[list[tuple[Arrays, Words]], Failures]:
        """The messages that are made of ``rows``, with the groups that they go to; and why there are none of some."""
        changes, failures = self._chain.of_rows(rows)
        made, unwritten = self._messages.written(changes, rows, self._chain.last, partitions, topics)
        return made, failures | unwritten
