"""An address that loses bytes, batches, and an independent reader: librdkafka, with its checksums."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable

import confluent_kafka
from kafka.record.default_records import DefaultRecordBatchBuilder


class Wire:
    """Forwards 127.0.0.1:``port`` to ``target``. With ``deaf`` answers are lost on their way, and then connections."""

    def __init__(self) -> None:
        self.target = 0
        self.deaf = False
        self.refused = 0
        """How many connections ended because nothing listens at the target."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections; new ones pass."""
        for connection in list(self._open):
            self._close(connection)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it is closed already
            self._server.shutdown(socket.SHUT_RDWR)  # ends `accept`, which may outlive the socket
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    self.refused += 1
                    client.close()
                    continue
                self._open |= {client, server}
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, to: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not (answers and self.deaf):
                    to.sendall(data)
        self._close(source)
        self._close(to)

    def _close(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()


def record_batch(rows: Iterable[int], *, value: bytes = b"", codec: int = 0) -> tuple[bytes, int]:
    """A finished batch of a record a row, by kafka-python's builder, and how many records it has."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 40)
    now = int(time.time() * 1000)
    count = 0
    for count, row in enumerate(rows, 1):
        builder.append(count - 1, now, b"%d" % row, value or b"row %d" % row, [("id", b"%d" % row)])
    return bytes(builder.build()), count


def rows_of(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[int, list[int]]:
    """The keys in each partition, in order, up to the end that it has now, read by librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation,
            "check.crcs": True,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
            "fetch.message.max.bytes": 100 << 20,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=120).topics[topic].partitions)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in partitions])
        rows: dict[int, list[int]] = {partition: [] for partition in partitions}
        waiting, deadline = set(partitions), time.monotonic() + 60
        while waiting:
            assert time.monotonic() < deadline, f"no end of {waiting} of {topic}"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                rows[message.partition()].append(int(message.key()))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())
            else:
                raise AssertionError(message.error())
        return rows
    finally:
        consumer.close()
