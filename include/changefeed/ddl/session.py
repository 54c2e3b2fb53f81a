"""What stands around a statement: the server it ran on, and the session that ran it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Flavour(StrEnum):
    """Whose grammar a statement is in."""

    MYSQL = "mysql"
    MARIADB = "mariadb"


@dataclass(frozen=True)
class Server:
    """The server that wrote the binlog: what its version, names and defaults make of a statement.

    ``version`` decides which versioned comments are read (`/*!80013 … */`), ``lower_case_table_names`` how names of
    databases and tables compare (0: as written, 1: stored in lower case, 2: compared in lower case), ``collation`` is
    `collation_server`, for a CREATE DATABASE whose session did not say.
    """

    flavour: Flavour = Flavour.MYSQL
    version: tuple[int, int, int] = (9, 7, 0)
    lower_case_table_names: int = 0
    collation: str = "utf8mb4_0900_ai_ci"

    @property
    def version_number(self) -> int:
        """As versioned comments write it: 80013 is 8.0.13, 110405 is 11.4.5."""
        major, minor, patch = self.version
        return major * 10000 + minor * 100 + patch

    def table_name(self, name: str) -> str:
        """The name of a database or table as this server compares and logs it."""
        return name.lower() if self.lower_case_table_names else name

    @property
    def is_mariadb(self) -> bool:
        return self.flavour is Flavour.MARIADB


_REAL_AS_FLOAT = 1
_ANSI_QUOTES = 4
_ORACLE = 512
_NO_BACKSLASH_ESCAPES = 1 << 20

_SIZES = {0: 4, 3: 4, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 14: 8, 15: 8, 16: 1, 17: 8, 19: 1, 20: 1, 128: 3, 129: 8, 130: 1}
"""Status variables of a fixed size that say nothing about a definition."""

CollationName = Callable[[int], str | None]
"""A collation's id -> its name, as `information_schema.collations` has it."""


@dataclass(frozen=True)
class SessionContext:
    """The session of a statement: its default database and the settings that change what the text means.

    ``default_collations`` holds (charset, collation) where the session's default differs from the server's.
    ``collation_server`` is None where the event does not say; then the server's counts.
    """

    database: str = ""
    ansi_quotes: bool = False
    no_backslash_escapes: bool = False
    real_as_float: bool = False
    oracle: bool = False
    collation_server: str | None = None
    default_collations: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_status_variables(cls, database: str, variables: bytes, collation_name: CollationName) -> SessionContext:
        """Read the status variables of a QUERY event; those after one of a kind not known are left unread.

        Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Query__event.html
        ("Status variables"); MariaDB's `log_event.h` for 128 and above.
        """
        mode = 0
        collation_server: str | None = None
        defaults: list[tuple[str, str]] = []

        def number(start: int, size: int) -> int:
            return int.from_bytes(variables[start : start + size], "little")

        def default(collation: str | None) -> None:
            if collation is not None:
                defaults.append((collation.partition("_")[0], collation))

        at = 0
        while at < len(variables):
            code = variables[at]
            at += 1
            if code == 1:  # sql_mode
                mode = number(at, 8)
                at += 8
            elif code == 4:  # character_set_client, collation_connection, collation_server
                collation_server = collation_name(number(at + 4, 2))
                at += 6
            elif code == 18:  # default_collation_for_utf8mb4
                if (collation := collation_name(number(at, 2))) != "utf8mb4_0900_ai_ci":
                    default(collation)
                at += 2
            elif code == 131:  # MariaDB's character_set_collations: count, then (charset's id, collation's id)
                count = number(at, 1)
                for place in range(count):
                    default(collation_name(number(at + 1 + place * 4 + 2, 2)))
                at += 1 + count * 4
            elif code in (5, 6):  # time zone, catalog
                at += 1 + number(at, 1)
            elif code == 2:
                at += 2 + number(at, 1)
            elif code == 11:  # invoker: user, host
                at += 1 + number(at, 1)
                at += 1 + number(at, 1)
            elif code == 12:  # databases that the statement touches
                count = number(at, 1)
                at += 1
                for _ in range(count if count < 254 else 0):
                    at = variables.index(0, at) + 1
            elif code in _SIZES:
                at += _SIZES[code]
            else:
                break
        return cls(
            database=database,
            ansi_quotes=bool(mode & _ANSI_QUOTES),
            no_backslash_escapes=bool(mode & _NO_BACKSLASH_ESCAPES),
            real_as_float=bool(mode & _REAL_AS_FLOAT),
            oracle=bool(mode & _ORACLE),
            collation_server=collation_server,
            default_collations=tuple(defaults),
        )
