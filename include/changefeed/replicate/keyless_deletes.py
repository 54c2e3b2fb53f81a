"""Deletes rows of a table without a primary key, many in one statement.

Such a row is identified by all of its values. If several rows are equal, as many are deleted as the source deleted. A
DELETE with LIMIT can do this, but it reads the table for each row. Instead, the server compares digests of rows:

1. The rows to delete are inserted into a temporary table with the same columns. The server computes their digests.
2. The server computes the digests of the table's rows, and counts the rows with one of these digests.
3. One DELETE removes all of them. Rows that the source did not delete are inserted again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from changefeed.errors import FollowerError
from changefeed.formats.reader import JsonImage
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import Column, TableSchema
from changefeed.replicate.merged_rows import Row, join_statements
from changefeed.replicate.position_table import DATABASE
from changefeed.replicate.single_rows import check_written, write_sql
from changefeed.source.mysql.follower_session import FollowerSession

_GONE = f"`{DATABASE}`.`gone rows`"
_NUMBER = "`number of gone row`"
_AT_ONCE = 10_000
"""The maximum number of digests in a statement."""
_FEW_READS = 50_000
"""The number of rows that a server reads in less time than it creates a temporary table."""
_TABLE_READS = 3
_MOST_COPIES = 1_000
"""The maximum number of equal rows to insert again, if the source deleted only some of them. With more, a DELETE with
LIMIT is used."""

_AS_TEXT = frozenset(
    {
        *("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"),
        *("date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6"),
    }
)
_BYTES = frozenset({"char", "varchar", "binary", "varbinary"})
_LONG = frozenset({f"{size}{kind}" for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")})
_BY_NUMBER = frozenset({"enum", "set", "bit"})
_FLOATS = frozenset({"float", "double"})


@dataclass(frozen=True)
class GoneRow:
    """A deleted row: ``count`` rows with the literals ``row`` must be deleted. ``image`` is the row in messages."""

    row: Row
    image: JsonImage
    count: int


Writer = Callable[[str | bytes], int]


class KeylessDeletes:
    """Deletes rows of ``table``, which has no primary key.

    ``insert`` is the beginning of the table's INSERT. ``condition`` returns the SQL condition for the rows that equal
    an image.
    """

    def __init__(self, table: TableSchema, insert: str, condition: Callable[[JsonImage], str]) -> None:
        self._table, self._insert, self._condition = table, insert.encode(), condition
        self._name = f"{quote_name(table.database)}.{quote_name(table.table)}"
        columns = [column for column in table.columns if not column.generated]
        self._columns = ", ".join(quote_name(column.name) for column in columns)
        parts = [_digest_part(column) for column in columns]
        self._digest = f"SHA2(CONCAT_WS(',', {', '.join(map(str, parts))}), 256)" if all(parts) else ""

    def delete(self, session: FollowerSession, rows: Sequence[GoneRow], *, loose: Collection[str], zoned: bool) -> None:
        """Delete ``rows`` in the session's transaction. For ``loose`` and ``zoned`` see `write_sql`.

        Raises AccountingError if the table has fewer of these rows.
        """
        session.begin()
        if self._digest and self._is_worth_it(session, rows):
            rows = self._delete_together(
                session, rows, partial(write_sql, session, self._table, loose=loose, zoned=zoned)
            )
        for gone in rows:
            sql = f"DELETE FROM {self._name} WHERE {self._condition(gone.image)} LIMIT {gone.count}"
            check_written(self._table, write_sql(session, self._table, sql), gone.count, sql)

    def _delete_together(self, session: FollowerSession, rows: Sequence[GoneRow], write: Writer) -> Sequence[GoneRow]:
        """Delete the ``rows`` that a digest identifies, and return the others."""
        drop = f"DROP TEMPORARY TABLE IF EXISTS {_GONE}"
        session.write(drop)
        try:
            session.write(
                f"CREATE TEMPORARY TABLE {_GONE} ({_NUMBER} INT PRIMARY KEY) ENGINE = InnoDB AS "
                f"SELECT 0 AS {_NUMBER}, {self._columns} FROM {self._name} LIMIT 0"
            )
            digests = self._digests(session, rows, write)
        except FollowerError:  # no CREATE TEMPORARY TABLES right, none within a transaction (GTIDs), or a refused value
            return rows
        session.write(drop)
        left = [row for number, row in enumerate(rows) if number not in digests]
        known = [(digest, rows[number]) for number, digest in digests.items()]
        for at in range(0, len(known), _AT_ONCE):
            left += self._delete(session, dict(known[at : at + _AT_ONCE]), write)
        return left

    def _is_worth_it(self, session: FollowerSession, rows: Sequence[GoneRow]) -> bool:
        """Whether deletes one by one read more rows than deletes by digest, according to the server's estimate."""
        if len(rows) <= _TABLE_READS:
            return False
        of_one = self._likely_reads(session, f"DELETE FROM {self._name} WHERE {self._condition(rows[0].image)}")
        of_all = self._likely_reads(session, f"SELECT * FROM {self._name}")
        return len(rows) * of_one > max(_FEW_READS, _TABLE_READS * of_all)

    def _likely_reads(self, session: FollowerSession, sql: str) -> int:
        explain = "EXPLAIN" if session.is_mariadb else "EXPLAIN FORMAT=TRADITIONAL"
        return int(session.named_row(f"{explain} {sql}").get("rows") or 0)

    def _digests(self, session: FollowerSession, rows: Sequence[GoneRow], write: Writer) -> dict[int, str]:
        """The digest of each row, by its number in ``rows``. Of rows with equal digests, only the first is included."""
        values = [f"({number},{','.join(gone.row)})".encode() for number, gone in enumerate(rows)]
        for sql, _ in join_statements(
            f"INSERT INTO {_GONE} ({_NUMBER}, {self._columns}) VALUES ".encode(), values, b"", b","
        ):
            write(sql)
        found = session.rows(f"SELECT {_NUMBER}, {self._digest} FROM {_GONE} ORDER BY {_NUMBER}")
        numbers: dict[str, int] = {}
        for number, digest in found:
            if digest is not None:
                numbers.setdefault(str(digest), int(number))
        return {number: digest for digest, number in numbers.items()}

    def _delete(self, session: FollowerSession, known: Mapping[str, GoneRow], write: Writer) -> list[GoneRow]:
        """Delete the rows with these digests. Return the rows with too few or too many copies in the table."""
        counts = session.rows(
            f"SELECT {self._digest}, COUNT(*) FROM {self._name} WHERE {self._among(known)} GROUP BY 1"
        )
        there = {str(digest): int(count) for digest, count in counts}
        chosen = {
            digest: gone
            for digest, gone in known.items()
            if gone.count <= there.get(digest, 0) <= gone.count + _MOST_COPIES
        }
        if chosen:
            sql = f"DELETE FROM {self._name} WHERE {self._among(chosen)}"
            check_written(
                self._table, write_sql(session, self._table, sql), sum(there[digest] for digest in chosen), sql
            )
            kept = [
                f"({','.join(gone.row)})".encode()
                for digest, gone in chosen.items()
                for _ in range(there[digest] - gone.count)
            ]
            for again, _ in join_statements(self._insert, kept, b"", b","):
                write(again)
        return [gone for digest, gone in known.items() if digest not in chosen]

    def _among(self, digests: Mapping[str, GoneRow]) -> str:
        return f"{self._digest} IN ({', '.join(repr(digest) for digest in digests)})"


def _digest_part(column: Column) -> str | None:
    """The SQL of a text that is equal if and only if the column's values are equal; None if there is no such text."""
    name, kind = quote_name(column.name), column.data_type
    if kind in _AS_TEXT:
        text = f"CAST({name} AS CHAR)"
    elif kind in _BYTES:
        text = f"HEX({name})"
    elif kind in _LONG:
        text = f"SHA2({name}, 256)"
    elif kind == "json":
        text = f"SHA2(CAST({name} AS CHAR), 256)"
    elif kind in _BY_NUMBER:
        text = f"CAST({name} AS UNSIGNED)"
    elif kind in _FLOATS:  # the text of a double has all digits, and the sign of zero
        text = f"CAST({name} * 1e0 AS CHAR)"
    else:
        return None
    return f"COALESCE({text}, 'NULL')"
