"""The dump stream: a file's events as a server sends them to a replica.

Sources: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_binlog_dump.html,
https://mariadb.com/kb/en/com_binlog_dump/
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from copy import copy
from typing import Any

from changefeed.binlog.events.framing import ARTIFICIAL_FLAG, HEADER, HEADER_SIZE, HEARTBEATS, EventType, name_of
from changefeed.errors import (
    BinlogFormatError,
    BinlogGoneError,
    BinlogRefusedError,
    ChangefeedError,
    SourceError,
    SourceUnavailableError,
)
from changefeed.model.coordinates import FIRST_POSITION, LAST_DUMP_POSITION
from changefeed.model.file_identity import FileIdentity
from changefeed.source.mysql.server_ids import NO_SERVER_ID
from changefeed.source.mysql.session import BUSY, UNREACHABLE, Session, translate_errors

_COM_REGISTER_REPLICA, _COM_BINLOG_DUMP = 0x15, 0x12
_NON_BLOCK = 0x01
_MARIADB_ANNOTATE_ROWS = 0x02
"""The flag that requests ANNOTATE_ROWS events. Without it MariaDB omits them, and sizes do not add up."""
HEARTBEAT_SECONDS = 30
SILENT_SECONDS = 60
"""The least time without a byte of a dump after which the connection is given up; three heartbeats, if that is longer.
It is never longer than the limit for an answer of the connection."""
_ERROR, _END, _OK = 0xFF, 0xFE, b"\0"
_NAME_BYTES = 60
"""The most bytes of a reader's name that servers store as a replica's host."""
_LARGEST_PACKET = 0xFFFFFF
_FATAL_READ = 1236
_MUCH_BYTES = 1 << 18
_MOMENT_MS = 10
SYNC_SECONDS = 5.0
"""How long a dump waits for more bytes before its end.

With sync_binlog=1 MySQL shows the end of the binlog that is written, and sends what is on disk. The difference is the
time of a sync, and of binlog_group_commit_sync_delay, which is at most a second."""
_SYNC_PAUSE_SECONDS = 0.05


class _EndedEarlyError(Exception):
    """The server ended the dump, ``left`` bytes before the expected end; -1 before its first event."""

    def __init__(self, left: int) -> None:
        super().__init__(left)
        self.left = left


class DumpStream:
    """Iterates over the bytes of ``file`` from ``start`` to ``end``, in chunks.

    The FORMAT_DESCRIPTION event comes first, even if ``start`` is after it, then exactly ``end - start`` bytes. If
    ``start`` is 4, the FORMAT_DESCRIPTION is part of these bytes. A chunk can end inside an event. Artificial events
    (ROTATE, heartbeats, MariaDB's GTID_LIST) are omitted. The stream counts bytes to find its end, because the server's
    next position is not trusted.

    - ``session`` belongs to the stream, which closes it at the end of the iteration.
    - ``server_id``: a server drops the older of two readers with the same server_id. Any number of readers may use none
      (`NO_SERVER_ID`).
    - ``identity`` is the expected identity of the file. It is compared with the first event before any event is
      returned.
    - ``heartbeat_seconds``: an idle server sends a heartbeat in this interval.
    - ``reader_name`` is the reader's host in the server's list of replicas.
    - ``max_bytes_per_second`` limits the rate of reading.

    Raises BinlogGoneError if the server no longer has the file or has another file of its name, BinlogRefusedError if
    it cannot read the file there, SourceError if it refuses for another reason, SourceUnavailableError if the
    connection is lost, or the server ends the stream early and has no more bytes for SYNC_SECONDS.
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
        self._is_rest = False  # whether the FORMAT_DESCRIPTION is omitted, as an earlier stream returned it

    def __iter__(self) -> Iterator[bytes]:
        yield from self._read_to_end(DumpStream._chunks)

    def _read_to_end(self, read: Callable[[DumpStream], Iterator[bytes]]) -> Generator[bytes]:
        """What ``read`` returns of this stream; if it ends early, then of streams from there on, for SYNC_SECONDS."""
        stream, until = self, 0.0
        while True:
            try:
                yield from read(stream)
                return
            except _EndedEarlyError as early:
                start = self._end - early.left
                if not until or start != stream._start:
                    until = time.monotonic() + SYNC_SECONDS
                if early.left < 0 or time.monotonic() >= until:
                    raise self._early_end_error(early.left) from early
            time.sleep(_SYNC_PAUSE_SECONDS)
            stream = stream._rest_from(start)

    def _rest_from(self, start: int) -> DumpStream:
        """The stream of the same file from ``start`` on, on a new connection, as a server ends that of a dump."""
        rest = copy(self)
        rest._session, rest._start, rest._is_rest = Session(self._session.connection), start, True
        return rest

    def _chunks(self) -> Iterator[bytes]:
        with self._open_dump() as raw:
            yield from self._read(raw)

    def events(self, largest: int | None = None) -> Generator[bytes]:
        """The same bytes, event by event, for a caller that needs the first ones: slow, but it loads no kernels.

        It ends before an event of more than ``largest`` bytes, without reading that event.
        """
        yield from self._read_to_end(lambda stream: stream._chunks() if stream._is_far else stream._events(largest))

    def _events(self, largest: int | None) -> Iterator[bytes]:
        with self._open_dump() as raw:
            left = -1
            while left != 0:
                event = self._event(raw, left, largest)
                if event is None:
                    return
                if _is_stream_only(event):
                    continue
                is_first = left < 0
                left = (self._expected_bytes(memoryview(event)) if is_first else left) - len(event)
                if not (is_first and self._is_rest):
                    yield event

    def first_event(self) -> bytes:
        """The file's FORMAT_DESCRIPTION."""
        with closing(self.events()) as events:
            return next(events)

    def _event(self, raw: Any, left: int, largest: int | None) -> bytes | None:
        """The next event; None if it is larger than ``largest``. A packet of the largest size is continued in the next
        packet, up to the event's own size."""
        body, size, limit = bytearray(), _LARGEST_PACKET, max(left, _LARGEST_PACKET)
        while size == _LARGEST_PACKET and len(body) <= limit:
            size = int.from_bytes(self._bytes(raw, 4)[:3], "little")
            if largest is not None and len(body) + size > largest:
                return None
            body += self._bytes(raw, size)
            limit = min(limit, 1 + int.from_bytes(body[10:14], "little"))
        if body[:1] != _OK:
            raise self._refusal(bytes(body), left)
        event = bytes(body[1:])
        if not HEADER_SIZE <= len(event) <= max(left, _LARGEST_PACKET):
            raise BinlogFormatError(f"binlog {self._file}: the server sent an event of {len(event)} bytes")
        return event

    def _bytes(self, raw: Any, size: int) -> bytes:
        read: bytes = raw._rfile.read(size)
        if len(read) < size:
            raise self._closed_error()
        return read

    @contextmanager
    def _open_dump(self) -> Iterator[Any]:
        with self._session as session:
            self._prepare(session)
            with translate_errors(session.connection):
                self._request(session.raw, _NON_BLOCK | (_MARIADB_ANNOTATE_ROWS if session.is_mariadb else 0))
                with self._limit_silence(session):
                    yield session.raw

    @contextmanager
    def _limit_silence(self, session: Session) -> Iterator[None]:
        """Raise SourceUnavailableError if the server sends nothing for some time. PyMySQL limits only its own reads."""
        seconds = max(SILENT_SECONDS, 3 * self._heartbeat_seconds)
        seconds = min(seconds, session.connection.answer_limits.answer_seconds)
        session.raw._sock.settimeout(seconds)
        try:
            yield
        except TimeoutError as error:
            raise SourceUnavailableError(
                f"{session.connection}: expected events or a heartbeat, and the server sent nothing of binlog "
                f"{self._file!r} for {seconds} seconds: its process or its disk may hang. The connection was closed. "
                "Run again when the server answers."
            ) from error

    def _prepare(self, session: Session) -> None:
        # Request checksums: otherwise the server removes them from the events, and sizes do not add up.
        session.rows("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
        heartbeat = self._heartbeat_seconds * 10**9  # nanoseconds
        session.rows(f"SET @master_heartbeat_period = {heartbeat}, @source_heartbeat_period = {heartbeat}")
        if session.is_mariadb:
            # 4: the reader knows MariaDB's GTID events. For a smaller number the server replaces them.
            session.rows("SET @mariadb_slave_capability = 4")

    def _request(self, raw: Any, flags: int) -> None:
        """Request the dump.

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
        """Whether the start is beyond the last position at which a dump can start.

        Then the complete file is read, and the bytes before the start are dropped."""
        return self._start > LAST_DUMP_POSITION

    def _read(self, raw: Any) -> Iterator[bytes]:
        from changefeed.source.mysql.packets import PacketSplitter  # imported here: it loads the kernels

        splitter = PacketSplitter()
        # The number of expected bytes is unknown until the first event arrives: if the stream starts inside the file,
        # the FORMAT_DESCRIPTION comes in addition.
        left = -1
        dropped = 0
        pace = _Pace(self._max_bytes_per_second)
        while left != 0:
            count = _read_available(raw, pace.limit(splitter.room()), left)
            if not count:
                raise self._closed_error()
            pace.wait(count)
            events = splitter.feed(count)
            if left < 0 and len(events):
                left = self._expected_bytes(events)
                description = left - (self._end - self._start)
                if self._is_rest:
                    events, left = events[description:], left - description
                elif self._is_far:
                    yield bytes(events[:description])
                    events, left = events[description:], left - description
                if self._is_far:
                    dropped = self._start - FIRST_POSITION - description
            if dropped:
                dropped, events = max(0, dropped - len(events)), events[dropped:]
            if left >= 0 and len(events):
                part = bytes(events[:left])
                left -= len(part)
                yield part
            if left != 0 and splitter.refused is not None:
                raise self._refusal(splitter.refused, left)

    def _expected_bytes(self, events: memoryview) -> int:
        """The number of bytes that follow the stream's first event."""
        seconds, kind, server_id, size, _, _ = HEADER.unpack_from(events)
        if kind != EventType.FORMAT_DESCRIPTION or size < HEADER_SIZE:
            raise BinlogFormatError(
                f"binlog {self._file}:{self._start}: expected FORMAT_DESCRIPTION at the begin "
                f"of the dump, found {name_of(kind)}"
            )
        found = FileIdentity(self._file, seconds, server_id)
        self._identity = self._identity or found  # the same file is expected again after an early end
        self._identity.check(found)
        required = self._end - self._start
        return required if self._start == FIRST_POSITION else required + int(size)

    def _early_end_error(self, left: int) -> SourceUnavailableError:
        missing = f"{left} bytes before {self._end}" if left >= 0 else "before its first event"
        return SourceUnavailableError(
            f"the server ended binlog {self._file!r} {missing}, which was its size when the window was frozen. The "
            "server may have crashed and lost the end of its binlog (sync_binlog=1 prevents that)."
        )

    def _closed_error(self) -> SourceUnavailableError:
        return SourceUnavailableError(f"the server closed the connection while binlog {self._file!r} was read")

    def _refusal(self, body: bytes, left: int) -> ChangefeedError | _EndedEarlyError:
        if body[:1] == bytes([_END]) or len(body) < 3 or body[0] != _ERROR:
            return _EndedEarlyError(left)
        code = int.from_bytes(body[1:3], "little")
        words = body[9:].decode("utf-8", "replace") if body[3:4] == b"#" else body[3:].decode("utf-8", "replace")
        where = f"binlog {self._file}:{self._start}"
        if code == _FATAL_READ and ("find" in words.lower() or "purged" in words.lower()):
            return BinlogGoneError(
                f"the server does not have {where}, which was requested ({code}: {words}). The changes in it are "
                "lost to this pipeline unless the file was archived: publish it with a backfill of the archived files "
                "(`archive`), then seek past it."
            )
        refused = f"{where} was requested, and the server refused with error {code}: {words}"
        if code in BUSY or code in UNREACHABLE:
            return SourceUnavailableError(f"{refused}. Run again.")
        return BinlogRefusedError(refused) if code == _FATAL_READ else SourceError(refused)


def _is_stream_only(event: bytes) -> bool:
    """As `packets._is_stream_only`, without kernels."""
    _, kind, _, _, next_position, flags = HEADER.unpack_from(event)
    if kind in HEARTBEATS or (kind == EventType.MARIADB_START_ENCRYPTION and next_position == 0):
        return True
    return kind != EventType.FORMAT_DESCRIPTION and bool(flags & ARTIFICIAL_FLAG)


class _Pace:
    """Limits a reader to ``bytes_per_second``, if set. After an idle time it does not read faster to catch up."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self._bytes_per_second = bytes_per_second
        self._next = time.monotonic()

    def limit(self, room: memoryview) -> memoryview:
        """The part of ``room`` that one read may fill: the bytes of a twentieth of a second."""
        return room if self._bytes_per_second is None else room[: max(1, self._bytes_per_second // 20)]

    def wait(self, count: int) -> None:
        """Wait until the time for ``count`` bytes at this rate has passed."""
        if self._bytes_per_second is not None:
            now = time.monotonic()
            self._next = max(self._next, now) + count / self._bytes_per_second
            time.sleep(self._next - now)


def _read_available(raw: Any, room: memoryview, required: int) -> int:
    """Wait for bytes, and read the available ones; 0 at the end of the connection.

    Each call of the kernel takes as long as decoding some kilobytes. A fast reader would get the server's blocks of 16
    kB one by one, so it waits a moment for many of the ``required`` bytes. TLS returns at most 16 kB at a time.
    """
    look = select.poll()
    look.register(raw._sock, select.POLLIN)
    if required > _MUCH_BYTES and not isinstance(raw._sock, ssl.SSLSocket):
        raw._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _MUCH_BYTES)
        look.poll(_MOMENT_MS)
        raw._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    count = int(raw._rfile.readinto1(room))
    while 0 < count < len(room) and look.poll(0):
        more = int(raw._rfile.readinto1(room[count:]))
        if not more:
            break  # the connection has ended: the next call returns 0
        count += more
    return count
