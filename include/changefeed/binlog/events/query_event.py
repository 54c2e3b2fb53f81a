"""QUERY events: a statement's text, its database, and which of the few that frame transactions it is.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Query__event.html
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from enum import Enum

from changefeed.binlog.events import charsets
from changefeed.binlog.events.framing import DamagedEvent, Fields

_CHARSET_CODE = 4
"""Status variable: character_set_client, collation_connection, collation_server, each u16."""
_SIZES = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8}
"""Status variables of a fixed size; 128 and 129 are MariaDB's. Those with text are handled by name below."""

MAX_STATEMENT = 1 << 30


class StatementKind(Enum):
    """What a statement means to a reader of rows."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    XA_START = "xa start"
    XA_END = "xa end"
    XA_COMMIT = "xa commit"
    XA_ROLLBACK = "xa rollback"
    CHANGE = "change"
    """INSERT, UPDATE, DELETE, REPLACE, LOAD DATA ...: rows changed in statement format, which no event holds."""
    DEFINITION = "definition"
    """Anything else: DDL, GRANT, FLUSH ..."""


_FIRST_WORDS = re.compile(r"(?:\s|/\*.*?\*/|--[^\n]*\n|#[^\n]*\n)*(?P<first>\w+)(?:\s+(?P<second>\w+))?", re.DOTALL)
_CHANGES = frozenset(
    {
        "insert",
        "update",
        "delete",
        "replace",
        "load",
        "call",
        "with",
        "do",
        "select",
        "set",
        "values",
        "table",
        "import",
    }
)


@dataclass(frozen=True)
class Query:
    """A QUERY event's statement."""

    database: str
    sql: str
    variables: bytes = b""
    """Status variables: sql_mode, charsets and the like of the session."""

    @property
    def kind(self) -> StatementKind:
        return kind_of(self.sql)

    @classmethod
    def parse(cls, body: bytes, *, compressed: bool = False, load: bool = False) -> Query:
        """Read the event's bytes between header and checksum.

        ``compressed`` for MariaDB's QUERY_COMPRESSED, ``load`` for EXECUTE_LOAD_QUERY, whose header is longer.
        """
        fields = Fields(body)
        fields.take(8)
        database_size = fields.number(1)
        fields.take(2)
        variables_size = fields.number(2)
        if load:
            fields.take(13)
        variables = fields.take(variables_size)
        charset = _charset_of(variables)
        database = fields.take(database_size).decode("utf-8", "replace")
        fields.take(1)
        text = fields.take(fields.left)
        if compressed:
            text = inflate(text)
        return cls(database, charsets.decoder_of(charset)(text), variables)


def kind_of(sql: str) -> StatementKind:
    """The kind of a statement, by its first words."""
    found = _FIRST_WORDS.match(sql)
    if not found:
        return StatementKind.DEFINITION
    first, second = found["first"].lower(), (found["second"] or "").lower()
    match first, second:
        case ("begin", _) | ("start", "transaction"):
            return StatementKind.BEGIN
        case ("commit", _):
            return StatementKind.COMMIT
        case ("rollback", "to") | ("savepoint", _) | ("release", "savepoint"):
            return StatementKind.SAVEPOINT
        case ("rollback", _):
            return StatementKind.ROLLBACK
        case ("xa", "start" | "begin"):
            return StatementKind.XA_START
        case ("xa", "end" | "prepare"):
            return StatementKind.XA_END
        case ("xa", "commit"):
            return StatementKind.XA_COMMIT
        case ("xa", "rollback"):
            return StatementKind.XA_ROLLBACK
    return StatementKind.CHANGE if first in _CHANGES else StatementKind.DEFINITION


def inflate(data: bytes) -> bytes:
    """MariaDB's compressed part of an event: u8, the size big-endian, data.

    The byte: in bits 0-2 how many bytes give the size, in bits 4-6 the algorithm (0 zlib).

    Source: https://mariadb.com/kb/en/compressing-events-to-reduce-size-of-the-binary-log/, `binlog_buf_uncompress`
    """
    fields = Fields(data)
    head = fields.number(1)
    if (head >> 4) & 7 != 0:
        raise DamagedEvent(f"a compressed event is of algorithm {(head >> 4) & 7}: wanted 0 (zlib)")
    size = int.from_bytes(fields.take(head & 7), "big")
    if size > MAX_STATEMENT:
        raise DamagedEvent(f"a compressed event says that it holds {size} bytes")
    unpack = zlib.decompressobj()
    try:
        # One byte more than it says shows a lie, without unpacking all of it.
        plain = unpack.decompress(fields.take(fields.left), size + 1)
    except zlib.error as error:
        raise DamagedEvent(f"a compressed event cannot be unpacked: {error}") from error
    if len(plain) != size:
        raise DamagedEvent(f"a compressed event says that it holds {size} bytes, but it holds others")
    return plain


def _charset_of(variables: bytes) -> str:
    """The client's charset, from the status variables; UTF-8 where they do not say, or are of a kind not known."""
    fields = Fields(variables)
    while fields.left:
        code = fields.number(1)
        if code == _CHARSET_CODE:
            charset = charsets.charset_of(fields.number(2))
            return "utf8mb4" if charset in (None, "binary") else str(charset)
        if code in (5, 6):
            fields.take(fields.number(1))
        elif code == 2:
            fields.take(fields.number(1) + 1)
        elif code == 11:
            fields.take(fields.number(1))
            fields.take(fields.number(1))
        elif code == 131:  # MariaDB's character_set_collations: pairs of u16
            fields.take(4 * fields.number(1))
        elif code in _SIZES:
            fields.take(_SIZES[code])
        else:
            break
    return "utf8mb4"
