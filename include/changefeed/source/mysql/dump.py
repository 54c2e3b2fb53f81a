"""The dump stream: a file's events as the server sends them to a replica.

Sources: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_binlog_dump.html,
https://mariadb.com/kb/en/com_binlog_dump/
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from changefeed.binlog.events.framing import HEADER, HEADER_SIZE, MADE_UP, EventType, name_of
from changefeed.errors import BinlogFormatError, BinlogGoneError, ChangefeedError, SourceError, SourceUnavailableError
from changefeed.model.coordinates import FIRST_POSITION, LAST_DUMP_POSITION
from changefeed.model.file_identity import FileIdentity
from changefeed.source.mysql.server_ids import NO_SERVER_ID
from changefeed.source.mysql.session import Session, translated

_COM_REGISTER_REPLICA, _COM_BINLOG_DUMP = 0x15, 0x12
_NON_BLOCK = 0x01
_MARIADB_ANNOTATE_ROWS = 0x02
"""Without it MariaDB leaves the ANNOTATE_ROWS events out, and sizes do not add up."""
HEARTBEAT_SECONDS = 30
_ERROR, _END, _OK = 0xFF, 0xFE, b"\0"
_NAME_BYTES = 60
"""Of a reader's name: servers keep no more of a replica's host."""
_KIND_AT = 4
"""In an event's header."""
_FATAL_READ = 1236
_MUCH_BYTES = 1 << 18
_MOMENT_MS = 10


class DumpStream:
    """Iterates the bytes of ``file`` from ``start`` to ``end``, in chunks of whole packets cut anywhere.

    The FORMAT_DESCRIPTION event comes first, also where ``start`` is behind it; after it exactly ``end - start`` bytes,
    or for ``start`` 4 that many with it. The events that the server makes up (ROTATE, heartbeats, MariaDB's GTID_LIST)
    are left out. The stream ends by its own count of bytes: what a server says of the next position is not trusted.

    Owns ``session`` and closes it at the end of the iteration. A server drops the older of two readers that have the
    same ``server_id``; readers without one (`NO_SERVER_ID`) may be any number at once. ``identity`` is what the file
    has to be; it is compared with the first event of this very stream, before any is given out. A server that has
    nothing to send sends a heartbeat each ``heartbeat_seconds``, which is left out, too. ``reader_name`` is what the
    server's list of replicas shows as the reader's host. No more than ``max_bytes_per_second`` are read.

    Raises BinlogGoneError where the server no longer has the file or has another of its name, SourceError for another
    refusal, SourceUnavailableError for a lost connection or a server that ends early.
    """

    def __init__(
        self,
        session: Session,
        *,
        file: str,
        start: int,
        end: int,
        server_id: int = NO_SERVER_ID,
        identity: FileIdentity | None = None,
        heartbeat_seconds: int = HEARTBEAT_SECONDS,
        reader_name: str = "",
        max_bytes_per_second: int | None = None,
    ) -> None:
        self._session, self._file, self._start, self._end = session, file, start, end
        self._server_id, self._identity, self._heartbeat_seconds = server_id, identity, heartbeat_seconds
        self._reader_name, self._max_bytes_per_second = reader_name.encode()[:_NAME_BYTES], max_bytes_per_second

    def __iter__(self) -> Iterator[bytes]:
        with self._begun() as raw:
            yield from self._read(raw)

    def first_event(self) -> bytes:
        """The file's FORMAT_DESCRIPTION alone: it takes no kernels, which a driver may have no other use for."""
        with self._begun() as raw:
            while True:
                size = int.from_bytes(self._bytes(raw, 4)[:3], "little")
                body = self._bytes(raw, size)
                if body[:1] != _OK:
                    raise self._refusal(body, -1)
                event = body[1:]
                if len(event) < HEADER_SIZE:
                    raise BinlogFormatError(f"binlog {self._file}: the server sent an event of {len(event)} bytes")
                if event[_KIND_AT] not in (EventType.ROTATE, *MADE_UP):
                    self._expected(memoryview(event))
                    return event

    def _bytes(self, raw: Any, size: int) -> bytes:
        read: bytes = raw._rfile.read(size)
        if len(read) < size:
            raise self._closed()
        return read

    @contextmanager
    def _begun(self) -> Iterator[Any]:
        with self._session as session:
            self._prepare(session)
            with translated(session.connection):
                self._request(session.raw, _NON_BLOCK | (_MARIADB_ANNOTATE_ROWS if session.is_mariadb else 0))
                yield session.raw

    def _prepare(self, session: Session) -> None:
        # The events' own checksums: asked for without them, a server cuts them off and sizes no longer add up.
        session.rows("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
        heartbeat = self._heartbeat_seconds * 10**9  # nanoseconds
        session.rows(f"SET @master_heartbeat_period = {heartbeat}, @source_heartbeat_period = {heartbeat}")
        if session.is_mariadb:
            # 4: knows MariaDB's GTID events; to less the server sends them as something else.
            session.rows("SET @mariadb_slave_capability = 4")

    def _request(self, raw: Any, flags: int) -> None:
        """Ask for the dump.

        COM_REGISTER_REPLICA: server id u32, host, user, password (u8 length and text each), port u16, rank u32, source
        id u32. COM_BINLOG_DUMP: position u32, flags u16, server id u32, file name.
        """
        name = bytes([len(self._reader_name)]) + self._reader_name
        replica = struct.pack("<I", self._server_id) + name + struct.pack("<BBHII", 0, 0, 0, 0, 0)
        raw._execute_command(_COM_REGISTER_REPLICA, replica)
        raw._read_ok_packet()
        position = FIRST_POSITION if self._is_far else self._start
        request = struct.pack("<IHI", position, flags, self._server_id) + self._file.encode()
        raw._execute_command(_COM_BINLOG_DUMP, request)

    @property
    def _is_far(self) -> bool:
        """Whether no dump can start there: then one of the whole file is read, and what is before it dropped."""
        return self._start > LAST_DUMP_POSITION

    def _read(self, raw: Any) -> Iterator[bytes]:
        from changefeed.source.mysql.packets import PacketSplitter  # not before a dump is read: it loads the kernels

        splitter = PacketSplitter()
        # Before the first event its size is not known; the FORMAT_DESCRIPTION of a start inside the file is extra.
        left = -1
        dropped = 0
        pace = _Pace(self._max_bytes_per_second)
        while left != 0:
            count = _read_what_is_there(raw, pace.limit(splitter.room()), left)
            if not count:
                raise self._closed()
            pace.wait(count)
            events = splitter.feed(count)
            if left < 0 and len(events):
                left = self._expected(events)
                if self._is_far:
                    description = left - (self._end - self._start)
                    yield bytes(events[:description])
                    events, left = events[description:], left - description
                    dropped = self._start - FIRST_POSITION - description
            if dropped:
                dropped, events = max(0, dropped - len(events)), events[dropped:]
            if left >= 0 and len(events):
                part = bytes(events[:left])
                left -= len(part)
                yield part
            if left != 0 and splitter.refused is not None:
                raise self._refusal(splitter.refused, left)

    def _expected(self, events: memoryview) -> int:
        """How many bytes are to come, given the stream's first event."""
        seconds, kind, server_id, size, _, _ = HEADER.unpack_from(events)
        if kind != EventType.FORMAT_DESCRIPTION or size < HEADER_SIZE:
            raise BinlogFormatError(
                f"binlog {self._file}:{self._start}: the server began its dump with {name_of(kind)}, and "
                "FORMAT_DESCRIPTION was wanted"
            )
        if self._identity is not None:
            self._identity.check(FileIdentity(self._file, seconds, server_id))
        wanted = self._end - self._start
        return wanted if self._start == FIRST_POSITION else wanted + int(size)

    def _closed(self) -> SourceUnavailableError:
        return SourceUnavailableError(f"the server closed the connection while binlog {self._file!r} was read")

    def _refusal(self, body: bytes, left: int) -> ChangefeedError:
        if body[:1] == bytes([_END]) or len(body) < 3 or body[0] != _ERROR:
            missing = f"{left} bytes before {self._end}" if left >= 0 else "before its first event"
            return SourceUnavailableError(
                f"the server ended binlog {self._file!r} {missing}, which was its size when the window was frozen. The "
                "server may have crashed and lost the end of its binlog (sync_binlog=1 prevents that)."
            )
        code = int.from_bytes(body[1:3], "little")
        words = body[9:].decode("utf-8", "replace") if body[3:4] == b"#" else body[3:].decode("utf-8", "replace")
        where = f"binlog {self._file}:{self._start}"
        if code == _FATAL_READ and ("find" in words.lower() or "purged" in words.lower()):
            return BinlogGoneError(
                f"{where} was asked for, and the server does not have it ({code}: {words}). The changes in it are "
                "lost to this pipeline unless the file was archived: publish it with a backfill of the archived files "
                "(`archive`), then seek behind it."
            )
        return SourceError(f"{where} was asked for, and the server refused with error {code}: {words}")


class _Pace:
    """Holds a reader back to ``bytes_per_second``, if any. Time in which it reads nothing is not made up for later."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self._bytes_per_second = bytes_per_second
        self._next = time.monotonic()

    def limit(self, room: memoryview) -> memoryview:
        """As much of ``room`` as may be read at once: a twentieth of what a second allows."""
        return room if self._bytes_per_second is None else room[: max(1, self._bytes_per_second // 20)]

    def wait(self, count: int) -> None:
        """Wait after ``count`` bytes as long as they may take."""
        if self._bytes_per_second is not None:
            now = time.monotonic()
            self._next = max(self._next, now) + count / self._bytes_per_second
            time.sleep(self._next - now)


def _read_what_is_there(raw: Any, room: memoryview, wanted: int) -> int:
    """Wait for bytes, and read those that are there; 0 at the end of the connection.

    Each round through the kernel costs as much as decoding some kilobytes, and TLS hands out 16 at a time. A server
    that is read as fast as it sends would be read in its own pieces of 16 kB: of ``wanted`` bytes, which all are to
    come, many are waited for, a moment.
    """
    look = select.poll()
    look.register(raw._sock, select.POLLIN)
    if wanted > _MUCH_BYTES and not isinstance(raw._sock, ssl.SSLSocket):
        raw._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _MUCH_BYTES)
        look.poll(_MOMENT_MS)
        raw._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    count = int(raw._rfile.readinto1(room))
    while 0 < count < len(room) and look.poll(0):
        more = int(raw._rfile.readinto1(room[count:]))
        if not more:
            break  # the next read says so once more
        count += more
    return count
