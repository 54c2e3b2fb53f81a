"""The dump stream: a file's events as the server sends them to a replica.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_binlog_dump.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from changefeed.errors import SourceUnavailableError
from changefeed.mysql.session import Session

_COM_REGISTER_REPLICA, _COM_BINLOG_DUMP = 0x15, 0x12
_NON_BLOCK = 0x01
_HEARTBEAT_NANOSECONDS = 30 * 10**9


class DumpStream:
    """Iterates the bytes of whole events of ``file`` from ``start`` on, until the server has no more or ``end``.

    The server first makes up a ROTATE and, for a start inside the file, a FORMAT_DESCRIPTION: they come through
    too. It owns ``session`` and closes it at the end of the iteration.
    """

    def __init__(self, session: Session, *, file: str, start: int, end: int, server_id: int) -> None:
        self._session, self._file, self._start, self._end = session, file, start, end
        self._server_id = server_id

    def __iter__(self) -> Iterator[bytes]:
        with self._session as session:
            self._prepare(session)
            raw = session.raw
            from changefeed.mysql.session import translated

            with translated(session.connection):
                raw._execute_command(_COM_REGISTER_REPLICA, struct.pack("<IBBBHII", self._server_id, 0, 0, 0, 0, 0, 0))
                raw._read_ok_packet()
                request = struct.pack("<IHI", self._start, _NON_BLOCK, self._server_id) + self._file.encode()
                raw._execute_command(_COM_BINLOG_DUMP, request)
                position = self._start
                while position < self._end:
                    packet = raw._read_packet()
                    if packet.is_eof_packet():
                        raise SourceUnavailableError(
                            f"the server ended binlog {self._file!r} at {position}, and {self._end} was wanted"
                        )
                    data = packet.get_all_data()[1:]
                    (_, kind, _, size, next_position, flags) = struct.unpack_from("<IBIIIH", data)
                    if not (flags & 0x20 or kind in (27, 41) or (kind == 15 and next_position == 0)):
                        position += size
                    yield data

    def _prepare(self, session: Session) -> None:
        session.rows("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
        session.rows(
            f"SET @master_heartbeat_period = {_HEARTBEAT_NANOSECONDS}, "
            f"@source_heartbeat_period = {_HEARTBEAT_NANOSECONDS}"
        )
        if session.is_mariadb:
            session.rows("SET @mariadb_slave_capability = 4")
