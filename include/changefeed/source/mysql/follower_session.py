"""A connection to a follower: the one server that changefeed writes to, on somebody's demand."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

import pymysql
from pymysql.constants import CR, ER

from changefeed.errors import ChangefeedError, FollowerError, FollowerUnavailableError, PipelineBusyError
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.session import Session, translated

_GONE = {CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_CONNECTION_ERROR}
_BUSY = {ER.CON_COUNT_ERROR, ER.SERVER_SHUTDOWN, ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK, ER.QUERY_INTERRUPTED}
_LOCK_SECONDS = 10
WRONG_VALUE = ER.TRUNCATED_WRONG_VALUE_FOR_FIELD
"""The code of a FollowerError for text that its column's charset does not have."""
CHECK_VIOLATED = 3819
"""The code of a FollowerError for a row that a CHECK constraint of MySQL refuses."""
NOT_STORED = frozenset(
    {
        *(ER.WARN_DATA_OUT_OF_RANGE, ER.WARN_DATA_TRUNCATED, ER.TRUNCATED_WRONG_VALUE, ER.DATA_TOO_LONG, WRONG_VALUE),
        *(ER.DIVISION_BY_ZERO, ER.WRONG_VALUE_FOR_TYPE, 1690),  # 1690: an expression is out of range
    }
)
"""The codes of a FollowerError for a value that its column does not take, or that an expression does not have."""

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
    "default_storage_engine": "InnoDB",  # of tables whose CREATE names none: rows of others cannot be rolled back
}
"""What rows are written with: their values are taken as they are, and no statement means anything else than it says."""
_MARIADB = {"check_constraint_checks": "0", "sql_if_exists": "0", "in_predicate_conversion_threshold": "0"}
_MYSQL = {"sql_generate_invisible_primary_key": "0"}


class FollowerSession(Session):
    """One connection, settled to write rows: in UTC, strict, without checks of foreign keys.

    Raises FollowerError for what the server refuses, and FollowerUnavailableError where it cannot be reached, goes
    away, or has no lock to give.
    """

    def __init__(self, connection: MysqlConnection) -> None:
        super().__init__(connection)
        self.raw._read_timeout = None  # a definition may take hours
        self._in_transaction = False
        self._waits_long = True
        try:
            self.settle()
        except ChangefeedError:
            self.raw.close()
            raise

    def settle(self) -> None:
        """Set what rows are written with, whatever the session was before."""
        own = _MARIADB if self.is_mariadb else _MYSQL
        self.write("SET " + ", ".join(f"{name} = {value}" for name, value in (_SETTINGS | own).items()))
        self.write("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def translated(self) -> AbstractContextManager[None]:
        """Turn PyMySQL's errors into those of a follower."""
        return translated(self.connection, _of_follower)

    def write(self, sql: str | bytes) -> int:
        """Execute one statement; how many rows it wrote, or 0. Warnings are not looked at: the session is strict."""
        with self.translated():
            return int(self.raw.query(sql))

    def write_invalid_labels(self, sql: str | bytes, columns: Collection[str]) -> int:
        """As `write`, for a statement with the invalid value 0 of the ENUM ``columns``, which a strict session does not
        take. Raises FollowerError where the server changed any other value."""
        with self._other("sql_mode", "'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', max_error_count = 65535"):
            written = self.write(sql)
            for _, code, words in self.rows("SHOW WARNINGS"):
                if code != ER.WARN_DATA_TRUNCATED or not any(f"column '{name}'" in str(words) for name in columns):
                    raise FollowerError(
                        f"{_at(self.connection)} does not take a value as it is: {str(words)[:500]} ({code})", int(code)
                    )
        return written

    def in_servers_zone(self) -> AbstractContextManager[None]:
        """For statements that are to have the time zone that sessions of the server begin with."""
        return self._other("time_zone", "@@GLOBAL.time_zone")

    def foreign_keys_checked(self) -> AbstractContextManager[None]:
        """For statements whose rows take those of other tables along."""
        return self._other("foreign_key_checks", "1")

    @contextmanager
    def _other(self, setting: str, value: str) -> Iterator[None]:
        """Another ``value`` of one of _SETTINGS; after a statement that the server refused it is as before, too."""
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
        """Commit what is open. Where that raises, whether it was committed is not known to the caller."""
        if self._in_transaction:
            self.write("COMMIT")
            self._in_transaction = False

    def roll_back(self) -> None:
        """Take back what is open, and what its statements set for themselves."""
        if self._in_transaction:
            self.write("ROLLBACK")
            self._in_transaction = False
            self.settle()

    def wait_for_locks(self, *, long: bool) -> None:
        """Whether to wait for locks of others as long as the server's settings say, or a second."""
        if long != self._waits_long:
            self.write(f"SET innodb_lock_wait_timeout = {'DEFAULT' if long else 1}")
            self._waits_long = long

    def lock(self, name: str) -> None:
        """Hold the user lock called ``name`` until the connection ends.

        The server gives it free when the statement that the connection runs has come to its end, also where its
        client is gone: whoever has the lock knows that no earlier statement runs any more. Raises PipelineBusyError
        where another connection holds it.
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
    if code in _BUSY:
        return FollowerUnavailableError(f"{at} has no room or no lock for us now: {words} ({code}). Run again.")
    if code in _GONE or isinstance(error, OSError | pymysql.InterfaceError):
        return FollowerUnavailableError(f"{at} cannot be reached: {words}. Run again when it answers.")
    return FollowerError(f"{at} answered with error {code}: {words}", code)
