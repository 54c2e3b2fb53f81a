"""TCP proxies at 127.0.0.1: one that cuts connections or leads them elsewhere, one that makes a broker an older one."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading


class Proxy:
    """Forwards to ``port``; `cut` resets open connections and refuses new ones until `mend`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._next: tuple[int, int] | None = None
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        for connection in list(self._open):
            self._close(connection)

    def mend(self) -> None:
        self._is_cut = False

    def lead_to(self, port: int, after: int = 0) -> None:
        """Forward new connections to ``port``, after ``after`` more to the previous one. Open ones stay."""
        self._next = (port, after)

    def close(self) -> None:
        self.cut()
        with contextlib.suppress(OSError):  # it is closed already
            self._server.shutdown(socket.SHUT_RDWR)  # ends `accept`, which may outlive the socket
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._is_cut:
                client.close()
                continue
            if self._next is not None:
                port, after = self._next
                self._next = (port, after - 1) if after else None
                self._target = self._target if after else port
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            self._open |= {client, server}
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        self._close(source)
        self._close(target)

    def _close(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()


class OlderBroker(Proxy):
    """A Kafka broker that does not list the request ``api_key``, like releases without it."""

    def __init__(self, port: int, api_key: int) -> None:
        self._api_key = api_key
        super().__init__(port)

    def _accept(self) -> None:
        self._asked: dict[bytes, int] = {}
        """Correlation ids of ApiVersions requests, with the version of each; clients of a test do not share one."""
        super()._accept()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error):
            is_broker = source.getpeername()[1] == self._target
            while True:
                frame = _read(source, *struct.unpack(">i", _read(source, 4)))
                if not is_broker and frame[:2] == _API_VERSIONS:
                    self._asked[frame[4:8]] = int.from_bytes(frame[2:4], "big")
                elif is_broker and (version := self._asked.pop(frame[:4], None)) is not None:
                    frame = _without(frame, version, self._api_key)
                target.sendall(struct.pack(">i", len(frame)) + frame)
        self._close(source)
        self._close(target)


_API_VERSIONS = (18).to_bytes(2, "big")


def _read(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise OSError("the other end closed the connection")
        data += part
    return data


def _without(frame: bytes, version: int, api_key: int) -> bytes:
    """An ApiVersions response without the entry of ``api_key``; entries are three INT16."""
    at, is_compact = 6, version >= 3  # after correlation id and error code
    if is_compact:
        count, begin, size = frame[at] - 1, at + 1, 7  # an entry ends with its tagged fields
        assert count < 126, "a length of one byte"
    else:
        count, begin, size = int.from_bytes(frame[at : at + 4], "big"), at + 4, 6
    entries = [frame[begin + number * size :][:size] for number in range(count)]
    kept = [entry for entry in entries if int.from_bytes(entry[:2], "big") != api_key]
    length = bytes([len(kept) + 1]) if is_compact else struct.pack(">i", len(kept))
    return frame[:at] + length + b"".join(kept) + frame[begin + count * size :]
