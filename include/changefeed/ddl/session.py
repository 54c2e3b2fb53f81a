"""The context of a statement: the server and the session that executed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from changefeed.model.statement import StatusVariable, status_variables


class Flavour(StrEnum):
    """The kind of server, which decides on the grammar of statements."""

    MYSQL = "mysql"
    MARIADB = "mariadb"


@dataclass(frozen=True)
class Server:
    """The server that wrote the binlog, with the properties that affect statements.

    - ``version`` decides which versioned comments are read (`/*!80013 … */`).
    - ``lower_case_table_names`` decides how names of databases and tables compare (0: as written, 1: stored in lower
      case, 2: compared in lower case).
    - ``collation`` is `collation_server`, for CREATE DATABASE in a session without it.
    """

    flavour: Flavour = Flavour.MYSQL
    version: tuple[int, int, int] = (9, 7, 0)
    lower_case_table_names: int = 0
    collation: str = "utf8mb4_0900_ai_ci"

    @property
    def version_number(self) -> int:
        """The version in the form of versioned comments: 80013 is 8.0.13, 110405 is 11.4.5."""
        major, minor, patch = self.version
        return major * 10000 + minor * 100 + patch

    def table_name(self, name: str) -> str:
        """The name of a database or table in the form in which this server compares and logs it."""
        return name.lower() if self.lower_case_table_names else name

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is MariaDB."""
        return self.flavour is Flavour.MARIADB


_REAL_AS_FLOAT = 1
_ANSI_QUOTES = 4
_ORACLE = 512
_MAXDB = 4096
_NO_BACKSLASH_ESCAPES = 1 << 20
_INTERPRET_UTF8_AS_UTF8MB4 = 1 << 33

CollationName = Callable[[int], str | None]
"""(collation id) -> its name in `information_schema.collations`; None for an unknown id."""


@dataclass(frozen=True)
class SessionContext:
    """The session of a statement: its default database, and the settings that change the meaning of the text.

    - ``default_collations``: (charset, collation) if the session's default differs from the server's
    - ``collation_server``: None if the event does not have it; then the server's collation applies
    - ``explicit_defaults_for_timestamp``: if False, a TIMESTAMP column is NOT NULL and has a default unless its
      definition says otherwise
    """

    database: str = ""
    ansi_quotes: bool = False
    no_backslash_escapes: bool = False
    real_as_float: bool = False
    oracle: bool = False
    maxdb: bool = False
    utf8_is_utf8mb4: bool = False
    collation_server: str | None = None
    default_collations: tuple[tuple[str, str], ...] = ()
    explicit_defaults_for_timestamp: bool = True

    @classmethod
    def of_sql_mode(cls, database: str, sql_mode: int) -> SessionContext:
        """A session with only database and sql_mode, which is enough to find the tables that a statement names."""
        return cls(
            database,
            ansi_quotes=bool(sql_mode & _ANSI_QUOTES),
            no_backslash_escapes=bool(sql_mode & _NO_BACKSLASH_ESCAPES),
            oracle=bool(sql_mode & _ORACLE),
        )

    @classmethod
    def from_status_variables(cls, database: str, variables: bytes, collation_name: CollationName) -> SessionContext:
        """The session from the status variables of a QUERY event. Raises ValueError if they are cut off."""
        values = dict(status_variables(variables))
        mode = _number(values.get(StatusVariable.SQL_MODE, b""))
        charsets = values.get(StatusVariable.CHARSET)
        pairs = values.get(StatusVariable.CHARACTER_SET_COLLATIONS, b"")
        defaults = [collation_name(_number(pairs[at + 2 : at + 4])) for at in range(0, len(pairs), 4)]
        for_utf8mb4 = values.get(StatusVariable.DEFAULT_COLLATION_FOR_UTF8MB4)
        if for_utf8mb4 is not None and (collation := collation_name(_number(for_utf8mb4))) != "utf8mb4_0900_ai_ci":
            defaults.append(collation)
        return cls(
            database=database,
            ansi_quotes=bool(mode & _ANSI_QUOTES),
            no_backslash_escapes=bool(mode & _NO_BACKSLASH_ESCAPES),
            real_as_float=bool(mode & _REAL_AS_FLOAT),
            oracle=bool(mode & _ORACLE),
            maxdb=bool(mode & _MAXDB),
            utf8_is_utf8mb4=bool(mode & _INTERPRET_UTF8_AS_UTF8MB4),
            collation_server=collation_name(_number(charsets[4:6])) if charsets is not None else None,
            default_collations=tuple(
                (collation.partition("_")[0], collation) for collation in defaults if collation is not None
            ),
            explicit_defaults_for_timestamp=_explicit_defaults(values),
        )


_MARIADB_EXPLICIT_DEFAULTS = 1 << 24
"""A flag in FLAGS2 that MariaDB 10.8 and later write, observed on 11.4. Older servers have OFF as default."""


def _explicit_defaults(values: Mapping[int, bytes]) -> bool:
    if (value := values.get(StatusVariable.EXPLICIT_DEFAULTS_FOR_TIMESTAMP)) is not None:
        return bool(_number(value))
    flags = values.get(StatusVariable.FLAGS2)
    return flags is None or bool(_number(flags) & _MARIADB_EXPLICIT_DEFAULTS)


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little")
