"""A record that its topic refuses, and its dead letter."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.records.record_batch import HEAD_BYTES

# In a batch of one record: the batch's header, at most 21 bytes for the lengths in the record (DefaultRecordBatch and
# DefaultRecord in Kafka's sources), and the names and lengths of the two headers.
OVERHEAD_BYTES = HEAD_BYTES + 21 + 64


@dataclass(frozen=True)
class BadRecord:
    """A record that was refused."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]

    @property
    def size_bytes(self) -> int:
        """An upper bound of the record's uncompressed size as Kafka counts it."""
        parts = len(self.key or b"") + len(self.value or b"") + sum(len(value) for _, value in self.headers)
        return parts + OVERHEAD_BYTES

    @property
    def event_id(self) -> str:
        """The id of its row change: server, binlog coordinates and row."""
        return self.headers[0][1].decode("utf-8", "replace")

    def describe(self, table: str) -> str:
        """The record's table, key and coordinates for an error message; a long key is shortened."""
        key = "null" if self.key is None else repr(self.key[:200].decode("utf-8", "replace"))
        of = f" of table {table!r}" if table else ""
        return (
            f"the record{of} with key {key} for partition {self.partition} of {self.topic!r}, event {self.event_id!r},"
        )

    def key_of_letter(self, max_message_bytes: int) -> bytes | None:
        """The key of the dead letter: the record's own, or None if that alone is too large."""
        return self.key if self.key is not None and len(self.key) < max_message_bytes // 4 else None

    def letter(self, reason: str, max_message_bytes: int) -> tuple[bytes | None, list[tuple[str, bytes]]]:
        """Value and headers of the dead letter.

        The value is the complete value of the record. If it does not fit into the dead-letter topic either, it is left
        out, and the header ``changefeed.value_bytes`` has its length.
        """
        headers = [
            *self.headers,
            ("changefeed.reason", reason.encode()),
            ("changefeed.topic", self.topic.encode()),
            ("changefeed.partition", str(self.partition).encode()),
        ]
        if self.value is None or self.size_bytes + len(reason) + len(self.topic) + 200 <= max_message_bytes:
            return self.value, headers
        return None, [*headers, ("changefeed.value_bytes", str(len(self.value)).encode())]
