"""The rows of a SELECT as a server sends them for a prepared statement: bytes, without a Python object for a cell.

Prepared, because its rows come in the binary protocol: numbers and times as they are, singles with all their digits;
the server is faster with it too. Source: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase_ps.html
"""

from __future__ import annotations

import select
import struct
from typing import Any, Self

from pymysql.constants import FLAG

from changefeed.binlog.programs.result_columns import ResultColumn
from changefeed.errors import SourceUnavailableError
from changefeed.source.mysql.session import Session, translated

_COM_STMT_PREPARE, _COM_STMT_EXECUTE, _COM_STMT_CLOSE = 0x16, 0x17, 0x19

_SESSION = "SET character_set_results = NULL"
"""Text comes as it is stored."""


class ResultSet:
    """The result of one SELECT; ``columns`` are known when it is made, the rows are read once. A context manager.

    The session is its own from here on: while rows are left it can do nothing else, and text is in the charset that
    `RowReader` needs. Raises SourceError where the server refuses the statement, and
    SourceUnavailableError where the connection is lost.
    """

    def __init__(self, session: Session, sql: str) -> None:
        self._session = session
        raw: Any = session.raw
        with translated(session.connection):
            with session.raw.cursor() as cursor:
                cursor.execute(_SESSION)
            raw._execute_command(_COM_STMT_PREPARE, sql.encode())
            prepared = raw._read_packet()
            prepared.read(1)
            self._statement, columns = struct.unpack("<IH", prepared.read(6))
            for _ in range(columns + 1 if columns else 0):  # definitions that come again with the rows
                raw._read_packet()
            raw._execute_command(_COM_STMT_EXECUTE, struct.pack("<IBI", self._statement, 0, 1))
            count = raw._read_packet().read_length_encoded_integer()
            self.columns = tuple(_column(raw._read_packet()) for _ in range(count))
            raw._read_packet()
            # What PyMySQL has read ahead. Its buffer fills in small steps: from here on the socket is read itself.
            self._ahead: bytes = raw._rfile.read1(len(raw._rfile.peek()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Forget the statement, so that the session can be used again; not where an error left rows unread."""
        if kind is None:
            raw: Any = self._session.raw
            with translated(self._session.connection):
                raw._execute_command(_COM_STMT_CLOSE, struct.pack("<I", self._statement))

    def read_into(self, room: memoryview) -> int:
        """Read some bytes of row packets into ``room`` and return how many; at least one.

        It waits for the first, and takes what else is there: TLS hands out 16 kB at a time, and each round through the
        kernel costs as much as some kilobytes do.
        """
        if self._ahead:
            count = min(len(room), len(self._ahead))
            room[:count], self._ahead = self._ahead[:count], self._ahead[count:]
            return count
        raw: Any = self._session.raw
        with translated(self._session.connection):
            count = int(raw._rfile.raw.readinto(room) or 0)
            look = select.poll()
            look.register(raw._sock, select.POLLIN)
            while 0 < count < len(room) and look.poll(0):
                more = int(raw._rfile.raw.readinto(room[count:]) or 0)
                if not more:
                    break  # the connection has ended: the next call says so
                count += more
        if not count:
            raise SourceUnavailableError("the server closed the connection while rows of a SELECT were read")
        return count


def _column(packet: Any) -> ResultColumn:
    """Catalog, schema, table, original table, name, original name; then 12, charset u16, length u32, type u8, flags
    u16, decimals u8."""
    for _ in range(6):
        packet.read_length_coded_string()
    _, _, length, number, flags, decimals = struct.unpack("<BHIBHB", packet.read(11))
    return ResultColumn(number, length, decimals, bool(flags & FLAG.UNSIGNED))
