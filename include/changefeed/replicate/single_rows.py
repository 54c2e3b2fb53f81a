"""Writes row changes one by one, each as a statement of its own, if their order matters or their images are partial."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext

from changefeed.ddl.names import TableName
from changefeed.errors import AccountingError, FollowerError
from changefeed.formats.reader import Envelope, JsonImage
from changefeed.formats.style import Style
from changefeed.formats.typed_values import RowValues, Value
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import TableSchema
from changefeed.replicate.literals import literal, value_condition
from changefeed.source.mysql.follower_session import CHECK_VIOLATED, NOT_STORED, WRONG_VALUE, FollowerSession

_SET_BY_SERVER = frozenset({"timestamp", "datetime"})
"""The types of columns that the server may set by itself if an UPDATE does not name them."""


class SingleRows:
    """Writes changes of ``table`` one by one. For ``is_incomplete`` see `TableChanges`."""

    def __init__(self, table: TableSchema, style: Style, *, is_incomplete: bool) -> None:
        self._table, self._is_incomplete = table, is_incomplete
        self._name = f"{quote_name(table.database)}.{quote_name(table.table)}"
        self._values = RowValues(table, style)
        self._columns = [column for column in table.columns if not column.generated]
        self._names = frozenset(column.name for column in table.columns)
        self._writable = frozenset(column.name for column in self._columns)
        self._key = [table.columns[index] for index in table.primary_key] or self._columns
        self._enums = [column.name for column in self._columns if column.data_type == "enum"]

    def is_complete(self, image: JsonImage | None) -> bool:
        """Whether an image has all columns that can be written; True for None."""
        return image is None or image.keys() == self._names or self._writable <= image.keys() <= self._names

    def conditions(self, row: Mapping[str, Value]) -> str:
        """The SQL condition that matches ``row``."""
        return " AND ".join(value_condition(column, row[column.name]) for column in self._key if column.name in row)

    def write(self, session: FollowerSession, change: Envelope, *, in_order: bool) -> None:
        """Write a change in the session's transaction. For ``in_order`` see `TableChanges.take`.

        Raises AccountingError if the follower does not have the row.
        """
        before, after = change.before, change.after
        try:
            if self._is_incomplete and before is not None and not self._ensure_row(session, before):
                return
            with session.with_foreign_key_checks() if in_order and before else nullcontext():
                self._write_one(session, before, after)
        except UnwritableRowError:
            raise
        except FollowerError as error:
            raise FollowerError(f"{error}. The change is {change.file}:{change.position}.", error.code) from error

    def _ensure_row(self, session: FollowerSession, image: JsonImage) -> bool:
        """Insert the row ``image`` if it is missing, so that its change can cascade.

        Returns false if the row is missing and cannot be inserted, because the image is partial.
        """
        where = self.conditions(self._values.of(image))
        if session.rows(f"SELECT 1 FROM {self._name} WHERE {where} LIMIT 1"):
            return True
        if self.is_complete(image):
            self._write_one(session, None, image)
        return self.is_complete(image)

    def _write_one(
        self, session: FollowerSession, image_before: JsonImage | None, image_after: JsonImage | None
    ) -> None:
        before = None if image_before is None else self._values.of(image_before)
        after = None if image_after is None else self._values.of(image_after)
        assignments = {name: literal(value) for name, value in (after or {}).items() if name in self._writable}
        loose = [name for name in self._enums if assignments.get(name) == "0"]
        if before is None:
            self._check_defaults(assignments)
            names = ", ".join(map(quote_name, assignments))
            sql = f"INSERT INTO {self._name} ({names}) VALUES ({', '.join(assignments.values())})"
            write_sql(session, self._table, sql, loose=loose)
        elif after is None:
            sql = f"DELETE FROM {self._name} WHERE {self.conditions(before)} LIMIT 1"
            check_written(self._table, write_sql(session, self._table, sql), 1, sql)
        elif assignments:
            where = self.conditions(before)
            stays = [column.name for column in self._columns if column.data_type in _SET_BY_SERVER]
            assignments = {name: quote_name(name) for name in stays} | assignments
            changed = ", ".join(f"{quote_name(name)} = {value}" for name, value in assignments.items())
            sql = f"UPDATE {self._name} SET {changed} WHERE {where} LIMIT 1"
            if not write_sql(session, self._table, sql, loose=loose):
                # The row is missing, or it already has these values. A server does not count such a row as changed.
                found = session.rows(f"SELECT 1 FROM {self._name} WHERE {where} LIMIT 1")
                check_written(self._table, len(found), 1, where)

    def _check_defaults(self, assignments: Mapping[str, str]) -> None:
        """Raises FollowerError if the image does not have a column with a computed default: its value is not known."""
        for column in self._columns:
            if column.name not in assignments and column.default is not None and column.default.is_sql:
                raise FollowerError(
                    f"{self._table.database}.{self._table.table}: an inserted row is without {column.name!r}, whose "
                    f"default the server computes for each row ({column.default.text}): set binlog_row_image=FULL on "
                    "the source, and copy the table to the follower again"
                )


class UnwritableRowError(FollowerError):
    """A row of ``table`` cannot be written with the source's values, because of ``problem``.

    ``advice`` says what to do on the source. Afterwards a snapshot can fill the table.
    """

    def __init__(self, table: TableSchema, problem: str, advice: str, code: int = 0) -> None:
        self.table, self.advice = TableName(table.database, table.table), advice
        super().__init__(f"a row of {self.table} {problem}", code)


def undefined_bytes_error(table: TableSchema, found: str, code: int = 0) -> UnwritableRowError:
    """The error for a row with bytes that are undefined in their column's charset. Records do not have these bytes."""
    return UnwritableRowError(
        table,
        "has bytes that are undefined in its column's charset, and records have U+FFFD in their place: the value is "
        f"not known ({found})",
        "Correct it on the source (UPDATE)",
        code,
    )


def _unwritable(table: TableSchema, error: FollowerError) -> UnwritableRowError | None:
    """The UnwritableRowError for an ``error`` of a statement that writes rows; None if it has another cause."""
    if error.code == WRONG_VALUE and "\\xEF\\xBF\\xBD" in str(error):
        return undefined_bytes_error(table, str(error), error.code)
    taken = "the source accepted it in a session with another time_zone or sql_mode, which is not in the binlog"
    if error.code == CHECK_VIOLATED:
        return UnwritableRowError(
            table,
            f"does not meet a CHECK constraint on the follower, and {taken} ({error})",
            "On the source, change the constraint so that it does not depend on the session, or drop it (ALTER TABLE)",
            error.code,
        )
    if error.code in NOT_STORED and any(column.generated for column in table.columns):
        return UnwritableRowError(
            table,
            f"has a generated column whose value the follower does not accept, and {taken} ({error})",
            "On the source, make it a plain column (ALTER TABLE), or correct the row",
            error.code,
        )
    return None


def write_sql(
    session: FollowerSession,
    table: TableSchema,
    sql: str | bytes,
    *,
    loose: Collection[str] = (),
    zoned: bool = False,
) -> int:
    """Run ``sql``, which writes ``table``, in the session's transaction, and return the number of changed rows.

    ``loose`` are ENUM columns with the invalid value 0, which a strict session refuses. With ``zoned``, the statement
    runs in the server's global time zone. Raises UnwritableRowError and FollowerError.
    """
    session.begin()
    try:
        with session.with_server_time_zone() if zoned else nullcontext():
            return session.write_invalid_labels(sql, loose) if loose else session.write(sql)
    except FollowerError as error:
        if unwritable := _unwritable(table, error):
            raise unwritable from error
        raise


def check_written(table: TableSchema, written: int, expected: int, sql: str | bytes) -> None:
    """Raises AccountingError if ``sql`` did not write as many rows of ``table`` as the source changed."""
    if written != expected:
        raise AccountingError(
            f"{table.database}.{table.table} of the follower misses {expected - written} of {expected} rows "
            f"that the source changed ({sql[:200]!r}): somebody else wrote to it, or it was not a copy of the source's "
            "table when the follower began. The transaction was rolled back. Copy the table again."
        )
