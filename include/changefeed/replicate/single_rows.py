"""A change of a row as a statement of its own: where order counts, or the row image is partial."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext

from changefeed.ddl.names import TableName
from changefeed.errors import AccountingError, FollowerError
from changefeed.formats.reader import Envelope, JsonImage
from changefeed.formats.style import Style
from changefeed.formats.typed_values import RowValues, Value
from changefeed.model.identifier import quoted
from changefeed.model.table_schema import TableSchema
from changefeed.replicate.literals import literal, same
from changefeed.source.mysql.follower_session import CHECK_VIOLATED, NOT_STORED, WRONG_VALUE, FollowerSession

_SET_BY_SERVER = frozenset({"timestamp", "datetime"})
"""Columns of these types may be set by the server where an UPDATE does not name them."""


class SingleRows:
    """Writes changes of ``table`` one by one. ``lacks_rows`` is as `TableChanges` has it."""

    def __init__(self, table: TableSchema, style: Style, *, lacks_rows: bool) -> None:
        self._table, self._lacks_rows = table, lacks_rows
        self._name = f"{quoted(table.database)}.{quoted(table.table)}"
        self._values = RowValues(table, style)
        self._columns = [column for column in table.columns if not column.generated]
        self._names = frozenset(column.name for column in table.columns)
        self._writable = frozenset(column.name for column in self._columns)
        self._key = [table.columns[index] for index in table.primary_key] or self._columns
        self._enums = [column.name for column in self._columns if column.data_type == "enum"]

    def is_whole(self, image: JsonImage | None) -> bool:
        """Whether an image has all columns; where there is none, it does."""
        return image is None or image.keys() == self._names or self._writable <= image.keys() <= self._names

    def conditions(self, row: Mapping[str, Value]) -> str:
        """The condition that a row is this one."""
        return " AND ".join(same(column, row[column.name]) for column in self._key if column.name in row)

    def write(self, session: FollowerSession, change: Envelope, *, in_order: bool) -> None:
        """Write a change in the session's transaction, with ``in_order`` as `TableChanges.take` has it.

        Raises AccountingError if the follower does not have the row.
        """
        before, after = change.before, change.after
        try:
            if self._lacks_rows and before is not None and not self._is_made(session, before):
                return
            with session.foreign_keys_checked() if in_order and before else nullcontext():
                self._write_one(session, before, after)
        except UnwritableRowError:
            raise
        except FollowerError as error:
            raise FollowerError(f"{error}. It was to apply {change.file}:{change.position}.", error.code) from error

    def _is_made(self, session: FollowerSession, image: JsonImage) -> bool:
        """Whether the row ``image`` is there, now if not before: what its change takes along is to be taken along."""
        where = self.conditions(self._values.of(image))
        if session.rows(f"SELECT 1 FROM {self._name} WHERE {where} LIMIT 1"):
            return True
        if self.is_whole(image):
            self._write_one(session, None, image)
        return self.is_whole(image)

    def _write_one(
        self, session: FollowerSession, image_before: JsonImage | None, image_after: JsonImage | None
    ) -> None:
        before = None if image_before is None else self._values.of(image_before)
        after = None if image_after is None else self._values.of(image_after)
        given = {name: literal(value) for name, value in (after or {}).items() if name in self._writable}
        loose = [name for name in self._enums if given.get(name) == "0"]
        if before is None:
            self._check_defaults(given)
            names = ", ".join(map(quoted, given))
            sql = f"INSERT INTO {self._name} ({names}) VALUES ({', '.join(given.values())})"
            write_sql(session, self._table, sql, loose=loose)
        elif after is None:
            sql = f"DELETE FROM {self._name} WHERE {self.conditions(before)} LIMIT 1"
            check_written(self._table, write_sql(session, self._table, sql), 1, sql)
        elif given:
            where = self.conditions(before)
            stays = [column.name for column in self._columns if column.data_type in _SET_BY_SERVER]
            given = {name: quoted(name) for name in stays} | given
            changed = ", ".join(f"{quoted(name)} = {value}" for name, value in given.items())
            sql = f"UPDATE {self._name} SET {changed} WHERE {where} LIMIT 1"
            if not write_sql(session, self._table, sql, loose=loose):
                # Nothing changed, or there is no such row: a server does not count what stays as it is.
                found = session.rows(f"SELECT 1 FROM {self._name} WHERE {where} LIMIT 1")
                check_written(self._table, len(found), 1, where)

    def _check_defaults(self, given: Mapping[str, str]) -> None:
        """A column that the image leaves out has its default, which the follower may not know as it was then."""
        for column in self._columns:
            if column.name not in given and column.default is not None and column.default.is_sql:
                raise FollowerError(
                    f"{self._table.database}.{self._table.table}: an inserted row does not say {column.name!r}, whose "
                    f"default the server works out for each row ({column.default.text}): set binlog_row_image=FULL on "
                    "the source, and copy the table to the follower anew"
                )


class UnwritableRowError(FollowerError):
    """The follower cannot have a row of ``table`` as the source has it: ``problem`` says why. It can go on once a
    snapshot fills the table, behind what ``advice`` says is to be done on the source."""

    def __init__(self, table: TableSchema, problem: str, advice: str, code: int = 0) -> None:
        self.table, self.advice = TableName(table.database, table.table), advice
        super().__init__(f"a row of {self.table} {problem}", code)


def undefined_bytes(table: TableSchema, found: str, code: int = 0) -> UnwritableRowError:
    """The error of a row whose bytes are no characters of their column's charset: records do not have them."""
    return UnwritableRowError(
        table,
        "has bytes that are no characters of its column's charset, and records have U+FFFD in their place: what the "
        f"row holds is not known ({found})",
        "Correct it on the source (UPDATE)",
        code,
    )


def _unwritable(table: TableSchema, error: FollowerError) -> UnwritableRowError | None:
    """What is known of an ``error`` of a statement that writes rows."""
    if error.code == WRONG_VALUE and "\\xEF\\xBF\\xBD" in str(error):
        return undefined_bytes(table, str(error), error.code)
    taken = "the source took it in a session with another time_zone or sql_mode, which is in no binlog"
    if error.code == CHECK_VIOLATED:
        return UnwritableRowError(
            table,
            f"does not meet a CHECK constraint on the follower, and {taken} ({error})",
            "On the source, write the constraint so that it depends on no session, or drop it (ALTER TABLE)",
            error.code,
        )
    if error.code in NOT_STORED and any(column.generated for column in table.columns):
        return UnwritableRowError(
            table,
            f"has a generated column whose value the follower does not take, and {taken} ({error})",
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
    """Run ``sql``, which writes ``table``, in the session's transaction; how many rows it wrote. ``loose`` are ENUM
    columns of which it has the invalid value, which a strict session does not take; ``zoned`` if it is to have the
    server's time zone."""
    session.begin()
    try:
        with session.in_servers_zone() if zoned else nullcontext():
            return session.write_invalid_labels(sql, loose) if loose else session.write(sql)
    except FollowerError as error:
        if unwritable := _unwritable(table, error):
            raise unwritable from error
        raise


def check_written(table: TableSchema, written: int, wanted: int, sql: str | bytes) -> None:
    """Raises AccountingError if ``sql`` wrote fewer rows of ``table`` than the source changed."""
    if written != wanted:
        raise AccountingError(
            f"{table.database}.{table.table} of the follower lacks {wanted - written} of {wanted} rows "
            f"that the source changed ({sql[:200]!r}): somebody else wrote to it, or it was not as the source's "
            "table when it began to follow. Nothing of that transaction was kept. Copy the table anew."
        )
