"""A TCP proxy at 127.0.0.1 that can cut all its connections, refuse new ones, and lead them to another server."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Forwards to ``port``; ``cut`` resets what is open and refuses what comes, `mend` lets it pass again."""

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
        """Forward new connections to ``port``, ``after`` more of them to where they went so far. Open ones stay."""
        self._next = (port, after)

    def close(self) -> None:
        self.cut()
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
