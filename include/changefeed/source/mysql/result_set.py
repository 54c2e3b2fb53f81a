"""Reads the rows of a SELECT as bytes, by a prepared statement, without Python objects for cells.

The rows of a prepared statement are in the binary protocol, which has exact numbers and times, and single-precision
numbers with all digits. It is also faster for the server.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase_ps.html
"""

from __future__ import annotations

import select
import struct
from typing import Any, Self

from pymysql.constants import FLAG

from changefeed.binlog.programs.result_columns import ResultColumn
from changefeed.errors import SourceUnavailableError
from changefeed.source.mysql.session import Session, translate_errors

_COM_STMT_PREPARE, _COM_STMT_EXECUTE, _COM_STMT_CLOSE = 0x16, 0x17, 0x19

_SESSION = "SET character_set_results = NULL"
"""With this setting the server returns text unconverted."""


class ResultSet:
    """The result of one SELECT, as a context manager. It has ``columns`` at once; the rows can be read once.

    While rows are unread, the session cannot be used for anything else. The result sets the session to return text as
    `RowReader` needs it. Raises SourceError if the server refuses the statement, and SourceUnavailableError if the
    connection is lost.
    """

    def __init__(self, session: Session, sql: str) -> None:
        self._session = session
        raw: Any = session.raw
        with translate_errors(session.connection):
            with session.raw.cursor() as cursor:
                cursor.execute(_SESSION)
            raw._execute_command(_COM_STMT_PREPARE, sql.encode())
            prepared = raw._read_packet()
            prepared.read(1)
            self._statement, columns = struct.unpack("<IH", prepared.read(6))
            for _ in range(columns + 1 if columns else 0):  # column definitions, which come again with the rows
                raw._read_packet()
            raw._execute_command(_COM_STMT_EXECUTE, struct.pack("<IBI", self._statement, 0, 1))
            count = raw._read_packet().read_length_encoded_integer()
            self.columns = tuple(_column(raw._read_packet()) for _ in range(count))
            raw._read_packet()
            # The bytes that PyMySQL has read ahead. Later reads use the socket, because PyMySQL's buffer reads small
            # blocks.
            self._ahead: bytes = raw._rfile.read1(len(raw._rfile.peek()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the statement, so that the session can be used again, unless an error has left rows unread."""
        if kind is None:
            raw: Any = self._session.raw
            with translate_errors(self._session.connection):
                raw._execute_command(_COM_STMT_CLOSE, struct.pack("<I", self._statement))

    def read_into(self, room: memoryview) -> int:
        """Read bytes of row packets into ``room``; returns their number, at least one.

        Waits for the first byte, then reads all available bytes. TLS returns at most 16 kB at a time, and each call of
        the kernel takes as long as decoding some kilobytes.
        """
        if self._ahead:
            count = min(len(room), len(self._ahead))
            room[:count], self._ahead = self._ahead[:count], self._ahead[count:]
            return count
        raw: Any = self._session.raw
        with translate_errors(self._session.connection):
            count = int(raw._rfile.raw.readinto(room) or 0)
            look = select.poll()
            look.register(raw._sock, select.POLLIN)
            while 0 < count < len(room) and look.poll(0):
                more = int(raw._rfile.raw.readinto(room[count:]) or 0)
                if not more:
                    break  # the connection has ended: the next call raises the error
                count += more
        if not count:
            raise SourceUnavailableError("the server closed the connection while rows of a SELECT were read")
        return count


def _column(packet: Any) -> ResultColumn:
    """The column that a column definition packet describes.

    Packet: catalog, schema, table, original table, name, original name; then 12, charset u16, length u32, type u8,
    flags u16, decimals u8."""
    for _ in range(6):
        packet.read_length_coded_string()
    _, _, length, number, flags, decimals = struct.unpack("<BHIBHB", packet.read(11))
    return ResultColumn(number, length, decimals, bool(flags & FLAG.UNSIGNED))
