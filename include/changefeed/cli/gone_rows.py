"""Writes a SQL script for rows that the topics have and the source does not: it inserts and deletes each row on the
source, so that the next run publishes the delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from changefeed.formats.by_table import of_table
from changefeed.formats.style import Style
from changefeed.formats.typed_values import WRONG
from changefeed.model.identifier import quote_name
from changefeed.replicate.literals import literal_of
from changefeed.verify.job import VerifyJob
from changefeed.verify.key_comparison import KeyResult, ResultKind
from changefeed.verify.tables import ComparedTable

HEAD = (
    "-- Rows that the topics have and the source does not have. Each row is inserted with its key only and deleted in",
    "-- one transaction. The pipeline's next run publishes the delete, which removes the row from the topic. If the "
    "key",
    "-- was inserted in the meantime, the script ends with an error: verify again, and use the new script.",
    "SET NAMES utf8mb4;",
    "SET SESSION sql_mode = '', time_zone = '+00:00', foreign_key_checks = 0;",
)


def build_gone_rows_sql(job: VerifyJob, results: Iterable[KeyResult]) -> Iterator[str]:
    """Yield the lines of a script that removes the rows that only the topics have. Yields nothing without such rows.

    A row whose message key does not contain the primary key becomes a comment.
    """
    gone = [result for result in results if result.kind is ResultKind.EXTRA]
    if gone:
        yield from HEAD
    for result in gone:
        table = job.table(result.table)
        style = of_table(job.format(), table.schema.database, table.schema.table).style
        yield _statements(table, result.key, style) or f"-- {table.name} {_text(table, result.key)}: by hand"


def _statements(table: ComparedTable, key: bytes, style: Style) -> str:
    schema = table.schema
    columns = [schema.columns[position] for position in schema.primary_key]
    if table.without_key or not columns:
        return ""
    try:
        values = orjson.loads(key)
        literals = [literal_of(column, style)(values[column.name]) for column in columns]
    except WRONG:
        return ""
    name = f"{quote_name(schema.database)}.{quote_name(schema.table)}"
    names = [quote_name(column.name) for column in columns]
    same = " AND ".join(f"{column} = {literal}" for column, literal in zip(names, literals, strict=True))
    return (
        f"START TRANSACTION; INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join(literals)}); "
        f"DELETE FROM {name} WHERE {same}; COMMIT;"
    )


def _text(table: ComparedTable, key: bytes) -> str:
    return "a row" if table.without_key else key.decode("utf-8", "replace").replace("\n", " ")
