"""check: warnings about records that a consumer may not expect. None of them stops a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from changefeed.formats.by_table import of_table
from changefeed.formats.style import Encoding, Kind
from changefeed.formats.template import ChangeKind
from changefeed.model.table_pattern import matches
from changefeed.model.table_schema import TableSchema
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.source.mysql.catalog import table_names
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import binlog_expiry

_SHOWN = 20
"""The maximum number of names in a line."""
_MISSING_COLUMNS = {
    "MINIMAL": (
        "an INSERT or UPDATE is logged with the columns that the statement sets, and the row before an UPDATE or "
        "DELETE with its key"
    ),
    "NOBLOB": "an UPDATE or DELETE is logged without the BLOB and TEXT columns that it does not change",
    "FULL_NODUP": "the row after an UPDATE is logged with the columns that it changes",
}
"""By value of binlog_row_image other than FULL, the columns that the binlog has."""


def source_warnings(pipeline: Pipeline, session: Session, tables: Collection[TableSchema]) -> Iterator[str]:
    """Yield a line for each warning. ``tables`` are the current schemas of the captured tables."""
    tables = sorted(tables, key=lambda table: (table.database, table.table))
    yield from row_image(session)
    yield from binlog_retention(session)
    yield from signed_numbers(pipeline, tables)
    yield from empty_deletes(pipeline, tables)
    yield from unused_patterns(pipeline, tables, table_names(session))


def row_image(session: Session) -> Iterator[str]:
    """Yield a warning if the server does not log complete rows; it describes the columns that records have."""
    image = session.variable("binlog_row_image")
    if image not in (None, "FULL"):
        yield (
            f"binlog_row_image is {image!r}: {_MISSING_COLUMNS.get(image, 'rows are logged without some columns')}. "
            "Records miss the other columns, so one record does not have the complete row. SET GLOBAL "
            "binlog_row_image = 'FULL' (open sessions keep theirs until they reconnect)"
        )


def binlog_retention(session: Session) -> Iterator[str]:
    """Yield a warning if the binlog retention of an Amazon server is not known."""
    expiry = binlog_expiry(session)
    if expiry.by_hours and not expiry.is_known:
        yield (
            "Amazon RDS or Aurora purges this binlog by its own setting `binlog retention hours`, which is not set or "
            "may not be read: the retention is not known, whatever binlog_expire_logs_seconds says, and a file may be "
            "purged before a run has read it. CALL "
            "mysql.rds_set_configuration('binlog retention hours', 168), and GRANT SELECT ON mysql.rds_configuration"
        )


def signed_numbers(pipeline: Pipeline, tables: Iterable[TableSchema]) -> Iterator[str]:
    """Yield a warning that names the BIGINT UNSIGNED columns that a format writes as signed numbers."""
    routes = compile_routes(pipeline)
    format, names = routes.format(0), []
    for table in tables:
        style = of_table(format, table.database, table.table).style
        if style[Kind.BIGINT_UNSIGNED] is not Encoding.LONG:
            continue
        key = routes.key_rule(table.database, table.table).keyed_table(table).primary_key
        for position, column in enumerate(table.columns):
            if column.data_type == "bigint" and column.unsigned:
                name = f"{table.database}.{table.table}.{column.name}"
                names.append(f"{name} (in the key)" if position in key else name)
    if names:
        yield (
            f"{len(names)} BIGINT UNSIGNED columns are written as signed numbers: {_join(names)}. Values of 2^63 and "
            'more are negative: the key of 18446744073709551615 is {"id":-1}. Unless all values are smaller, write '
            "`values: {bigint_unsigned: number}`, or the format's own option for it"
        )


def empty_deletes(pipeline: Pipeline, tables: Iterable[TableSchema]) -> Iterator[str]:
    """Yield a warning that names the tables whose DELETE records have neither a key nor a value."""
    routes = compile_routes(pipeline)
    format, names = routes.format(0), []
    for table in tables:
        keyed_table = routes.key_rule(table.database, table.table).keyed_table(table)
        messages = of_table(format, table.database, table.table).messages(keyed_table)[ChangeKind.DELETE]
        if not keyed_table.primary_key and messages and all(message.op is None for message in messages):
            names.append(f"{table.database}.{table.table}")
    if names:
        yield (
            f"{len(names)} tables without a key in a format whose deletes have no value: {_join(names)}. The record "
            "of a DELETE has neither key nor value, so consumers do not know which row was deleted. Give them a key by "
            "`keys` or `keyless`, or have deletes written as rows (`delete.tombstone.handling.mode: rewrite` of `flat`)"
        )


def unused_patterns(
    pipeline: Pipeline, tables: Collection[TableSchema], all_tables: Collection[tuple[str, str]]
) -> Iterator[str]:
    """Yield a warning for each pattern that matches no table.

    ``tables`` are the captured tables, ``all_tables`` the names of all tables of the source.
    """
    captured = [(table.database, table.table) for table in tables]
    yield from _unused_patterns(
        "tables.exclude", pipeline.tables.exclude, all_tables, "of the source", "nothing is left out"
    )
    for setting, patterns in (
        ("topics.routes", [route.match for route in pipeline.topics.routes]),
        ("rows", list(pipeline.rows)),
        ("outbox.tables", pipeline.outbox.tables if pipeline.outbox is not None else []),
    ):
        yield from _unused_patterns(setting, patterns, captured, "that the pipeline captures", "it does nothing")
    for format in compile_routes(pipeline).formats:
        for key in format.row_rules.keys:
            if not any(key.tables.fullmatch(f"{database}.{table}") for database, table in captured):
                yield (
                    f"{key.tables.text!r} in message.key.columns matches no table that the pipeline captures: it "
                    "does nothing. Correct the pattern, or leave it out"
                )


def _unused_patterns(
    setting: str, patterns: Iterable[str], tables: Collection[tuple[str, str]], whose: str, consequence: str
) -> Iterator[str]:
    for pattern in patterns:
        if not any(matches(pattern, database, table) for database, table in tables):
            yield (
                f"{pattern!r} in {setting} matches no table {whose}: {consequence}. Correct the pattern, or leave it "
                "out"
            )


def _join(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else ""
    return ", ".join(names[:_SHOWN]) + more
