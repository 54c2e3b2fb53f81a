"""Records that announce a snapshot's tables to followers: their CREATE TABLE statements, and their positions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from changefeed.errors import NoSuchTableError
from changefeed.kafka.commit_log.read_tables import TableReadRecord
from changefeed.kafka.commit_log.snapshots import SnapshotRecord, TableProgress
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.identifier import quote_name
from changefeed.model.table_pattern import names_database
from changefeed.source.mysql.catalog import create_statement
from changefeed.source.mysql.own_tables import SYSTEM_DATABASES
from changefeed.source.mysql.session import Session


def create_statements(session: Session, database: str, table: str) -> tuple[str, str]:
    """The current CREATE DATABASE and CREATE TABLE statements of a table.

    Raises what `create_statement` raises.
    """
    return _create_database_statement(session, database), create_statement(session, database, table)


def _create_database_statement(session: Session, database: str) -> str:
    return str(session.row(f"SHOW CREATE DATABASE {quote_name(database)}")[1])


def announce_tables(
    session: Session, tables: Sequence[TableProgress], topics: Mapping[str, str], snapshot: str
) -> Iterator[TableReadRecord]:
    """Yield a record of the current table definition of each existing table of ``tables``. The caller sets ``at``.

    Raises what `Session` raises.
    """
    for table in tables:
        try:
            made = create_statements(session, table.database, table.table)
        except NoSuchTableError:
            continue
        yield TableReadRecord(table.name, snapshot, "", *made, bool(table.key), topics.get(table.name, ""))


def named_databases(session: Session, include: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the CREATE DATABASE statement of each database that a pattern of ``include`` names."""
    for (database,) in session.rows("SHOW DATABASES"):
        if database not in SYSTEM_DATABASES and any(names_database(pattern, str(database)) for pattern in include):
            yield str(database), _create_database_statement(session, str(database))


def stale_records(records: Iterable[TableReadRecord], there: Collection[str]) -> list[TableReadRecord]:
    """The incomplete ``records`` of tables that are not ``there`` any more. No snapshot will complete them.

    Only records of tables without a key can be incomplete.
    """
    return [record for record in records if not record.is_complete and record.table not in there]


def without_table(record: TableReadRecord) -> TableReadRecord:
    """``record`` for a table that was dropped: followers do not create the table, and do not wait for it.

    If the table has a key, a follower's copy stays until the follower applies the DROP TABLE.
    """
    return replace(record, create_table="", rows=None if record.keyed else 0)


def with_position(records: Iterable[TableReadRecord], at: BinlogCoordinates) -> list[TableReadRecord]:
    """``records`` with the position ``at``."""
    return [replace(record, at=str(at)) for record in records]


def completed_records(
    records: Iterable[TableReadRecord],
    snapshot: SnapshotRecord,
    identity: str,
    until: BinlogCoordinates,
    reach: BinlogCoordinates,
) -> list[TableReadRecord]:
    """The ``records`` of snapshot ``identity`` whose tables are completely published now, with their numbers of rows.

    - ``until``: the end of the pipeline's published changes.
    - ``reach``: the end of the changes for which the snapshot left out rows.

    Followers create a table without a key as it was in the view in which the snapshot read it. They do not create a
    dropped table, and skip its changes before the drop.
    """
    left = {chunk.table_name for chunk in snapshot.round}
    done = {table.name: table for table in snapshot.tables if table.at_end and table.name not in left}
    found = []
    for record in records:
        table = done.get(record.table)
        if table is None or record.snapshot != identity or record.rows is not None or not record.create_table:
            continue
        if table.gone:
            found.append(replace(without_table(record), at=table.gone))
            continue
        record = replace(record, rows=table.rows - table.left_out, until=str(until), reach=str(reach))
        if (view := table.view) is not None:
            record = replace(record, at=view.at, create_database=view.create_database, create_table=view.create_table)
        found.append(record)
    return found
