"""What a follower that lacks a table has to know before its rows are read: how it is made, and as of when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from changefeed.binlog.programs.result_columns import quoted
from changefeed.coordinates import BinlogCoordinates
from changefeed.kafka.log_record import TableReadRecord
from changefeed.mysql.session import Session
from changefeed.snapshot.progress import SnapshotRecord, TableProgress


def announced(
    session: Session, tables: Sequence[TableProgress], topics: Mapping[str, str], snapshot: str, *, of_all: bool
) -> Iterator[TableReadRecord]:
    """Records of ``tables`` as they are defined now; ``at`` is to be filled in. Raises as `Session` does."""
    session.rows("SET sql_mode = '', sql_quote_show_create = 1, time_zone = '+00:00'")
    databases = {table.database for table in tables}
    made = {name: str(session.row(f"SHOW CREATE DATABASE {quoted(name)}")[1]) for name in sorted(databases)}
    for table in tables:
        create = str(session.row(f"SHOW CREATE TABLE {quoted(table.database)}.{quoted(table.table)}")[1])
        keyed, topic = bool(table.key), topics.get(table.name, "")
        yield TableReadRecord(table.name, snapshot, "", made[table.database], create, keyed, topic, of_all)


def dated(records: Iterable[TableReadRecord], at: BinlogCoordinates) -> list[TableReadRecord]:
    """``records`` of tables that were so at ``at``."""
    return [replace(record, at=str(at)) for record in records]


def completed(records: Iterable[TableReadRecord], snapshot: SnapshotRecord, identity: str) -> list[TableReadRecord]:
    """Those of ``records``, which are of snapshot ``identity``, whose tables are published since, and their rows."""
    left = {chunk.table_name for chunk in snapshot.round}
    done = {table.name: table for table in snapshot.tables if table.at_end and table.name not in left}
    found = []
    for record in records:
        table = done.get(record.table)
        if table is not None and record.snapshot == identity and record.rows is None:
            found.append(replace(record, rows=table.rows - table.left_out, view=table.view))
    return found
