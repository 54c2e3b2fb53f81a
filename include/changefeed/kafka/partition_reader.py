"""Reads records of topic partitions: up to their current end, or continuously.

All code that reads topics uses this reader. So a dead broker, a missing topic and a hanging transaction cause the same
errors everywhere, and every wait has a limit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import kafka
import kafka.errors

from changefeed.errors import BrokerUnavailableError, ChangefeedError, TopicError
from changefeed.kafka.client_internals import is_well
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.progress import TopicPartition
from changefeed.kafka.stored_batches import UnpackableError, bound_batches, return_batches
from changefeed.kafka.topics import offsets_of

_log = logging.getLogger(__name__)

_NO_SUCH_TOPIC, _NOT_ALLOWED = 3, 29
_LOG_APPEND_TIME = 1
_POLL_MS = 20
_MAX_RECORDS = 10_000
_MOST_LOG_BYTES, _MOST_LOG_SECONDS = 2 << 30, 900
"""Limits of reading a complete log of one pipeline, in bytes and seconds."""
_QUIET_SECONDS = 2.0
"""How long a reader waits for an open transaction before it logs that."""
_FETCH_WAIT_MS = 50
"""How long the broker delays an empty response."""

Start = Literal["first", "end"] | Mapping[TopicPartition, int]
"""The start of a read: the first record, the end, or an offset for each partition."""


@dataclass(frozen=True)
class KafkaRecord:
    """One record of a partition. ``timestamp_ms`` is Unix time: by the broker's clock if ``stamped_by_broker``
    (message.timestamp.type=LogAppendTime), else by the writer's clock."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int
    stamped_by_broker: bool


@contextmanager
def partition_reader(
    connection: KafkaConnection,
    partitions: Sequence[TopicPartition],
    purpose: str,
    *,
    start: Start = "first",
    committed: bool = True,
    stored_batches: bool = False,
    nearest: bool = False,
    of_a_log: bool = False,
) -> Iterator[PartitionReader]:
    """A reader of ``partitions``, at least one, closed afterwards. ``purpose`` ("to read ...") begins its messages.

    - With ``committed`` it skips records of aborted transactions and stops before an open transaction; without, it
      reads all records.
    - With ``stored_batches`` each `KafkaRecord` is a record batch as it is stored: its offset is the offset of the
      first record, its value the bytes of the batch.
    - With ``nearest`` a replica in the connection's `client.rack` may answer, which may lag behind the leader. It is
      for topics of many rows that are read up to known offsets.
    - ``of_a_log`` is for topics that only changefeed writes: a batch that unpacks to more bytes than changefeed would
      write raises TopicError.

    Raises BrokerUnavailableError if no broker answers, SettingsError if the login is refused.
    """
    isolation = "read_committed" if committed else "read_uncommitted"
    with connection.consumer(
        nearest=nearest, isolation_level=isolation, auto_offset_reset="earliest", fetch_max_wait_ms=_FETCH_WAIT_MS
    ) as consumer:
        assigned = [kafka.TopicPartition(*partition) for partition in partitions]
        if stored_batches:
            return_batches(consumer)
        elif of_a_log:
            bound_batches(consumer)
        consumer.assign(assigned)
        if start == "end":
            consumer.seek_to_end(*assigned)
        elif start != "first":
            for partition in assigned:
                consumer.seek(partition, start[partition])
        record_of = _batch if stored_batches else _record
        yield PartitionReader(consumer, connection, assigned, purpose, record_of, of_a_log=of_a_log)


class PartitionReader:
    """Reads some partitions; `partition_reader` creates it. Each record is returned once, by the first method that
    reaches it.

    All methods raise BrokerUnavailableError, which names broker, topic and partition, if a partition cannot be read
    now, and TopicError for a topic that was removed or may not be read.
    """

    def __init__(
        self,
        consumer: Any,
        connection: KafkaConnection,
        partitions: Sequence[TopicPartition],
        purpose: str,
        record_of: Callable[[Any], KafkaRecord],
        *,
        of_a_log: bool = False,
    ) -> None:
        self._consumer, self._connection, self._purpose = consumer, connection, purpose
        self._record_of, self._of_a_log = record_of, of_a_log
        self._partitions = [kafka.TopicPartition(*partition) for partition in partitions]
        self._ahead: list[KafkaRecord] = []
        self._answered_at = time.monotonic()
        self._asks_ends = False
        """Whether `to_end` asks for the high watermark: after `go_to` the consumer has that of an earlier response."""

    def last_stable_offsets(self) -> dict[TopicPartition, int]:
        """The current end of each partition for readers of committed records: before its first open transaction."""
        return self._ends(self._partitions)

    def first_offsets(self) -> dict[TopicPartition, int]:
        """The first offset of each partition: 0 unless its first records were deleted. Compaction does not change
        it."""
        with self._errors_of(self._partitions):
            offsets = self._consumer.beginning_offsets(list(self._partitions))
        return {(partition.topic, partition.partition): offset for partition, offset in offsets.items()}

    def go_to(self, offset: int) -> None:
        """Read on from ``offset`` of the only partition, as a new reader that starts there would."""
        (partition,) = self._partitions
        self._consumer.seek(partition, offset)
        self._ahead, self._asks_ends, self._answered_at = [], True, time.monotonic()

    def is_well(self) -> bool:
        """Whether the reader can be used again, with `go_to`; see `kept_clients`."""
        return is_well(self._consumer)

    def to_end(
        self,
        ends: Mapping[TopicPartition, int] | None = None,
        *,
        timeout_seconds: float,
        open_seconds: float | None = None,
    ) -> Iterator[KafkaRecord]:
        """Yield all records before the offsets ``ends``, as they arrive; they are in order within a partition.

        Without ``ends`` a partition ends at the high watermark that it has now. Records of
        a committed transaction can follow an open transaction. So the reader waits until the open one is committed or
        aborted, and logs that once. It raises an error if no record arrives for ``timeout_seconds``. With
        ``open_seconds`` it ends before a transaction that stays open for so long, and leaves out the records after it.
        """
        bounds = dict(ends or (self._high_watermarks() if self._asks_ends else {}))
        later: list[KafkaRecord] = []
        waiting = self._partitions
        positions: dict[TopicPartition, int | None] = {}
        begun_at = moved_at = time.monotonic()
        read_bytes = 0
        has_logged = False
        try:
            while True:
                records = self._next(_POLL_MS)
                if self._of_a_log:
                    read_bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
                    self._check_has_an_end(read_bytes, time.monotonic() - begun_at)
                for record in records:
                    if record.offset < bounds.get((record.topic, record.partition), record.offset + 1):
                        yield record
                    else:
                        later.append(record)
                self._learn_ends(bounds)
                before, positions = positions, self._positions(waiting)
                if records or positions != before:
                    moved_at = time.monotonic()
                waiting = [
                    partition for partition in waiting if not _is_at_end(positions[partition], bounds.get(partition))
                ]
                if not waiting:
                    return
                still_seconds = time.monotonic() - moved_at
                known = all(bounds.get(partition) is not None for partition in waiting)
                if open_seconds is not None and known and still_seconds > open_seconds:
                    return
                if still_seconds > timeout_seconds:
                    raise self._stuck(waiting, positions, bounds, timeout_seconds)
                if known and still_seconds > _QUIET_SECONDS and not has_logged:
                    self._log_open_transaction(waiting, positions, timeout_seconds)
                    has_logged = True
                self._look_after_silence(waiting)
        finally:
            self._ahead = later + self._ahead

    def _check_has_an_end(self, read_bytes: int, seconds: float) -> None:
        """Raise TopicError for a log that is larger than any pipeline's log, because a broker could announce more
        records without end."""
        if read_bytes > _MOST_LOG_BYTES or seconds > _MOST_LOG_SECONDS:
            raise TopicError(
                f"{self._what(self._partitions[0])} was read for {seconds:.0f} seconds, {read_bytes:,} bytes, and has "
                f"more: expected at most {_MOST_LOG_BYTES:,} bytes in {_MOST_LOG_SECONDS} seconds. Is it compacted "
                "(cleanup.policy=compact), and may only changefeed write there? Nothing was published."
            )

    def last(self, key: bytes, *, timeout_seconds: float) -> KafkaRecord | None:
        """The last record with ``key`` in the reader's only partition; None if there is none.

        It reads backwards from the end, so it does not read all records. For compacted topics with few keys.
        """
        (partition,) = self._partitions
        end, back = self._ends([partition])[partition], 1  # the last stable offset; to_end reads the rest
        with self._errors_of([partition]):
            first = self._consumer.beginning_offsets([partition])[partition]
        while True:
            start = max(first, end - back)
            self._consumer.seek(partition, start)
            self._ahead = []
            same = [record for record in self.to_end(timeout_seconds=timeout_seconds) if record.key == key]
            if same or start == first:
                return same[-1] if same else None
            back *= 8

    def between(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], *, timeout_seconds: float
    ) -> Iterator[KafkaRecord]:
        """Yield the records of ``ranges`` ([first, end) offsets by partition), in order within a partition.

        Ends after the last stable offset would wait for an open transaction. Other partitions are not read. Raises an
        error if no record arrives for ``timeout_seconds``.
        """
        self._ahead = []
        ends = dict.fromkeys(((partition.topic, partition.partition) for partition in self._partitions), 0)
        for name, (first, end) in ranges.items():
            self._consumer.seek(kafka.TopicPartition(*name), first)
            ends[name] = end
        self.only(list(ranges))
        others = [one for one in self._partitions if (one.topic, one.partition) not in ranges]
        for partition in others:
            self._consumer.seek(partition, 0)
        yield from self.to_end(ends, timeout_seconds=timeout_seconds)

    def offsets_at(self, time_ms: int) -> dict[TopicPartition, int | None]:
        """The first offset of each partition whose record has the timestamp ``time_ms`` or a later one; None if there
        is none."""
        with self._errors_of(self._partitions):
            found = self._consumer.offsets_for_times(dict.fromkeys(self._partitions, time_ms))
        return {(one.topic, one.partition): at and at.offset for one, at in found.items()}

    def poll(self, seconds: float) -> list[KafkaRecord]:
        """The next records, if necessary after waiting up to ``seconds`` for the first of them; [] if none arrives.

        If none arrives for some time, it checks that the brokers still answer.
        """
        records = self._next(int(seconds * 1000))
        if not records:
            self._look_after_silence(self._partitions)
        return records

    def only(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch records of these partitions only, until the next call."""
        purpose = {kafka.TopicPartition(*partition) for partition in partitions}
        paused = self._consumer.paused()
        if stopped := set(self._partitions) - purpose - paused:
            self._consumer.pause(*stopped)
        if resumed := purpose & paused:
            self._consumer.resume(*resumed)

    def positions(self) -> dict[TopicPartition, int | None]:
        """The next offset to be read of each partition; None until the broker has reported its start."""
        positions = self._positions(self._partitions)
        return {(topic, partition): offset for (topic, partition), offset in positions.items()}

    def _next(self, milliseconds: int) -> list[KafkaRecord]:
        if self._ahead:
            records, self._ahead = self._ahead, []
            return records
        with self._errors_of(self._partitions):
            polled = self._consumer.poll(timeout_ms=milliseconds, max_records=_MAX_RECORDS)
        if polled:
            self._answered_at = time.monotonic()
        return [self._record_of(raw) for batch in polled.values() for raw in batch]

    def _learn_ends(self, bounds: dict[TopicPartition, int]) -> None:
        for partition in self._partitions:
            if partition not in bounds and (end := self._consumer.highwater(partition)) is not None:
                bounds[partition] = end

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        """The current end of each partition, after all open transactions."""
        with self._errors_of(self._partitions):
            return offsets_of(self._connection, self._partitions, kafka.OffsetSpec.LATEST)

    def _positions(self, partitions: Sequence[kafka.TopicPartition]) -> dict[TopicPartition, int | None]:
        """The next offset to be read of each partition; None until the broker has reported its start."""
        with self._errors_of(partitions):
            return {partition: self._consumer.position(partition, timeout_ms=_POLL_MS) for partition in partitions}

    def _look_after_silence(self, waiting: Sequence[kafka.TopicPartition]) -> None:
        """Send a request to each partition's leader, because the consumer waits silently for brokers that are down."""
        if time.monotonic() - self._answered_at > self._connection.timeout_seconds:
            self._ends(waiting)
            self._answered_at = time.monotonic()

    def _ends(self, partitions: Sequence[kafka.TopicPartition]) -> dict[TopicPartition, int]:
        with self._errors_of(partitions):
            ends: Mapping[kafka.TopicPartition, int] = self._consumer.end_offsets(list(partitions))
        return {(partition.topic, partition.partition): end for partition, end in ends.items()}

    @contextmanager
    def _errors_of(self, partitions: Sequence[kafka.TopicPartition]) -> Iterator[None]:
        try:
            yield
        except UnpackableError as error:
            raise TopicError(
                f"{self._what(partitions[0])} cannot be read: {error}. Only changefeed may write there, and it writes "
                "no such batch: see who else may (ACL Write), and remove the record. Nothing was published."
            ) from error
        except kafka.errors.KafkaError as error:
            raise self._unreadable(partitions[0], error) from error

    def _unreadable(self, partition: kafka.TopicPartition, reason: kafka.errors.KafkaError) -> ChangefeedError:
        """The error for ``partition``, with the reason why its leader does not answer, as far as the other brokers know
        it."""
        topic, what = partition.topic, self._what(partition)
        try:
            with self._connection.admin() as admin:
                (described,) = admin.describe_topics([topic])
        except BrokerUnavailableError as error:
            return BrokerUnavailableError(f"{what} cannot be read: {error}")
        if described["error_code"] == _NO_SUCH_TOPIC:
            return TopicError(
                f"{what} is not in the cluster. Was the topic removed? A pipeline's run makes its topics, but what a "
                "removed one held is lost."
            )
        if described["error_code"] == _NOT_ALLOWED:
            return TopicError(
                f"{what} may not be read: give the principal that changefeed logs in with the ACLs Read and Describe "
                "on the topic. Nothing was published."
            )
        return BrokerUnavailableError(
            f"{what} has no leader that answers ({type(reason).__name__}: {reason}; Kafka's error code for the topic "
            f"is {described['error_code']}). Are all brokers up? Try again."
        )

    def _log_open_transaction(
        self, waiting: Sequence[kafka.TopicPartition], positions: Mapping[TopicPartition, int | None], seconds: float
    ) -> None:
        stable = self._ends(waiting)
        for partition in waiting:
            if _is_at_end(positions[partition], stable[partition.topic, partition.partition]):
                _log.warning(
                    "%s waits at offset %s for a transaction that is open there, for %g seconds at most. Another run "
                    "may be publishing, or one was killed: then the broker ends its transaction after "
                    "kafka.transaction_timeout_seconds",
                    self._what(partition),
                    positions[partition],
                    seconds,
                )
                return

    def _stuck(
        self,
        waiting: Sequence[kafka.TopicPartition],
        positions: Mapping[TopicPartition, int | None],
        bounds: Mapping[TopicPartition, int],
        seconds: float,
    ) -> ChangefeedError:
        """The error if no record arrives although the leaders still answered a short time ago."""
        try:
            self._ends(waiting)
        except ChangefeedError as error:
            return error
        partition = waiting[0]
        return BrokerUnavailableError(
            f"{self._what(partition)} is at offset {positions[partition]} of {bounds.get(partition)} for "
            f"{seconds:g} seconds: a transaction stays open in it. Another run may be publishing, or one was killed "
            "and its transaction has not timed out yet. Try again. Where it stays so without either, the brokers lost "
            "track of a transaction: `kafka-transactions.sh find-hanging --broker-id ID` names it, and "
            f"`kafka-transactions.sh abort --topic {partition.topic} --partition {partition.partition} --start-offset "
            "OFFSET` ends it (KIP-664)."
        )

    def _what(self, partition: kafka.TopicPartition) -> str:
        return (
            f"{self._purpose}: partition {partition.partition} of {partition.topic!r} at {self._connection.bootstrap!r}"
        )


def _is_at_end(position: int | None, end: int | None) -> bool:
    return position is not None and end is not None and position >= end


def _record(raw: Any) -> KafkaRecord:
    return KafkaRecord(
        raw.topic,
        raw.partition,
        raw.offset,
        raw.key,
        raw.value,
        tuple(raw.headers),
        raw.timestamp,
        raw.timestamp_type == _LOG_APPEND_TIME,
    )


def _batch(raw: Any) -> KafkaRecord:
    """A batch as it is stored; its first eight bytes are the offset of its first record."""
    return replace(_record(raw), offset=int.from_bytes(raw.value[:8], "big"))
