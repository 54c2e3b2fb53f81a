"""Deletes rows of a table without a primary key, many in one statement.

Such a row is told apart by all of its values, and of several that are alike as many go as the source deleted: a DELETE
with LIMIT does that, and reads the table for each row. Here the server computes a digest of each row instead. A
temporary table with the columns of the table says what the digests of the rows are that are to go, stored as the
table's own rows are; then the table is read twice for all of them: to count, and to delete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from changefeed.errors import FollowerError
from changefeed.formats.reader import JsonImage
from changefeed.model.identifier import quoted
from changefeed.model.table_schema import Column, TableSchema
from changefeed.replicate.joined_rows import Row, joined
from changefeed.replicate.position_table import DATABASE
from changefeed.replicate.single_rows import check_written, write_sql
from changefeed.source.mysql.follower_session import FollowerSession

_GONE = f"`{DATABASE}`.`gone rows`"
_NUMBER = "`number of gone row`"
_AT_ONCE = 10_000
"""Digests in a statement."""
_FEW_READS = 50_000
"""So many rows are read in less time than a temporary table takes."""
_TABLE_READS = 3
_MOST_COPIES = 1_000
"""Of one row that are written again as the source deleted only others like it; where there are more, it goes alone."""

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
    """Of the rows with the literals ``row``, of which ``image`` is one as a message has it, ``count`` are to go."""

    row: Row
    image: JsonImage
    count: int


Writer = Callable[[str | bytes], int]


class KeylessDeletes:
    """Deletes rows of ``table``, which ``insert`` (the beginning of a statement) inserts. ``condition`` gives the SQL
    condition that a row is like an image."""

    def __init__(self, table: TableSchema, insert: str, condition: Callable[[JsonImage], str]) -> None:
        self._table, self._insert, self._condition = table, insert.encode(), condition
        self._name = f"{quoted(table.database)}.{quoted(table.table)}"
        columns = [column for column in table.columns if not column.generated]
        self._columns = ", ".join(quoted(column.name) for column in columns)
        parts = [_digest_part(column) for column in columns]
        self._digest = f"SHA2(CONCAT_WS(',', {', '.join(map(str, parts))}), 256)" if all(parts) else ""

    def delete(self, session: FollowerSession, rows: Sequence[GoneRow], *, loose: Collection[str], zoned: bool) -> None:
        """Delete ``rows`` in the session's transaction; ``loose`` and ``zoned`` as in `write_sql`.

        Raises AccountingError where there are fewer than are to go.
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
        """Delete those of ``rows`` whose digest says all; return the others."""
        drop = f"DROP TEMPORARY TABLE IF EXISTS {_GONE}"
        session.write(drop)
        try:
            session.write(
                f"CREATE TEMPORARY TABLE {_GONE} ({_NUMBER} INT PRIMARY KEY) ENGINE = InnoDB AS "
                f"SELECT 0 AS {_NUMBER}, {self._columns} FROM {self._name} LIMIT 0"
            )
            digests = self._digests(session, rows, write)
        except FollowerError:  # no right to, a server that takes none within a transaction, or a value that it refuses
            return rows
        session.write(drop)
        left = [row for number, row in enumerate(rows) if number not in digests]
        known = [(digest, rows[number]) for number, digest in digests.items()]
        for at in range(0, len(known), _AT_ONCE):
            left += self._delete(session, dict(known[at : at + _AT_ONCE]), write)
        return left

    def _is_worth_it(self, session: FollowerSession, rows: Sequence[GoneRow]) -> bool:
        """Whether the table would be read more often for the rows one by one, by the server's guess."""
        if len(rows) <= _TABLE_READS:
            return False
        of_one = self._likely_reads(session, f"DELETE FROM {self._name} WHERE {self._condition(rows[0].image)}")
        of_all = self._likely_reads(session, f"SELECT * FROM {self._name}")
        return len(rows) * of_one > max(_FEW_READS, _TABLE_READS * of_all)

    def _likely_reads(self, session: FollowerSession, sql: str) -> int:
        explain = "EXPLAIN" if session.is_mariadb else "EXPLAIN FORMAT=TRADITIONAL"
        return int(session.named_row(f"{explain} {sql}").get("rows") or 0)

    def _digests(self, session: FollowerSession, rows: Sequence[GoneRow], write: Writer) -> dict[int, str]:
        """The digest of each of ``rows``, by its number; not of rows that others have the digest of."""
        values = [f"({number},{','.join(gone.row)})".encode() for number, gone in enumerate(rows)]
        for sql, _ in joined(f"INSERT INTO {_GONE} ({_NUMBER}, {self._columns}) VALUES ".encode(), values, b"", b","):
            write(sql)
        found = session.rows(f"SELECT {_NUMBER}, {self._digest} FROM {_GONE} ORDER BY {_NUMBER}")
        numbers: dict[str, int] = {}
        for number, digest in found:
            if digest is not None:
                numbers.setdefault(str(digest), int(number))
        return {number: digest for digest, number in numbers.items()}

    def _delete(self, session: FollowerSession, known: Mapping[str, GoneRow], write: Writer) -> list[GoneRow]:
        """Delete the rows with these digests; return those of which too few are there, or too many others."""
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
            for again, _ in joined(self._insert, kept, b"", b","):
                write(again)
        return [gone for digest, gone in known.items() if digest not in chosen]

    def _among(self, digests: Mapping[str, GoneRow]) -> str:
        return f"{self._digest} IN ({', '.join(repr(digest) for digest in digests)})"


def _digest_part(column: Column) -> str | None:
    """The text that is the same where a column stores the same value, and only there; None for a type without one."""
    name, kind = quoted(column.name), column.data_type
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
    elif kind in _FLOATS:  # as a double, whose text has all of its digits and the sign of a zero
        text = f"CAST({name} * 1e0 AS CHAR)"
    else:
        return None
    return f"COALESCE({text}, 'NULL')"
