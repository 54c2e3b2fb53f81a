"""Creates the tables that snapshots fill, and applies the snapshots' rows in commit order with the changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from changefeed.errors import TopicError
from changefeed.formats.read_header import ReadHeader
from changefeed.formats.reader import Envelope, Envelopes
from changefeed.kafka.commit_log.read_tables import TableReadRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.kafka.progress import TopicPartition
from changefeed.kafka.topics import partition_counts
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.identifier import quote_name
from changefeed.records.block import READ_HEADER
from changefeed.records.index_kernel import FIRST, OFFSET, OWN, VALUE, VALUE_END
from changefeed.replicate.applier import Applier
from changefeed.replicate.block import OrderedRecords, RecordRun, pack_order
from changefeed.replicate.commits import COMMIT_ROWS
from changefeed.replicate.fill_state import FillStage, TableFill
from changefeed.replicate.filling import Filling, split_name
from changefeed.replicate.permitted_ddl import check_created_database, check_created_table
from changefeed.replicate.sealed_range import SealedRange
from changefeed.replicate.source_order import order_at
from changefeed.source.mysql.own_tables import SYSTEM_DATABASES

_READ_TIMEOUT_SECONDS = 150.0


@dataclass(frozen=True)
class TableRows:
    """Reads a snapshot's rows of one table from the topics at ``connection``, with ``read_envelopes``."""

    connection: KafkaConnection
    read_envelopes: Envelopes

    def of(self, record: TableReadRecord) -> Iterator[Envelope]:
        """Yield the rows that the snapshot of ``record`` published. Raises TopicError if rows are missing."""
        count = 0
        partitions = [
            (record.topic, each) for each in range(partition_counts(self.connection, [record.topic])[record.topic])
        ]
        purpose = f"to fill table {record.table} of a follower"
        with partition_reader(self.connection, partitions, purpose) as reader:
            for each in reader.to_end(timeout_seconds=_READ_TIMEOUT_SECONDS):
                if not _is_read_by(record.snapshot, each):
                    continue
                for change in self.read_envelopes(each.value or b""):
                    if f"{change.database}.{change.table}" == record.table:
                        count += 1
                        yield change
        if count != record.rows:
            raise TopicError(
                f"snapshot {record.snapshot!r} published {record.rows} rows of {record.table}, and topic "
                f"{record.topic!r} has {count} of them: the others were removed (retention.ms, retention.bytes). Take "
                "another snapshot of the table."
            )


def _is_read_by(snapshot: str, record: KafkaRecord) -> bool:
    headers = dict(record.headers)
    try:
        read = ReadHeader.of(headers[READ_HEADER])
    except (KeyError, ValueError):
        return False
    return read.snapshot == snapshot and bool(record.value)


@dataclass
class TableCreator:
    """Creates the tables of ``filling`` on the follower."""

    filling: Filling

    def drop_begun(self) -> None:
        """Drop the tables that an earlier run began to create. This run creates them at their positions.

        Raises FollowerError if the follower refuses it.
        """
        state = self.filling.state
        for name, fill in self.filling.state.unfilled.items():
            if fill.stage is FillStage.BEGUN:
                database, table = split_name(name)
                self.filling.session.write(f"DROP TABLE IF EXISTS {quote_name(database)}.{quote_name(table)}")
                state = state.without(name)
        self.filling.keep(state)

    def create_databases(self, at: BinlogCoordinates) -> None:
        """Create the databases that existed when the awaited snapshot of all tables began, if it began at ``at``."""
        if self.filling.all_read is not None and self.filling.awaited_snapshot_at == at:
            for database, create in self.filling.all_read.databases.items():
                if self.filling.scope.follows(database):
                    self._create_database(create, database)

    def _create_database(self, create: str, database: str) -> None:
        check_created_database(create, database, self.filling.scope)
        self.filling.session.write(create.replace("CREATE DATABASE ", "CREATE DATABASE IF NOT EXISTS ", 1))

    def begin_tables(self, at: BinlogCoordinates) -> dict[str, TableReadRecord]:
        """Add the tables to create at ``at`` to the state, and return their records.

        The caller stores the state in the follower before it creates them.
        """
        due = self.filling.take_due(at)
        created: dict[str, TableReadRecord] = {}
        state = (
            self.filling.state
            if self.filling.awaited_snapshot_at != at
            else replace(self.filling.state, awaits_snapshot=False)
        )
        for name, record in due.items():
            fill = state.tables.get(name)
            has_table = self.filling.has_table(*split_name(name))
            if has_table and fill is not None and fill.stage is FillStage.FILLING:
                taken_over = TableFill(record.snapshot, fill.at, name, FillStage.FILLING)
                state = state.with_table(name, taken_over)
            elif not has_table:
                state = state.without(name)
                if record.create_table:
                    state = state.with_table(name, TableFill(record.snapshot, record.at, name))
                    created[name] = record
        self.filling.keep(state)
        return created

    def create(self, record: TableReadRecord) -> None:
        """Create a missing table.

        Raises FollowerError if the follower refuses it, or if the record has a statement with another effect.
        """
        database, _ = split_name(record.table)
        check_created_table(record.create_table, record.table, self.filling.scope)
        if database not in SYSTEM_DATABASES:  # the server has its own databases
            self._create_database(record.create_database, database)
        self.filling.session.write(f"USE {quote_name(database)}")
        self.filling.session.write(record.create_table)

    def note_created(self, record: TableReadRecord) -> None:
        """Add the created table to the state. A table without a key is complete."""
        stage = FillStage.FILLING if record.keyed else FillStage.COMPLETE
        rows = 0 if record.keyed else record.rows or 0
        self.filling.keep(
            self.filling.state.with_table(
                record.table, replace(self.filling.state.tables[record.table], stage=stage, rows=rows)
            )
        )


@dataclass
class Filler:
    """Passes changes to ``applier``, and writes rows of snapshots. ``rows`` reads rows of tables without a key."""

    applier: Applier
    rows: TableRows

    @property
    def filling(self) -> Filling:
        """The tables that snapshots fill."""
        return self.applier.commits.filling

    def take(self, block: OrderedRecords, sealed_range: SealedRange, offsets: Mapping[TopicPartition, int]) -> None:
        """Apply the records of a block that may also have rows of snapshots; see `Applier.take`."""
        for part, read in block.parts():
            first = 0
            while (at := self.filling.next_creation) is not None:
                after = np.flatnonzero(part.words[first:, FIRST] >= pack_order(order_at(at))[0])
                if not len(after):
                    break
                last = first + int(after[0])
                self._take(part.part(first, last), read, sealed_range, offsets)
                self._create_tables(at)
                first = last
            self._take(part.part(first, len(part)) if first else part, read, sealed_range, offsets)

    def finish(self, watermark: BinlogCoordinates, offsets: Mapping[TopicPartition, int]) -> None:
        """Create the tables that are due up to ``watermark``, store which are complete, and call `Applier.finish`."""
        while (at := self.filling.next_creation) is not None and at <= watermark:
            self._create_tables(at)
        self.filling.note_complete_tables(watermark)
        self.applier.finish(watermark, offsets)

    def _take(
        self,
        block: OrderedRecords,
        read: RecordRun | None,
        sealed_range: SealedRange,
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        if not len(block):
            return
        if read is None:
            self.applier.take(block, sealed_range, offsets)
            return
        read_envelopes = self.applier.read_envelopes
        change = read_envelopes(block.value(0))[0]
        database, table = change.database, change.table
        if not self.filling.takes(database, table, read):
            return
        if not self.applier.tables.is_excluded(database, table):
            changes = self.applier.tables.changes_of(database, table)
            values = block.words[:, [VALUE, VALUE_END]]
            texts = changes.texts_of(block.data, values) if self.applier.reads_texts else None
            if texts is not None:
                changes.overwrite(texts)
            else:
                rows = [each for number in range(len(block)) for each in read_envelopes(block.value(number))]
                changes.overwrite_each([each.after for each in rows if each.after is not None])
        next_offset = read.first_offset + int(block.words[-1, OFFSET]) + 1
        self.filling.note_rows(database, table, read, len(block), next_offset)
        self.applier.count((database, table), len(block))
        at_commit = not block.words[0, OWN]
        if at_commit and self.applier.commits.is_full:
            self.applier.commit_here(offsets)

    def _create_tables(self, at: BinlogCoordinates) -> None:
        """Create the tables that are due at ``at``, which is between two commits. A killed run can be repeated."""
        applier, filling = self.applier, self.filling
        applier.commit(at)
        applier.commits.batches.wait_for_commits()
        creator = TableCreator(filling)
        creator.create_databases(at)
        created = creator.begin_tables(at)
        applier.commits.store_filling()
        for record in created.values():
            creator.create(record)
            applier.forget_tables()
            if not record.keyed:
                self._write_all(record)
            creator.note_created(record)
            applier.commit(at)  # includes all rows of a table without a key
            applier.commits.batches.wait_for_commits()
        applier.forget_tables()
        filling.session.apply_settings()

    def _write_all(self, record: TableReadRecord) -> None:
        """Write all rows of a table without a key, as part of the next commit."""
        applier = self.applier
        database, _, table = record.table.partition(".")
        if applier.tables.is_excluded(database, table):
            return
        changes = applier.tables.changes_of(database, table)
        for number, change in enumerate(self.rows.of(record)):
            changes.take(change)
            applier.counts.tables[database, table] += 1
            if number % COMMIT_ROWS == COMMIT_ROWS - 1:
                changes.write()
