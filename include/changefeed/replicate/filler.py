"""Creates the tables that snapshots fill, and gives an applier their rows, between the changes."""

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
from changefeed.model.identifier import quoted
from changefeed.records.block import READ_HEADER
from changefeed.records.index_kernel import FIRST, OFFSET, OWN, VALUE, VALUE_END
from changefeed.replicate.applier import Applier
from changefeed.replicate.block import OrderedRecords, RecordRun, packed
from changefeed.replicate.commits import COMMIT_ROWS
from changefeed.replicate.fill_state import Stage, TableFill
from changefeed.replicate.filling import Filling, parts_of
from changefeed.replicate.permitted import check_created_database, check_created_table
from changefeed.replicate.sealed import SealedStretch
from changefeed.replicate.source_order import turn_of
from changefeed.source.mysql.own_tables import SYSTEM_DATABASES

_PATIENCE_SECONDS = 150.0


@dataclass(frozen=True)
class TableRows:
    """Reads them from the topics of the cluster at ``connection``, with ``read_envelopes``."""

    connection: KafkaConnection
    read_envelopes: Envelopes

    def of(self, record: TableReadRecord) -> Iterator[Envelope]:
        """The rows of a table that ``record`` says to be published. Raises TopicError where some are not there."""
        count = 0
        partitions = [
            (record.topic, each) for each in range(partition_counts(self.connection, [record.topic])[record.topic])
        ]
        wanted = f"to fill table {record.table} of a follower"
        with partition_reader(self.connection, partitions, wanted) as reader:
            for each in reader.to_end(patience_seconds=_PATIENCE_SECONDS):
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
class TableMaker:
    """Creates the tables of ``filling`` in the follower."""

    filling: Filling

    def drop_begun(self) -> None:
        """Drop the tables that an earlier run had begun to make and may not have: they are made when their turn comes.

        Raises FollowerError for what the follower refuses.
        """
        state = self.filling.state
        for name, fill in self.filling.state.unfilled.items():
            if fill.stage is Stage.BEGUN:
                database, table = parts_of(name)
                self.filling.session.write(f"DROP TABLE IF EXISTS {quoted(database)}.{quoted(table)}")
                state = state.without(name)
        self.filling.keep(state)

    def make_databases(self, at: BinlogCoordinates) -> None:
        """Make the databases that were there when a snapshot of all tables began, if that is ``at``."""
        if self.filling.all_read is not None and self.filling.awaited_to == at:
            for database, create in self.filling.all_read.databases.items():
                if self.filling.scope.follows(database):
                    self._make_database(create, database)

    def _make_database(self, create: str, database: str) -> None:
        check_created_database(create, database, self.filling.scope)
        self.filling.session.write(create.replace("CREATE DATABASE ", "CREATE DATABASE IF NOT EXISTS ", 1))

    def begin_made(self, at: BinlogCoordinates) -> dict[str, TableReadRecord]:
        """Note which tables are about to be made at ``at``, and return their records: the state has to be stored in
        the follower before they are made."""
        due = self.filling.take_due(at)
        made: dict[str, TableReadRecord] = {}
        state = self.filling.state if self.filling.awaited_to != at else replace(self.filling.state, awaits=False)
        for name, record in due.items():
            fill = state.tables.get(name)
            is_there = self.filling.is_there(*parts_of(name))
            if is_there and fill is not None and fill.stage is Stage.FILLING:
                taken_over = TableFill(record.snapshot, fill.at, name, Stage.FILLING)
                state = state.with_table(name, taken_over)
            elif not is_there:
                state = state.without(name)
                if record.create_table:
                    state = state.with_table(name, TableFill(record.snapshot, record.at, name))
                    made[name] = record
        self.filling.keep(state)
        return made

    def make(self, record: TableReadRecord) -> None:
        """Make a table that is not there. Raises FollowerError for what the follower refuses, and for a record whose
        statements do anything else."""
        database, _ = parts_of(record.table)
        check_created_table(record.create_table, record.table, self.filling.scope)
        if database not in SYSTEM_DATABASES:  # the server has those
            self._make_database(record.create_database, database)
        self.filling.session.write(f"USE {quoted(database)}")
        self.filling.session.write(record.create_table)

    def is_made(self, record: TableReadRecord) -> None:
        """Note that the table is there; one without a key has all of its rows."""
        stage = Stage.FILLING if record.keyed else Stage.WHOLE
        rows = 0 if record.keyed else record.rows or 0
        self.filling.keep(
            self.filling.state.with_table(
                record.table, replace(self.filling.state.tables[record.table], stage=stage, rows=rows)
            )
        )


@dataclass
class Filler:
    """Passes blocks to ``applier``; ``rows`` reads those of a table without a primary key."""

    applier: Applier
    rows: TableRows

    @property
    def filling(self) -> Filling:
        """The tables that snapshots fill."""
        return self.applier.commits.filling

    def take(self, block: OrderedRecords, stretch: SealedStretch, offsets: Mapping[TopicPartition, int]) -> None:
        """As `Applier.take`, with the rows of snapshots that are in ``block``."""
        for piece, read in block.pieces():
            first = 0
            while (at := self.filling.next_made) is not None:
                behind = np.flatnonzero(piece.words[first:, FIRST] >= packed(turn_of(at))[0])
                if not len(behind):
                    break
                last = first + int(behind[0])
                self._take(piece.piece(first, last), read, stretch, offsets)
                self._make(at)
                first = last
            self._take(piece.piece(first, len(piece)) if first else piece, read, stretch, offsets)

    def finish(self, watermark: BinlogCoordinates, offsets: Mapping[TopicPartition, int]) -> None:
        """As `Applier.finish`: tables up to there are made, and those that have all rows are noted."""
        while (at := self.filling.next_made) is not None and at <= watermark:
            self._make(at)
        self.filling.settle(watermark)
        self.applier.finish(watermark, offsets)

    def _take(
        self,
        block: OrderedRecords,
        read: RecordRun | None,
        stretch: SealedStretch,
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        if not len(block):
            return
        if read is None:
            self.applier.take(block, stretch, offsets)
            return
        read_envelopes = self.applier.read_envelopes
        change = read_envelopes(block.value(0))[0]
        database, table = change.database, change.table
        if not self.filling.takes(database, table, read):
            return
        if not self.applier.tables.is_left_out(database, table):
            changes = self.applier.tables.changes_of(database, table)
            values = block.words[:, [VALUE, VALUE_END]]
            texts = changes.texts_of(block.data, values) if self.applier.reads_texts else None
            if texts is not None:
                changes.overwrite(texts)
            else:
                rows = [each for number in range(len(block)) for each in read_envelopes(block.value(number))]
                changes.overwrite_each([each.after for each in rows if each.after is not None])
        behind = read.first_offset + int(block.words[-1, OFFSET]) + 1
        self.filling.is_taken(database, table, read, len(block), behind)
        self.applier.count(len(block))
        at_commit = not block.words[0, OWN]
        if at_commit and self.applier.commits.is_full:
            self.applier.commit_here(offsets)

    def _make(self, at: BinlogCoordinates) -> None:
        """Make the tables whose turn is ``at``, which is between two commits. It may be done again where it is cut."""
        applier, filling = self.applier, self.filling
        applier.commit(at)
        applier.commits.batches.settle()
        maker = TableMaker(filling)
        maker.make_databases(at)
        made = maker.begin_made(at)
        applier.commits.keep_filling()
        for record in made.values():
            maker.make(record)
            applier.forget_tables()
            if not record.keyed:
                self._write_all(record)
            maker.is_made(record)
            applier.commit(at)  # with all rows of a table without a key
            applier.commits.batches.settle()
        applier.forget_tables()
        filling.session.settle()

    def _write_all(self, record: TableReadRecord) -> None:
        """Have all rows of a table without a key written, with the next commit."""
        applier = self.applier
        database, _, table = record.table.partition(".")
        if applier.tables.is_left_out(database, table):
            return
        changes = applier.tables.changes_of(database, table)
        for number, change in enumerate(self.rows.of(record)):
            changes.take(change)
            applier.applied.rows += 1
            if number % COMMIT_ROWS == COMMIT_ROWS - 1:
                changes.write()
