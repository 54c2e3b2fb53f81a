"""Reads QUERY events: the text of a statement, its database, and its effect on a transaction.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Query__event.html
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from changefeed.binlog.events import charsets
from changefeed.binlog.events.framing import DamagedEvent, Fields
from changefeed.model.charset_codes import decode_text
from changefeed.model.server_text import server_text
from changefeed.model.statement import Statement, StatusVariable, status_variables, takes_effect
from changefeed.model.statement_inputs import inputs_text

Header = tuple[int, int, int, int, int, int]
"""The fields of `framing.HEADER`."""

MAX_STATEMENT = 1 << 30


class TransactionStep(Enum):
    """The effect of a statement on a transaction; `ddl.Kind` classifies all other statements."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    ROLLBACK_TO = "rollback to"
    RELEASE = "release savepoint"
    XA_START = "xa start"
    XA_END = "xa end"
    XA_COMMIT = "xa commit"
    XA_ROLLBACK = "xa rollback"


_FIRST_WORDS = re.compile(
    r"(?:\s++|/\*(?>.*?\*/)|--[^\n]*+\n|\#[^\n]*+\n)*+(?P<first>\w++)(?:\s++(?P<second>\w++))?", re.DOTALL
)
"""Any user can write such texts. Each comment is read only once, so that a hostile text takes linear time."""

_SAVEPOINT = re.compile(
    r"(?:SAVEPOINT|ROLLBACK(?:\s+WORK)?\s+TO(?:\s+SAVEPOINT)?)\s+(?P<name>`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|\S+)",
    re.IGNORECASE,
)
_XID = re.compile(
    r"XA\s+(?:START|BEGIN|COMMIT|ROLLBACK)\s+X'(?P<gtrid>[0-9a-f]*)',\s*X'(?P<bqual>[0-9a-f]*)',\s*(?P<format>\d+)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Query:
    """A QUERY event's statement."""

    database: str
    sql: str
    variables: bytes = b""
    """Status variables: sql_mode, charsets and the like of the session."""
    error_code: int = 0
    """The code of the error with which the statement failed after a part of its work; 0 if it did not fail."""

    @property
    def step(self) -> TransactionStep | None:
        """The effect of the statement on a transaction; None for any other statement."""
        return transaction_step(self.sql)

    @property
    def takes_effect(self) -> bool:
        """Whether the source executed the statement at the event's position: see `model.statement.takes_effect`."""
        try:
            return takes_effect(self.variables)
        except ValueError as error:
            raise DamagedEvent(f"a QUERY event cannot be read: {error}") from error

    @classmethod
    def parse(cls, body: bytes, *, compressed: bool = False, load: bool = False) -> Query:
        """Read the event's bytes between header and checksum.

        ``compressed`` is True for MariaDB's QUERY_COMPRESSED, ``load`` for EXECUTE_LOAD_QUERY, whose header is longer.
        """
        fields = Fields(body)
        fields.take(8)
        database_size = fields.number(1)
        error_code = fields.number(2)
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
        sql = server_text(text)
        return cls(database, decode_text(text, charset) if sql is None else sql, variables, error_code)

    def statement(
        self,
        header: Header,
        file: str,
        position: int,
        gtid: str,
        commit_micros: int = 0,
        inputs: Iterable[tuple[int, bytes]] = (),
    ) -> Statement:
        """The statement for the report.

        ``header`` is the header of the event, ``inputs`` are the INTVAR, RAND and USER_VAR events before it (type,
        body).
        """
        seconds, _, server_id, size, _, flags = header
        variables = self.variables.hex()
        return Statement(
            file, position, seconds, gtid, self.database, self.sql, variables, server_id, size, flags, self.error_code,
            commit_micros, inputs_text(inputs),
        )  # fmt: skip


def transaction_step(sql: str) -> TransactionStep | None:
    """The effect of a statement on a transaction, by its first words; None for any other statement."""
    words = _FIRST_WORDS.match(sql)
    if not words:
        return None
    match words["first"].lower(), (words["second"] or "").lower():
        case ("begin", _) | ("start", "transaction"):
            return TransactionStep.BEGIN
        case ("commit", _):
            return TransactionStep.COMMIT
        case ("savepoint", _):
            return TransactionStep.SAVEPOINT
        case ("release", "savepoint"):
            return TransactionStep.RELEASE
        case ("rollback", _):
            return (
                TransactionStep.ROLLBACK_TO if _SAVEPOINT.match(sql, words.start("first")) else TransactionStep.ROLLBACK
            )
        case ("xa", "start" | "begin"):
            return TransactionStep.XA_START
        case ("xa", "end" | "prepare"):
            return TransactionStep.XA_END
        case ("xa", "commit"):
            return TransactionStep.XA_COMMIT
        case ("xa", "rollback"):
            return TransactionStep.XA_ROLLBACK
    return None


def savepoint_of(sql: str) -> str:
    """The name in SAVEPOINT or ROLLBACK TO, without its quotes; raises DamagedEvent if there is none."""
    words = _FIRST_WORDS.match(sql)
    named = _SAVEPOINT.match(sql, words.start("first")) if words else None
    if named is None:
        raise DamagedEvent(f"{sql[:120]!r} names no savepoint")
    name = named["name"]
    return name[1:-1].replace(name[0] * 2, name[0]) if name[0] in '`"' else name


def xid_of(sql: str) -> str:
    """The xid in XA START, XA COMMIT or XA ROLLBACK, as `prepared_xid` writes it; raises DamagedEvent if it has none.

    In the binlog it has the form X'gtrid',X'bqual',format.
    """
    words = _FIRST_WORDS.match(sql)
    xid = _XID.match(sql, words.start("first")) if words else None
    if xid is None:
        raise DamagedEvent(f"{sql[:120]!r} names no xid")
    return f"X'{xid['gtrid'].lower()}',X'{xid['bqual'].lower()}',{int(xid['format'])}"


def prepared_xid(body: bytes) -> str | None:
    """The xid of an XA_PREPARE event; None for XA COMMIT ONE PHASE, which has the same type of event and commits.

    Body: one phase u8, format u32, size of the gtrid u32, size of the bqual u32, gtrid, bqual.

    Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1XA__prepare__event.html
    """
    fields = Fields(body)
    one_phase, kind, gtrid_size, bqual_size = fields.number(1), *(fields.number(4) for _ in range(3))
    gtrid, bqual = fields.take(gtrid_size), fields.take(bqual_size)
    return None if one_phase else f"X'{gtrid.hex()}',X'{bqual.hex()}',{kind}"


def xid_of_gtid(body: bytes) -> str:
    """The xid in MariaDB's GTID event of a prepared XA transaction, as `prepared_xid` writes it.

    Body: number u64, domain u32, flags u8 (2: the commit id u64 follows), then format u32, sizes of the gtrid and the
    bqual u8 each, gtrid, bqual.

    Source: https://mariadb.com/kb/en/gtid_event/
    """
    fields = Fields(body)
    fields.take(12)
    if fields.number(1) & 2:
        fields.take(8)
    kind, gtrid_size, bqual_size = fields.number(4), fields.number(1), fields.number(1)
    return f"X'{fields.take(gtrid_size).hex()}',X'{fields.take(bqual_size).hex()}',{kind}"


def inflate(data: bytes) -> bytes:
    """The decompressed bytes of the part of an event that MariaDB compresses: u8, the size big-endian, data.

    The first byte: bits 0-2 are the number of bytes of the size, bits 4-6 the algorithm (0 zlib).

    Source: https://mariadb.com/kb/en/compressing-events-to-reduce-size-of-the-binary-log/, `binlog_buf_uncompress`
    """
    fields = Fields(data)
    head = fields.number(1)
    if (head >> 4) & 7 != 0:
        raise DamagedEvent(f"a compressed event has algorithm {(head >> 4) & 7}: expected 0 (zlib)")
    size = int.from_bytes(fields.take(head & 7), "big")
    if size > MAX_STATEMENT:
        raise DamagedEvent(f"a compressed event says that it holds {size} bytes")
    unpack = zlib.decompressobj()
    try:
        # If there is a byte more than the claimed size, the size is wrong, and the rest need not be decompressed.
        plain = unpack.decompress(fields.take(fields.left), size + 1)
    except zlib.error as error:
        raise DamagedEvent(f"a compressed event cannot be unpacked: {error}") from error
    if len(plain) != size:
        raise DamagedEvent(f"a compressed event does not hold the {size} bytes that it claims")
    return plain


def _charset_of(variables: bytes) -> str:
    """The client's charset, from the event's status variables; UTF-8 if they do not have it."""
    try:
        for code, value in status_variables(variables):
            if code == StatusVariable.CHARSET:
                charset = charsets.charset_of(int.from_bytes(value[:2], "little"))
                return "utf8mb4" if charset in (None, "binary") else str(charset)
    except ValueError as error:
        raise DamagedEvent(f"a QUERY event cannot be read: {error}") from error
    return "utf8mb4"
