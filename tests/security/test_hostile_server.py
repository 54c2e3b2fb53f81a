"""A hostile MySQL server: its answers are endless, and its binlog files have names of other paths."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from changefeed.errors import SettingsError, SourceUnavailableError
from changefeed.model.connection import AnswerLimits, MysqlConnection
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import binlog_files, head

_OK = b"\0\0\0\2\0\0\0"
_END = b"\xfe\0\0\2\0"

Answer = Callable[[str], Iterator[bytes]]


def _text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def _column(name: bytes) -> bytes:
    return b"".join(_text(part) for part in (b"def", b"", b"", b"", name, name)) + b"\x0c\x2d\0\xff\0\0\0\xfd\0\0\0\0\0"


def rows_of(columns: list[bytes], rows: Iterator[list[bytes]]) -> Iterator[bytes]:
    """The packets of a result set."""
    yield bytes([len(columns)])
    yield from map(_column, columns)
    yield _END
    for row in rows:
        yield b"".join(map(_text, row))
    yield _END


class HostileServer:
    """Greets as MySQL 9.7, accepts each login, and answers queries with the packets of ``answer``."""

    def __init__(self, answer: Answer, pause_seconds: float = 0) -> None:
        self._answer, self._pause_seconds = answer, pause_seconds
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)  # ends `accept`, which may outlive the socket
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        greeting = (
            b"\x0a9.7.0\0" + struct.pack("<I", 7) + b"a" * 8 + b"\0" + struct.pack("<HBHH", 0xF7DF, 45, 2, 0x0008)
        )
        greeting += bytes([21]) + bytes(10) + b"a" * 12 + b"\0" + b"mysql_native_password\0"
        with connection, connection.makefile("rb") as received:
            self._send(connection, [greeting], 0)
            number = received.read(int.from_bytes(received.read(4)[:3], "little") + 0) and 2
            self._send(connection, [_OK], number)
            while head := received.read(4):
                query = received.read(int.from_bytes(head[:3], "little"))[1:].decode()
                packets = self._answer(query)
                if query.startswith("SET"):
                    packets = iter([_OK])
                elif query == "SELECT @@version":
                    packets = rows_of([b"@@version"], iter([[b"9.7.0"]]))
                try:
                    self._send(connection, packets, 1, self._pause_seconds if query.startswith("SHOW") else 0)
                except OSError:
                    return

    def _send(
        self, connection: socket.socket, packets: Iterator[bytes] | list[bytes], number: int, pause_seconds: float = 0
    ) -> None:
        for packet in packets:
            data = len(packet).to_bytes(3, "little") + bytes([number % 256]) + packet
            number += 1
            for at in range(0, len(data), 1 if pause_seconds else len(data)):
                connection.sendall(data[at : at + 1] if pause_seconds else data)
                time.sleep(pause_seconds)


@contextmanager
def session_on(answer: Answer, answer_limits: AnswerLimits, pause_seconds: float = 0) -> Iterator[Session]:
    server = HostileServer(answer, pause_seconds)
    try:
        with Session(
            MysqlConnection("127.0.0.1", server.port, "u", "", {"ssl_mode": "disabled"}, answer_limits)
        ) as session:
            yield session
    finally:
        server.close()


def _endless(_query: str) -> Iterator[bytes]:
    def forever() -> Iterator[list[bytes]]:
        number = 0
        while True:
            number += 1
            yield [f"binlog.{number:06}".encode(), b"1000"]

    return rows_of([b"Log_name", b"File_size"], forever())


def test_endless_file_list_is_not_read_to_the_end() -> None:
    begin = time.monotonic()
    with (
        session_on(_endless, AnswerLimits(5, 5, answer_bytes=1 << 20)) as session,
        pytest.raises(SourceUnavailableError, match="larger than 1,048,576 bytes"),
    ):
        binlog_files(session)
    assert time.monotonic() - begin < 30


def test_slow_server_times_out() -> None:
    begin = time.monotonic()
    with (
        session_on(_endless, AnswerLimits(10, 3), pause_seconds=0.1) as session,
        pytest.raises(SourceUnavailableError, match="more than 6 seconds from its first byte to its last"),
    ):
        binlog_files(session)
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("name", ["/etc/cron.d/p.000001", "..\\p.000001", "a\x1b[2Jb.000001", "\u202ebin.000001"])
def test_file_with_the_name_of_another_path_is_refused(name: str) -> None:
    def answer(query: str) -> Iterator[bytes]:
        if "STATUS" in query:
            columns = [b"File", b"Position", b"Binlog_Do_DB", b"Binlog_Ignore_DB", b"Executed_Gtid_Set"]
            return rows_of(columns, iter([[name.encode(), b"1000", b"", b"", b""]]))
        return rows_of([b"Log_name", b"File_size"], iter([[name.encode(), b"1000"]]))

    with session_on(answer, AnswerLimits()) as session:
        for ask in (binlog_files, head):
            with pytest.raises(SettingsError, match="that no binlog file has") as refused:
                ask(session)
            assert str(refused.value).isprintable()
