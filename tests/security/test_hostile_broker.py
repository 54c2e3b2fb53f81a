"""A broker with endless answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from changefeed.errors import BrokerUnavailableError
from changefeed.kafka.connection import KafkaConnection

_SENT_BYTES = 1 << 20


class EndlessBroker:
    """Answers each request with a frame of two gigabytes."""

    def __init__(self) -> None:
        self.sent_bytes: list[int] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
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
        at = len(self.sent_bytes)
        self.sent_bytes.append(0)
        with connection:
            try:
                connection.recv(65536)
                connection.sendall((2**31 - 1).to_bytes(4, "big"))
                while True:
                    connection.sendall(bytes(_SENT_BYTES))
                    self.sent_bytes[at] += _SENT_BYTES
            except OSError:
                return


@pytest.fixture
def broker() -> Iterator[EndlessBroker]:
    broker = EndlessBroker()
    yield broker
    broker.close()


@pytest.mark.parametrize("client", ["admin", "consumer"])
def test_frame_of_two_gigabytes_is_not_read(broker: EndlessBroker, client: str) -> None:
    connection = KafkaConnection(broker.address, timeout_seconds=2)
    with pytest.raises(BrokerUnavailableError), getattr(connection, client)() as open_client:
        open_client.topics()
    assert broker.sent_bytes, "a client has connected"
    assert max(broker.sent_bytes) < 32 << 20
