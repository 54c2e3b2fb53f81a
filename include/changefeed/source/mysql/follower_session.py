"""A connection to a follower, the only server that changefeed writes to, and only on demand."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

import pymysql
from pymysql.constants import ER

from changefeed.errors import ChangefeedError, FollowerError, FollowerUnavailableError, PipelineBusyError
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.session import BUSY, UNREACHABLE, Session, is_stale_password, translate_errors

_LOCK_SECONDS = 10
WRONG_VALUE = ER.TRUNCATED_WRONG_VALUE_FOR_FIELD
"""The code of a FollowerError for text that the column's charset cannot represent."""
CHECK_VIOLATED = 3819
"""The code of a FollowerError for a row that violates a CHECK constraint of MySQL."""
NOT_STORED = frozenset(
    {
        *(ER.WARN_DATA_OUT_OF_RANGE, ER.WARN_DATA_TRUNCATED, ER.TRUNCATED_WRONG_VALUE, ER.DATA_TOO_LONG, WRONG_VALUE),
        *(ER.DIVISION_BY_ZERO, ER.WRONG_VALUE_FOR_TYPE, 1690),  # 1690: an expression is out of range
    }
)
"""The codes of a FollowerError for a value that a column or an expression cannot have."""

_SETTINGS = {
    "sql_mode": "'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "time_zone": "'+00:00'",
    "foreign_key_checks": "0",
    "unique_checks": "1",
    "sql_safe_updates": "0",
    "sql_auto_is_null": "0",
    "auto_increment_increment": "1",
    "auto_increment_offset": "1",
    "timestamp": "DEFAULT",
    "wait_timeout": "2147483",
    "collation_connection": "'utf8mb4_general_ci'",
    "default_storage_engine": "InnoDB",  # for tables whose CREATE names no engine: other engines cannot roll rows back
}
"""The session's settings for writes: values are stored unchanged, and statements are executed as written."""
_MARIADB = {"check_constraint_checks": "0", "sql_if_exists": "0", "in_predicate_conversion_threshold": "0"}
_MYSQL = {"sql_generate_invisible_primary_key": "0"}


class FollowerSession(Session):
    """A connection for writing rows: in UTC, in strict mode, without checks of foreign keys.

    Raises FollowerError if the server refuses a statement, and FollowerUnavailableError if it cannot be reached, closes
    the connection, or does not grant a lock.
    """

    def __init__(self, connection: MysqlConnection) -> None:
        super().__init__(connection)
        self.raw._read_timeout = None  # DDL may take hours
        self._in_transaction = False
        self._waits_long = True
        try:
            self.apply_settings()
        except ChangefeedError:
            self.raw.close()
            raise

    def apply_settings(self) -> None:
        """Apply the settings for writes, whatever the session's settings were before."""
        own = _MARIADB if self.is_mariadb else _MYSQL
        self.write("SET " + ", ".join(f"{name} = {value}" for name, value in (_SETTINGS | own).items()))
        self.write("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def translate_errors(self) -> AbstractContextManager[None]:
        """Raise errors of a follower instead of PyMySQL's errors."""
        return translate_errors(self.connection, _of_follower)

    def write(self, sql: str | bytes) -> int:
        """Execute one statement; returns the number of written rows. Warnings are ignored: the session is strict."""
        with self.translate_errors():
            return int(self.raw.query(sql))

    def write_invalid_labels(self, sql: str | bytes, columns: Collection[str]) -> int:
        """Execute a statement that writes the invalid value 0 of the ENUM ``columns``; returns the number of rows.

        A strict session refuses this value. Raises FollowerError if the server changed any other value."""
        with self._other("sql_mode", "'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', max_error_count = 65535"):
            written = self.write(sql)
            for _, code, words in self.rows("SHOW WARNINGS"):
                if code != ER.WARN_DATA_TRUNCATED or not any(f"column '{name}'" in str(words) for name in columns):
                    raise FollowerError(
                        f"{_at(self.connection)} does not store a value unchanged: {str(words)[:500]} ({code})",
                        int(code),
                    )
        return written

    def with_server_time_zone(self) -> AbstractContextManager[None]:
        """Execute statements in the server's default time zone."""
        return self._other("time_zone", "@@GLOBAL.time_zone")

    def with_foreign_key_checks(self) -> AbstractContextManager[None]:
        """Execute statements with foreign keys, which also change rows of other tables."""
        return self._other("foreign_key_checks", "1")

    @contextmanager
    def _other(self, setting: str, value: str) -> Iterator[None]:
        """Use another ``value`` for a setting of _SETTINGS; restores the setting afterwards, also after an error."""
        self.write(f"SET {setting} = {value}")
        try:
            yield
        except FollowerError:
            self.write(f"SET {setting} = {_SETTINGS[setting]}")
            raise
        self.write(f"SET {setting} = {_SETTINGS[setting]}")

    def begin(self) -> None:
        """Begin a transaction, unless one is open."""
        if not self._in_transaction:
            self.write("START TRANSACTION")
            self._in_transaction = True

    def commit(self) -> None:
        """Commit the transaction. If that raises, it is unknown whether it was committed."""
        if self._in_transaction:
            self.write("COMMIT")
            self._in_transaction = False

    def roll_back(self) -> None:
        """Roll back the transaction, and reset the settings of its statements."""
        if self._in_transaction:
            self.write("ROLLBACK")
            self._in_transaction = False
            self.apply_settings()

    def wait_for_locks(self, *, long: bool) -> None:
        """Set the timeout for locks of other sessions: the server's own setting (``long``), or a second."""
        if long != self._waits_long:
            self.write(f"SET innodb_lock_wait_timeout = {'DEFAULT' if long else 1}")
            self._waits_long = long

    def lock(self, name: str) -> None:
        """Hold the user lock called ``name`` until the connection ends.

        If a client is gone, the server releases its lock only when its running statement has ended. So the next owner
        of the lock knows that no earlier statement still runs. Raises PipelineBusyError if another connection holds it.
        """
        (held,) = self.row("SELECT GET_LOCK(%s, %s)", name, _LOCK_SECONDS)
        if held != 1:
            raise PipelineBusyError(
                f"{self.connection}: another run applies the same changes to this follower (it holds the lock "
                f"{name!r}), or a statement of an earlier one still runs there: see SHOW PROCESSLIST. Run again when "
                "it has come to its end."
            )


def _at(connection: MysqlConnection) -> str:
    return f"the follower at {connection.host}:{connection.port}"


def _of_follower(connection: MysqlConnection, error: Exception, code: int, words: str) -> ChangefeedError:
    words = words[:500]
    at = _at(connection)
    if code in BUSY:
        return FollowerUnavailableError(
            f"{at} has no connection or lock to give now, or ended the session: {words} ({code}). Run again."
        )
    if is_stale_password(connection, code):
        return FollowerUnavailableError(
            f"{at} refuses the password that `passwords` of the site's file returned for this login: {words}. Run "
            "again: the next login gets another one."
        )
    if code in UNREACHABLE or isinstance(error, OSError | pymysql.InterfaceError):
        return FollowerUnavailableError(f"{at} cannot be reached: {words}. Run again when it answers.")
    return FollowerError(f"{at} answered with error {code}: {words}", code)
