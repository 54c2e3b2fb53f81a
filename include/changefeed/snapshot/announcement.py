"""What a follower that lacks a table has to know before its rows are read: how it is made, and as of when."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from changefeed.errors import NoSuchTableError
from changefeed.kafka.commit_log.read_tables import TableReadRecord
from changefeed.kafka.commit_log.snapshots import SnapshotRecord, TableProgress
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.identifier import quoted
from changefeed.model.table_pattern import names_database
from changefeed.source.mysql.catalog import create_statement
from changefeed.source.mysql.own_tables import SYSTEM_DATABASES
from changefeed.source.mysql.session import Session


def made_by(session: Session, database: str, table: str) -> tuple[str, str]:
    """The statements that make the table's database and the table, as they are now.

    Raises as `create_statement`.
    """
    return _database_made_by(session, database), create_statement(session, database, table)


def _database_made_by(session: Session, database: str) -> str:
    return str(session.row(f"SHOW CREATE DATABASE {quoted(database)}")[1])


def announced(
    session: Session, tables: Sequence[TableProgress], topics: Mapping[str, str], snapshot: str
) -> Iterator[TableReadRecord]:
    """Records of ``tables`` as they are defined now; ``at`` is to be filled in. None comes of those that are gone.
    Raises as `Session` does."""
    for table in tables:
        try:
            made = made_by(session, table.database, table.table)
        except NoSuchTableError:
            continue
        yield TableReadRecord(table.name, snapshot, "", *made, bool(table.key), topics.get(table.name, ""))


def named_databases(session: Session, include: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The databases of the server that patterns ``include`` name, and the statements that make them."""
    for (database,) in session.rows("SHOW DATABASES"):
        if database not in SYSTEM_DATABASES and any(names_database(pattern, str(database)) for pattern in include):
            yield str(database), _database_made_by(session, str(database))


def left_behind(records: Iterable[TableReadRecord], there: Collection[str]) -> list[TableReadRecord]:
    """Those of ``records`` that no snapshot completes any more: of tables without a key, which are not ``there``."""
    return [record for record in records if not record.is_complete and record.table not in there]


def gone(record: TableReadRecord) -> TableReadRecord:
    """The record of a table that is left behind: followers are not given it, and do not wait for it.

    What a follower has of one with a key stays as it is until the statement comes by which it went.
    """
    return replace(record, create_table="", rows=None if record.keyed else 0)


def dated(records: Iterable[TableReadRecord], at: BinlogCoordinates) -> list[TableReadRecord]:
    """``records`` of tables that were so at ``at``."""
    return [replace(record, at=str(at)) for record in records]


def completed(
    records: Iterable[TableReadRecord],
    snapshot: SnapshotRecord,
    identity: str,
    until: BinlogCoordinates,
    reach: BinlogCoordinates,
) -> list[TableReadRecord]:
    """Those of ``records``, which are of snapshot ``identity``, whose tables are published since, and their rows.

    ``until`` is where the pipeline's published changes end, ``reach`` where those do for which rows were left out.

    A table without a key is to be made as it was in the view that it was read in. One that is gone is not made: what
    changes in it before that is skipped.
    """
    left = {chunk.table_name for chunk in snapshot.round}
    done = {table.name: table for table in snapshot.tables if table.at_end and table.name not in left}
    found = []
    for record in records:
        table = done.get(record.table)
        if table is None or record.snapshot != identity or record.rows is not None or not record.create_table:
            continue
        if table.gone:
            found.append(replace(gone(record), at=table.gone))
            continue
        record = replace(record, rows=table.rows - table.left_out, until=str(until), reach=str(reach))
        if (view := table.view) is not None:
            record = replace(record, at=view.at, create_database=view.create_database, create_table=view.create_table)
        found.append(record)
    return found
