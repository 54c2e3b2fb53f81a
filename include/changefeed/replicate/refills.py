"""Finds the tables of a follower that a snapshot must fill again, because a change of their rows cannot be repeated.

For example, DDL that numbers rows in the server's own order, or that sets a UUID() in each row, is logged only as text,
so the follower cannot compute the source's rows.

1. The follower stops before the statement, until a snapshot of the table has begun.
2. It drops the table, and skips the table's changes.
3. `filling` creates the table at the position at which the snapshot began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from changefeed.ddl.changes import (
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropTables,
    RenameTables,
    RenameTo,
    SchemaChange,
)
from changefeed.ddl.names import TableName
from changefeed.ddl.row_doubts import RowDoubt, row_doubts
from changefeed.ddl.session import Server
from changefeed.errors import FollowerError, SettingsError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import partition_reader
from changefeed.kafka.topics import partition_counts
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.identifier import quote_name
from changefeed.replicate.commits import Commits
from changefeed.replicate.ddl_record import DdlRecord
from changefeed.replicate.fill_state import FillStage
from changefeed.replicate.filling import Filling
from changefeed.replicate.follower_tables import FollowerTables
from changefeed.replicate.permitted_ddl import emptied_database
from changefeed.replicate.position_table import FollowerPosition, PositionTable
from changefeed.replicate.single_rows import UnwritableRowError
from changefeed.replicate.source_order import ChangeId
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.follower_session import FollowerSession

_READ_TIMEOUT_SECONDS = 150.0
_ORDERED = """
SELECT s.index_name FROM information_schema.statistics s
JOIN information_schema.tables t ON t.table_schema = s.table_schema AND t.table_name = s.table_name
LEFT JOIN information_schema.columns c
ON c.table_schema = s.table_schema AND c.table_name = s.table_name AND c.column_name = s.column_name
WHERE s.table_schema = %s AND s.table_name = %s AND s.non_unique = 0 AND s.index_type = 'BTREE' AND t.engine = 'InnoDB'
GROUP BY s.index_name HAVING s.index_name = 'PRIMARY' OR
SUM(c.column_name IS NULL OR c.is_nullable = 'YES' OR s.sub_part IS NOT NULL OR c.extra LIKE '%%GENERATED%%') = 0
"""
"""The keys that may define InnoDB's row order: the primary key, or a unique key without NULL."""


class TablesToFillError(Exception):
    """Internal error: the run must drop the tables ``names``, which a snapshot fills again, and then begin again."""

    def __init__(self, names: Sequence[TableName]) -> None:
        super().__init__(names)
        self.names = names


@dataclass(frozen=True)
class PublishedDdl:
    """The DDL statements in ``topic``, in the source's order, parsed for ``server``."""

    connection: KafkaConnection
    topic: str
    server: Server

    def since(self, at: BinlogCoordinates) -> Iterator[tuple[BinlogCoordinates, DdlRecord]]:
        """Yield the statements from ``at`` on, each with its coordinates."""
        count = partition_counts(self.connection, [self.topic]).get(self.topic, 0)
        partitions = [(self.topic, number) for number in range(count)]
        with partition_reader(self.connection, partitions, "to find later names of a follower's table") as reader:
            for record in reader.to_end(timeout_seconds=_READ_TIMEOUT_SECONDS):
                change = ChangeId.of(record)
                if change is not None and record.value:
                    position = BinlogCoordinates(change.file, change.order.position)
                    if at <= position:
                        yield position, DdlRecord.of(record.value, self.server)


@dataclass
class Refills:
    """Decides whether a snapshot must fill a table again. ``published`` yields the DDL since a position."""

    commits: Commits
    tables: FollowerTables
    published: Callable[[BinlogCoordinates], Iterator[tuple[BinlogCoordinates, DdlRecord]]]

    @property
    def _filling(self) -> Filling:
        return self.commits.filling

    def may_doubt(self, ddl: DdlRecord) -> bool:
        """Whether `doubt_of` must query the follower. If so, all changes before ``ddl`` must be applied first."""
        return any(row_doubts(ddl.statement, self.tables.scope.server))

    def doubt_of(self, ddl: DdlRecord) -> str:
        """Why ``ddl`` may result in other rows on the follower than on the source; '' if it cannot."""
        doubts = row_doubts(ddl.statement, self.tables.scope.server)
        return next((doubt.reason for doubt in doubts if self._applies(doubt, ddl.statement.tables[0])), "")

    def _applies(self, doubt: RowDoubt, name: TableName) -> bool:
        """Whether the table has rows for which the result may differ.

        A table that is empty on the follower is also empty on the source, unless a snapshot still fills it.
        """
        if ".".join(name) in self._filling.state.unfilled:
            return True
        session = self.commits.session
        schema = table_schema(session, *name)
        if schema is None or doubt.added.lower() in {column.name.lower() for column in schema.columns}:
            return False
        which = ""
        if doubt.numbered:
            column = quote_name(doubt.numbered)
            which = f" WHERE {column} IS NULL OR ({column} > -1 AND {column} < 1)"
        rows = session.rows(f"SELECT 1 FROM {quote_name(name.database)}.{quote_name(name.table)}{which} LIMIT 2")
        if doubt.is_of_order:
            return len(rows) > 1 and not session.rows(_ORDERED, *name)
        return bool(rows)

    def fill_after(self, names: Sequence[TableName], at: BinlogCoordinates, sql: str, reason: str) -> NoReturn:
        """Call `fill_anew` for the source's statement ``sql`` at ``at``, which cannot be repeated for ``reason``."""
        self.fill_anew(
            names,
            at,
            f"{at} is {sql[:500]!r}, and the binlog does not have its effect on each row: {reason}. The follower's "
            "rows would differ from the source's, so nothing of it was run.",
        )

    def fill_corrected_row(self, error: UnwritableRowError) -> NoReturn:
        """Call `fill_anew` for a row that cannot be written. It is before the last record that was read."""
        at = self.commits.end_of_changes or self.commits.position.coordinates
        self.fill_anew([error.table], at, f"{error}. {error.advice}.")

    def fill_anew(self, names: Sequence[TableName], at: BinlogCoordinates, what: str) -> NoReturn:
        """Raise the error with which tables ``names`` are filled again, because of ``what`` happened at ``at``.

        Raises:
        - TablesToFillError if a snapshot of the tables began after ``at``.
        - SettingsError if not. It says ``what`` happened, and which snapshot to take.
        - FollowerError for tables outside of the scope.
        """
        if foreign := [name for name in names if not self.tables.scope.takes(*name)]:
            raise FollowerError(
                f"{what} The pipeline does not capture {foreign[0]}, so no snapshot has it: nothing was run or "
                "dropped. Drop it on the follower, and take a snapshot of the table under its current name, if the "
                "source has it. If not, somebody else may write to the pipeline's topics: look at their ACLs."
            )
        filled_from = self._with_children(names, at)
        open_names = [name for name, first in filled_from.items() if not self._is_filled_later(name, at, first)]
        if not open_names:
            raise TablesToFillError(tuple(filled_from))
        last_names = [[*self._names(name, at)][-1][0] or name for name in open_names]
        options = " ".join(f"--tables {'.'.join(name)}" for name in last_names)
        listed, pipeline = ", ".join(map(str, last_names)), self.commits.position.pipeline
        raise SettingsError(
            f"{what} Fill {listed} again with `changefeed snapshot {pipeline} {options}`, and run again: the follower "
            "drops its copy, and continues with the snapshot's rows."
        )

    def _with_children(self, names: Sequence[TableName], at: BinlogCoordinates) -> dict[TableName, BinlogCoordinates]:
        """By table of ``names`` and their child tables, the first position at which a snapshot that fills it may begin.

        Child tables are included if foreign keys change their rows without a row event: while the parent table is
        missing, the follower cannot repeat such changes.
        """
        after = BinlogCoordinates(at.file, at.position + 1)
        found = dict.fromkeys(names, after)
        for name in (open_names := list(found)):  # grows during the loop
            for child in () if self.tables.logs_cascades else self.tables.cascades_to(*name):
                if child not in found and self.tables.scope.takes(*child):
                    found[child] = self._snapshot_begin(name) or after
                    open_names.append(child)
        return found

    def _is_filled_later(self, name: TableName, at: BinlogCoordinates, first: BinlogCoordinates) -> bool:
        """Whether a snapshot of the table began at ``first`` or later, or the source has dropped the table since.

        ``name`` is the table's name at ``at``.
        """
        for each, until in self._names(name, at):
            began = None if each is None else self._snapshot_begin(each)
            if each is None or (began is not None and first <= began and (until is None or began <= until)):
                return True
        return False

    def _snapshot_begin(self, name: TableName) -> BinlogCoordinates | None:
        """The position at which the latest snapshot of a table begins for followers; None if there is no snapshot."""
        record = self._filling.records.get(".".join(name))
        return None if record is None else BinlogCoordinates.parse(record.at)

    def _names(
        self, name: TableName, at: BinlogCoordinates
    ) -> Iterator[tuple[TableName | None, BinlogCoordinates | None]]:
        """Yield each name of the table since ``at``, and the position of its next rename (None for the current name).

        Yields (None, None) at the end if the table was dropped or is not captured any more.
        """
        for position, ddl in self.published(at):
            change = ddl.statement.change
            if position == at and isinstance(change, CreateTable):  # it created the table
                continue
            following = _name_after(change, name)
            if following == name:
                continue
            yield name, position
            if following is None or not self.tables.scope.captures(*following):
                yield None, None
                return
            name = following
        yield name, None


def drop_tables(session: FollowerSession, positions: PositionTable, names: Sequence[TableName]) -> FollowerPosition:
    """Drop tables that a snapshot fills again, and store that their changes are skipped from the current position on.

    Returns the new state of the position, with unchanged coordinates. After a kill, this can be repeated.
    """
    position = positions.load()
    assert position is not None
    state = position.fill
    for each in map(".".join, names):
        fill, state = state.tables.get(each), state.without(each)
        if fill is not None and fill.at == str(position.coordinates):
            # It was created at this position. COMPLETE prevents a second creation here from the same snapshot.
            state = state.with_table(each, replace(fill, stage=FillStage.COMPLETE))
        state = replace(state, missing=state.missing | {each})
    position = positions.move(position, position.coordinates, fill=state)
    for name in names:
        session.write(f"DROP TABLE IF EXISTS {quote_name(name.database)}.{quote_name(name.table)}")
    return position


def _name_after(change: SchemaChange | None, name: TableName) -> TableName | None:
    """The name of the table ``name`` after ``change``; None if it was dropped."""
    match change:
        case RenameTables(names=pairs):
            for old, new in pairs:
                name = new if old == name else name
        case AlterTable(name=altered, actions=actions) if altered == name:
            return next((action.name for action in actions if isinstance(action, RenameTo)), name)
        case DropTables(names=names) if name in names:
            return None
        case CreateTable(name=created, replace=True) | CreateTableLike(name=created, replace=True) if created == name:
            return None
        case _ if emptied_database(change) == name.database:
            return None
    return name
