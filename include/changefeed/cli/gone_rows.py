"""SQL that has the binlog say once more that rows are gone, of which the topics never heard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from changefeed.formats.by_table import of_table
from changefeed.formats.style import Style
from changefeed.formats.typed_values import WRONG
from changefeed.model.identifier import quoted
from changefeed.replicate.literals import literal_of
from changefeed.verify.job import VerifyJob
from changefeed.verify.key_comparison import Kind, Verdict
from changefeed.verify.tables import JudgedTable

HEAD = (
    "-- Rows that the topics have and the source has not. Each is inserted with its key alone and deleted again, in",
    "-- one transaction: the pipeline's next run publishes that, and the row is gone from the topic, too. A key that",
    "-- was inserted meanwhile ends the script with an error: verify again, and use the new script.",
    "SET NAMES utf8mb4;",
    "SET SESSION sql_mode = '', time_zone = '+00:00', foreign_key_checks = 0;",
)


def gone_rows_sql(job: VerifyJob, verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Lines of a script for those of the ``verdicts`` that are of rows which only the topic has; none without any.

    A row whose key does not say its primary key is a comment.
    """
    gone = [verdict for verdict in verdicts if verdict.kind is Kind.EXTRA]
    if gone:
        yield from HEAD
    for verdict in gone:
        table = job.table(verdict.table)
        style = of_table(job.format(), table.schema.database, table.schema.table).style
        yield _statements(table, verdict.key, style) or f"-- {table.name} {_text(table, verdict.key)}: by hand"


def _statements(table: JudgedTable, key: bytes, style: Style) -> str:
    schema = table.schema
    columns = [schema.columns[position] for position in schema.primary_key]
    if table.without_key or not columns:
        return ""
    try:
        values = orjson.loads(key)
        literals = [literal_of(column, style)(values[column.name]) for column in columns]
    except WRONG:
        return ""
    name = f"{quoted(schema.database)}.{quoted(schema.table)}"
    names = [quoted(column.name) for column in columns]
    same = " AND ".join(f"{column} = {literal}" for column, literal in zip(names, literals, strict=True))
    return (
        f"START TRANSACTION; INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join(literals)}); "
        f"DELETE FROM {name} WHERE {same}; COMMIT;"
    )


def _text(table: JudgedTable, key: bytes) -> str:
    return "a row" if table.without_key else key.decode("utf-8", "replace").replace("\n", " ")
