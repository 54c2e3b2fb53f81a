"""Applies records to a follower: transactions of the source in their order, some as one, the position with them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from changefeed.binlog.kernel.memory import Words
from changefeed.binlog.kernel.record_index import GTID, STEP_BITS, VALUE, VALUE_END
from changefeed.coordinates import BinlogCoordinates
from changefeed.ddl.session import Server
from changefeed.errors import FollowerError, SettingsError
from changefeed.formats.envelope import Envelope
from changefeed.formats.style import Style
from changefeed.kafka.progress import TopicPartition
from changefeed.mysql.catalog import table_schema
from changefeed.mysql.follower_session import FollowerSession
from changefeed.replicate.batch_sessions import BatchSessions
from changefeed.replicate.block import Packed, SourceBlock, packed
from changefeed.replicate.definitions import Definition, state_of
from changefeed.replicate.filling import Filling
from changefeed.replicate.left_out import LeftOut
from changefeed.replicate.position import DATABASE, BegunDefinition, FollowerPosition, PositionTable
from changefeed.replicate.row_texts import RowTexts
from changefeed.replicate.sealed import SealedStretch
from changefeed.replicate.source_order import ChangeId
from changefeed.replicate.statements import ChangeStatement, Statements
from changefeed.replicate.table_changes import TableChanges

COMMIT_ROWS = 20_000
"""A follower's transaction ends at the first commit of the source after so many changes."""
_OFFSETS_SECONDS = 10.0
_NO_CHANGE_OF_ROWS = frozenset({"t", "r"})
"""Truncates come as definitions, too; rows that a SELECT read are for tables that a snapshot fills (`filler`)."""

_CASCADES = """
SELECT DISTINCT k.table_schema, k.table_name FROM information_schema.key_column_usage k
JOIN information_schema.referential_constraints r
ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name AND r.table_name = k.table_name
WHERE k.referenced_table_schema = %s AND k.referenced_table_name = %s
AND (r.delete_rule NOT IN ('NO ACTION', 'RESTRICT') OR r.update_rule NOT IN ('NO ACTION', 'RESTRICT'))
"""
_TRIGGERS = """
SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = %s AND event_object_table = %s
"""
_ENGINE = "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


@dataclass
class Applied:
    """What was applied: row changes, definitions, and changes in statement format."""

    rows: int = 0
    definitions: int = 0
    statements: int = 0


@dataclass
class Applier:
    """Applies what it is given to the follower of ``session``, which stands at ``position``.

    ``session`` looks at tables and runs definitions; rows are written by those of ``batches``, with the position.

    ``databases`` are those that are followed, all where it is empty. ``logs_cascades`` says whether the source's binlog
    has what foreign keys do. ``filling`` says what becomes of tables that the follower lacks, ``statements`` of changes
    in statement format, ``left_out`` which tables get no rows.
    """

    session: FollowerSession
    batches: BatchSessions
    positions: PositionTable
    position: FollowerPosition
    style: Style
    server: Server
    logs_cascades: bool
    filling: Filling
    statements: Statements
    left_out: LeftOut
    databases: Sequence[str] = ()
    definitions_topic: str = ""
    applied: Applied = field(default_factory=Applied)
    _tables: dict[tuple[str, str], TableChanges] = field(default_factory=dict)
    _table_of: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of a topic: the table that it had a row of last."""
    _lacking: dict[tuple[str, str], bool] = field(default_factory=dict)
    _held: int = 0
    _last: tuple[Packed, int] | None = None
    """Turn and GTID of the last record."""
    _behind: BinlogCoordinates | None = None
    """Behind it."""
    _deleted: tuple[Packed, Envelope] | None = None
    """A delete that may be the first half of a change of key, and is to be one statement with the other: rows of other
    tables follow a key, and a partial image does not say the rest of the row."""
    _offsets_at: float = field(default_factory=time.monotonic)

    def take(self, block: SourceBlock, stretch: SealedStretch, offsets: Mapping[TopicPartition, int]) -> None:
        """Apply the records of ``block``, which is of ``stretch``, now or with a later commit, in the queue.

        ``offsets`` are those before it, or earlier. Raises FollowerError for what the follower refuses, AccountingError
        where it lacks a row, BadRecordError and SchemaError for records that do not fit its tables. It stands at a
        commit of the source then.
        """
        commits = np.array(sorted(packed(turn)[0] for turn in stretch.commits), np.int64)
        may_commit = block.changes_transaction(self._last, commits)
        definition = [topic == self.definitions_topic for topic in block.topics]
        defines = np.flatnonzero(np.array(definition, np.bool_)[block.topic]).tolist()
        first, count = 0, len(block)
        while first < count:
            if self._held >= COMMIT_ROWS and may_commit[first] and self._behind is not None:
                self.commit(self._behind, offsets)
            if defines and defines[0] == first:
                self._define(block.value(first), block.change_id(defines.pop(0)))
                last = first + 1
            else:
                last = self._end(first, defines[0] if defines else count, may_commit)
                self._change(block, first, last)
            self._last = block.turn(last - 1), int(block.words[last - 1, GTID])
            change = block.change_id(last - 1)
            self._behind = _behind(change)
            first = last

    def _end(self, first: int, last: int, may_commit: Sequence[bool]) -> int:
        """Where to look again whether to commit: at the first commit of the source behind COMMIT_ROWS."""
        end = first + max(COMMIT_ROWS - self._held, 1)
        while end < last and not may_commit[end]:
            end += 1
        return min(end, last)

    def commit(
        self,
        to: BinlogCoordinates,
        offsets: Mapping[TopicPartition, int] | None = None,
        definition: BegunDefinition | None = None,
    ) -> None:
        """Have what is held written and committed, with the position ``to``."""
        self._write()
        self._held = 0
        now = time.monotonic()
        keeps = offsets is not None and now - self._offsets_at > _OFFSETS_SECONDS
        if keeps:
            self._offsets_at = now

        fill = self.filling.to_keep()

        def move(session: FollowerSession) -> None:
            session.begin()
            kept = {**self.position.offsets, **offsets} if keeps and offsets is not None else None
            moved = PositionTable(session, self.position.pipeline).move(self.position, to, kept, definition, fill)
            session.commit()
            self.position = moved

        self.batches.commit(move)
        self._last = None

    @property
    def held(self) -> int:
        """How many changes are applied since the last commit."""
        return self._held

    def hold(self, rows: int) -> None:
        """Count ``rows`` that somebody else wrote, in the transaction that is open."""
        self._held += rows
        self.applied.rows += rows

    def commit_here(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit at a commit of the source, where the last change is."""
        self.commit(self._behind or self.position.coordinates, offsets)

    def keep_filling(self) -> None:
        """Note which tables are filled, in the transaction that is open, and commit that."""
        if (fill := self.filling.to_keep()) is not None:
            self.session.begin()
            self.position = self.positions.move(self.position, self.position.coordinates, fill=fill)
            self.session.commit()

    def forget_tables(self) -> None:
        """Tables may be others from now on; nothing is held."""
        self._tables.clear()
        self._table_of.clear()
        self._lacking.clear()
        self.left_out.forget()

    def finish(self, watermark: BinlogCoordinates, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit what is left: the follower stands at ``watermark`` then."""
        self._offsets_at = -_OFFSETS_SECONDS
        self.commit(watermark, offsets)
        self.batches.settle()

    def settle_definition(self) -> None:
        """Find out whether the definition that an earlier run had begun did run, and run it where it did not."""
        begun = self.position.definition
        if begun is None:
            return
        definition = Definition.of(begun.record.encode(), self.server)
        self.filling.is_defined(definition, self.position.coordinates)
        if definition.removes or state_of(self.session, definition) == begun.before:
            definition.run(self.session, again=True)
        at = self.position.coordinates
        self.position = self.positions.move(
            self.position, BinlogCoordinates(at.file, at.position + 1), fill=self.filling.to_keep()
        )

    # --- rows

    def _change(self, block: SourceBlock, first: int, last: int) -> None:
        """Apply row changes: table by table where the kernel knows their SQL, else one by one.

        Tables do not hang together but by foreign keys that cascade; where one has such, all is in order.
        """
        self._settle_delete(block.turn(first))
        texts: list[tuple[TableChanges, RowTexts]] = []
        others: list[Words] = []
        numbers = block.topic[first:last]
        values = block.words[first:last, [VALUE, VALUE_END]]
        for topic in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == topic)
            known = self._table_of.get(block.topics[topic]) or self._learned(block, first + int(chosen[0]), topic)
            changes = self.changes_of(*known) if known else None
            made = changes.texts_of(block.data, values[chosen]) if changes else None
            if changes and made:
                texts.append((changes, made))
            else:
                others.append(chosen)
        one_by_one = np.sort(np.concatenate(others)).tolist() if others else []
        read = [(number, self._read(block.value(first + number))) for number in one_by_one]
        tables = {self.changes_of(change.database, change.table) for _, change in read if change is not None}
        has_statements = any(change is not None and change.op == "q" for _, change in read)
        if texts and (self._deleted is not None or has_statements or any(changes.in_order for changes in tables)):
            read = [(number, self._read(block.value(first + number))) for number in range(last - first)]
            texts = []
        for changes, made in texts:
            changes.take_texts(made)
            self._held += len(made.words)
            self.applied.rows += len(made.words)
        for number, change in read:
            turn = block.turn(first + number)
            self._settle_delete(turn)
            if change is not None:
                self._take(turn, change)

    def _learned(self, block: SourceBlock, number: int, topic: int) -> tuple[str, str] | None:
        """The table of a record, which the others of its topic probably are of too; None where it is not applied."""
        change = self._read(block.value(number))
        if change is None:
            return None
        self._table_of[block.topics[topic]] = change.database, change.table
        return change.database, change.table

    def _read(self, value: bytes) -> Envelope | None:
        """The change of a row of a database that is followed; None for what is none."""
        change = Envelope.of(value) if b'"op"' in value else None
        if change and change.op == "q" and not self._follows(change.database) and self._reaches(change):
            raise ChangeStatement.of(change).refusal("it may write databases that are followed beside others")
        if change is None or change.op in _NO_CHANGE_OF_ROWS or not self._follows(change.database):
            return None  # a definition in the topic of its table: it comes with its own topic
        if change.op == "q":
            self.statements.check(change, is_filling=self.filling.is_under_way)
        table = change.database, change.table
        return None if self._lacks(*table) or self.left_out.has(*table) else change

    def _reaches(self, change: Envelope) -> bool:
        """Whether a change in statement format of another database may write one that is followed."""
        if len(change.fields.get("tables") or ()) != 1 or change.fields.get("doubt"):
            return True
        children = self.session.rows(_CASCADES, change.database, change.table)
        return any(self._follows(str(database)) for database, _ in children)

    def _lacks(self, database: str, table: str) -> bool:
        """Whether the table is not there, and comes with a snapshot."""
        if (database, table) in self._tables or not self.filling.is_awaited(database, table):
            return False
        if (database, table) not in self._lacking:
            self._lacking[database, table] = self.filling.passes_over(database, table)
        return self._lacking[database, table]

    def _take(self, turn: Packed, change: Envelope) -> None:
        changes = self.changes_of(change.database, change.table)
        if change.op == "q":
            self._write_held()
            ran = self.statements.run(change, changes)
            self._held += ran
            self.applied.statements += ran
            return
        if change.op == "d" and not changes.joins(change):
            self._deleted = turn, change
            return
        if self._deleted is not None:
            change = replace(change, op="u", before=self._deleted[1].before)
            self._deleted = None
        self._apply(change)

    def _settle_delete(self, following: Packed | None) -> None:
        """Apply the delete that is kept, unless the change with turn ``following`` is the same row with another key."""
        if self._deleted is not None:
            turn, change = self._deleted
            if following is None or _row(following) != _row(turn):
                self._deleted = None
                self._apply(change)

    def _apply(self, change: Envelope) -> None:
        changes = self.changes_of(change.database, change.table)
        if changes.in_order:
            self._write_held()
        changes.take(change)
        self._held += 1
        self.applied.rows += 1

    def changes_of(self, database: str, table: str) -> TableChanges:
        """What is still to be written to a table, which has to be there. Raises as `take`."""
        known = self._tables.get((database, table))
        if known is not None:
            return known
        if database == DATABASE:
            raise SettingsError(f"the source has a database {DATABASE!r}, where followers keep their position")
        schema = table_schema(self.session, database, table)
        if schema is None:
            raise FollowerError(
                f"the follower has no table {database}.{table}, whose rows come behind {self.position.coordinates}: it "
                "was made before the pipeline began, or was not among its tables then. Copy the source's tables to "
                "the follower anew, and give the coordinates of the copy with --from."
            )
        if triggers := self.session.rows(_TRIGGERS, database, table):
            raise FollowerError(
                f"the follower's table {database}.{table} has a trigger {triggers[0][0]!r}: what triggers of the "
                "source did is in the topics, and would be done twice. Drop it on the follower."
            )
        self.left_out.check(database, table)
        (engine,) = self.session.row(_ENGINE, database, table)
        cascades = [] if self.logs_cascades else self.session.rows(_CASCADES, database, table)
        made = TableChanges(
            self.batches,
            schema,
            self.style,
            in_order=bool(cascades),
            lasting=str(engine).lower() != "innodb",
            lacks_rows=self.filling.lacks_rows(schema),
        )
        self._tables[database, table] = made
        return made

    def _write(self) -> None:
        self._settle_delete(None)
        self._write_held()

    def _write_held(self) -> None:
        for changes in self._tables.values():
            changes.write()

    def _follows(self, database: str) -> bool:
        return not self.databases or database in self.databases

    # --- definitions

    def _define(self, value: bytes, change: ChangeId) -> None:
        definition = Definition.of(value, self.server)
        touched = definition.databases
        if not touched:
            raise SettingsError(
                f"which tables {definition.sql[:500]!r} touches cannot be read, so it is not known how often it would "
                "run on the follower. Run it there by hand, copy the tables, and give the coordinates with --from."
            )
        if not any(map(self._follows, touched)):
            return
        if not all(map(self._follows, touched)):
            raise SettingsError(
                f"{definition.sql[:200]!r} touches databases {', '.join(sorted(touched))}, of which the follower "
                f"follows only {', '.join(self.databases)}: it cannot be run there. Follow all of them."
            )
        at = BinlogCoordinates(change.file, change.turn.position)
        if self.filling.passes_over_definition(definition, at):
            return
        if definition.read.changes_rows:  # the record of its rows comes behind it, when it has run
            raise SettingsError(
                f"{change.file}:{change.turn.position} is a change in statement format, {definition.sql[:200]!r}: the "
                "binlog does not hold the rows that it made. Set binlog_format=ROW on the source, copy its tables to "
                "the follower anew, and give the coordinates of the copy with --from."
            )
        self.commit(at, definition=BegunDefinition(value.decode(), state_of(self.session, definition)))
        self.batches.settle()
        definition.run(self.session)
        self.filling.is_defined(definition, at)
        self.position = self.positions.move(self.position, _behind(change), fill=self.filling.to_keep())
        self.forget_tables()
        self.applied.definitions += 1


def _behind(change: ChangeId) -> BinlogCoordinates:
    """All changes up to ``change`` are before it: no event begins one byte behind the beginning of another."""
    return BinlogCoordinates(change.file, change.turn.position + 1)


def _row(turn: Packed) -> tuple[int, int, int]:
    """The row of the event, without the step."""
    return turn[0], turn[1], turn[2] >> STEP_BITS
