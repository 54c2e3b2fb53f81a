"""Tables of a follower that a snapshot fills anew, because what the source did to their rows cannot be repeated.

A definition that numbers rows in the server's order, or gives each another UUID(), is logged as its text only: the
follower cannot know what the source's rows are since. It stops before it, until a snapshot of the table has begun. Then
it drops the table, and goes on as if it never had it: `filling` makes it where the snapshot began.
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
from changefeed.model.identifier import quoted
from changefeed.replicate.commits import Commits
from changefeed.replicate.definitions import Definition
from changefeed.replicate.fill_state import Stage
from changefeed.replicate.filling import Filling
from changefeed.replicate.follower_tables import FollowerTables
from changefeed.replicate.permitted import emptied_database
from changefeed.replicate.position_table import FollowerPosition, PositionTable
from changefeed.replicate.single_rows import UnwritableRowError
from changefeed.replicate.source_order import ChangeId
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.follower_session import FollowerSession

_PATIENCE_SECONDS = 150.0
_ORDERED = """
SELECT s.index_name FROM information_schema.statistics s
JOIN information_schema.tables t ON t.table_schema = s.table_schema AND t.table_name = s.table_name
LEFT JOIN information_schema.columns c
ON c.table_schema = s.table_schema AND c.table_name = s.table_name AND c.column_name = s.column_name
WHERE s.table_schema = %s AND s.table_name = %s AND s.non_unique = 0 AND s.index_type = 'BTREE' AND t.engine = 'InnoDB'
GROUP BY s.index_name HAVING s.index_name = 'PRIMARY' OR
SUM(c.column_name IS NULL OR c.is_nullable = 'YES' OR s.sub_part IS NOT NULL OR c.extra LIKE '%%GENERATED%%') = 0
"""
"""The keys of which InnoDB takes one as the order of the rows: the primary key, or a unique one without NULL."""


class TablesToFillError(Exception):
    """Not for users: the run is to drop ``names`` on the follower, which a snapshot fills anew, and to begin again."""

    def __init__(self, names: Sequence[TableName]) -> None:
        super().__init__(names)
        self.names = names


@dataclass(frozen=True)
class PublishedDefinitions:
    """The definitions in ``topic``, in the order of the source, read as those of a ``server``."""

    connection: KafkaConnection
    topic: str
    server: Server

    def since(self, at: BinlogCoordinates) -> Iterator[tuple[BinlogCoordinates, Definition]]:
        """Yield those from ``at`` on, each with its coordinates."""
        count = partition_counts(self.connection, [self.topic]).get(self.topic, 0)
        partitions = [(self.topic, number) for number in range(count)]
        with partition_reader(self.connection, partitions, "to find what became of a follower's table") as reader:
            for record in reader.to_end(patience_seconds=_PATIENCE_SECONDS):
                change = ChangeId.of(record)
                if change is not None and record.value:
                    position = BinlogCoordinates(change.file, change.turn.position)
                    if at <= position:
                        yield position, Definition.of(record.value, self.server)


@dataclass
class Refills:
    """Decides whether a table is filled anew, by what is ``published`` after the definition or statement."""

    commits: Commits
    tables: FollowerTables
    published: Callable[[BinlogCoordinates], Iterator[tuple[BinlogCoordinates, Definition]]]

    @property
    def _filling(self) -> Filling:
        return self.commits.filling

    def may_doubt(self, definition: Definition) -> bool:
        """Whether `doubt_of` asks the follower, which has to have all changes before ``definition`` then."""
        return any(row_doubts(definition.read, self.tables.scope.server))

    def doubt_of(self, definition: Definition) -> str:
        """Why rows of the follower may be others than the source's when ``definition`` has run, or ''."""
        doubts = row_doubts(definition.read, self.tables.scope.server)
        return next((doubt.reason for doubt in doubts if self._holds(doubt, definition.read.tables[0])), "")

    def _holds(self, doubt: RowDoubt, name: TableName) -> bool:
        """Whether there are rows that may come out otherwise. A follower's table without rows is one of the source
        without rows, unless a snapshot still fills it."""
        if ".".join(name) in self._filling.state.unfilled:
            return True
        session = self.commits.session
        schema = table_schema(session, *name)
        if schema is None or doubt.added.lower() in {column.name.lower() for column in schema.columns}:
            return False
        which = ""
        if doubt.numbered:
            column = quoted(doubt.numbered)
            which = f" WHERE {column} IS NULL OR ({column} > -1 AND {column} < 1)"
        rows = session.rows(f"SELECT 1 FROM {quoted(name.database)}.{quoted(name.table)}{which} LIMIT 2")
        if doubt.is_of_order:
            return len(rows) > 1 and not session.rows(_ORDERED, *name)
        return bool(rows)

    def fill_after(self, names: Sequence[TableName], at: BinlogCoordinates, sql: str, reason: str) -> NoReturn:
        """As `fill_anew`, because of the statement ``sql``, which the source ran at ``at``, for this ``reason``."""
        self.fill_anew(
            names,
            at,
            f"{at} is {sql[:500]!r}, and the binlog does not have what it did to each row: {reason}. The follower's "
            "rows would not be the source's, so nothing of it was run.",
        )

    def fill_corrected(self, error: UnwritableRowError) -> NoReturn:
        """As `fill_anew`, because of a row that cannot be written, which came before what was read last."""
        at = self.commits.reached or self.commits.position.coordinates
        self.fill_anew([error.table], at, f"{error}. {error.advice}.")

    def fill_anew(self, names: Sequence[TableName], at: BinlogCoordinates, what: str) -> NoReturn:
        """Raises TablesToFillError if a snapshot of the tables ``names`` began after ``at``; else SettingsError, which
        says ``what`` happened and how to take one. Raises FollowerError for tables outside of the scope."""
        if foreign := [name for name in names if not self.tables.scope.takes(*name)]:
            raise FollowerError(
                f"{what} The pipeline does not capture {foreign[0]}, so no snapshot has it: nothing was run or "
                "dropped. Drop it on the follower, and take a snapshot of the table that it became, if the source "
                "has one. If it has not, somebody else may write to the pipeline's topics: look at their ACLs."
            )
        filled_from = self._with_children(names, at)
        open_names = [name for name, first in filled_from.items() if not self._is_filled_later(name, at, first)]
        if not open_names:
            raise TablesToFillError(tuple(filled_from))
        last_names = [[*self._names(name, at)][-1][0] or name for name in open_names]
        options = " ".join(f"--tables {'.'.join(name)}" for name in last_names)
        listed, pipeline = ", ".join(map(str, last_names)), self.commits.position.pipeline
        raise SettingsError(
            f"{what} Fill {listed} anew with `changefeed snapshot {pipeline} {options}`, and run again: the follower "
            "drops what it has of it, and goes on with the snapshot's rows."
        )

    def _with_children(self, names: Sequence[TableName], at: BinlogCoordinates) -> dict[TableName, BinlogCoordinates]:
        """``names``, and the tables whose rows change with theirs where the binlog does not say so: from where on a
        snapshot may fill each. A follower does not hear of what parents do to their children while it lacks them."""
        after = BinlogCoordinates(at.file, at.position + 1)
        found = dict.fromkeys(names, after)
        for name in (open_names := list(found)):  # grows while it is gone through
            for child in () if self.tables.logs_cascades else self.tables.cascades_to(*name):
                if child not in found and self.tables.scope.takes(*child):
                    found[child] = self._begin_of(name) or after
                    open_names.append(child)
        return found

    def _is_filled_later(self, name: TableName, at: BinlogCoordinates, first: BinlogCoordinates) -> bool:
        """Whether a snapshot of the table, called so at ``at``, began at ``first`` or later, or the source has it no
        more."""
        for each, until in self._names(name, at):
            began = None if each is None else self._begin_of(each)
            if each is None or (began is not None and first <= began and (until is None or began <= until)):
                return True
        return False

    def _begin_of(self, name: TableName) -> BinlogCoordinates | None:
        """Where the latest snapshot of a table begins for followers."""
        record = self._filling.records.get(".".join(name))
        return None if record is None else BinlogCoordinates.parse(record.at)

    def _names(
        self, name: TableName, at: BinlogCoordinates
    ) -> Iterator[tuple[TableName | None, BinlogCoordinates | None]]:
        """Yield each name that the table has had since ``at``, and until where; None where it still has it, is gone, or
        is not captured any more."""
        for position, definition in self.published(at):
            change = definition.read.change
            if position == at and isinstance(change, CreateTable):  # it made the table
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


def dropped(session: FollowerSession, positions: PositionTable, names: Sequence[TableName]) -> FollowerPosition:
    """Drop tables that a snapshot fills anew, and return the follower's position, which stays where it is: from there
    on what changes in them is skipped. It may be done again where it is cut."""
    position = positions.load()
    assert position is not None
    state = position.fill
    for each in map(".".join, names):
        fill, state = state.tables.get(each), state.without(each)
        if fill is not None and fill.at == str(position.coordinates):
            # It was made at this very place: forgotten, it would be made there once more, of rows that are read.
            state = state.with_table(each, replace(fill, stage=Stage.WHOLE))
        state = replace(state, lacking=state.lacking | {each})
    position = positions.move(position, position.coordinates, fill=state)
    for name in names:
        session.write(f"DROP TABLE IF EXISTS {quoted(name.database)}.{quoted(name.table)}")
    return position


def _name_after(change: SchemaChange | None, name: TableName) -> TableName | None:
    """What the table ``name`` is called when ``change`` ran; None where it is gone."""
    match change:
        case RenameTables(names=pairs):
            for old, new in pairs:
                name = new if old == name else name
        case AlterTable(name=altered, actions=actions) if altered == name:
            return next((action.name for action in actions if isinstance(action, RenameTo)), name)
        case DropTables(names=names) if name in names:
            return None
        case CreateTable(name=made, replace=True) | CreateTableLike(name=made, replace=True) if made == name:
            return None
        case _ if emptied_database(change) == name.database:
            return None
    return name
