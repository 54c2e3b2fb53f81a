"""The commit log: the compacted topic that says what has been published, and which windows are sealed.

Keys are JSON arrays that begin with the identity, the pipeline's name or a backfill's own; the value is JSON, or
null (a tombstone) for what is forgotten:

    [identity, "progress", topic, partition]   Progress; written in the transaction of the messages it speaks of
    [identity, "seal", window]                 the window's manifest
    [identity, "seek", window]                 the record of a seek, which takes a window's number
    [identity, "begun", window]                the window of which publishing began, as JSON
    [identity, "failover", window, from, to]   marks: how far each topic-partition was given before a failover
    [identity, "attempt"]                      who may publish; see `fencing`
    [identity, "lease", attempt]               that a run is alive; see `lease`
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from changefeed.errors import ChangefeedError, CheckpointError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import partition_reader
from changefeed.kafka.progress import Progress, TopicPartition

_NO_SUCH_TOPIC = 3


FailoverKey = tuple[int, str, str]
"""The checkpoint's window number, the UUID of the old server, and of the new one."""


@dataclass(frozen=True)
class CommitLogState:
    """What the log says of one identity: progress by topic-partition, manifests by window number, who may publish."""

    progress: dict[TopicPartition, Progress] = field(default_factory=dict)
    seals: dict[int, dict[str, Any]] = field(default_factory=dict)
    seeks: dict[int, dict[str, Any]] = field(default_factory=dict)
    attempt: str = ""
    begun: dict[int, dict[str, Any]] = field(default_factory=dict)
    failovers: dict[FailoverKey, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def latest_number(self) -> int:
        """The highest window number that any record speaks of, 0 where there is none."""
        progress = (one.window for one in self.progress.values())
        return max((*self.seals, *self.seeks, *self.begun, *progress), default=0)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def progress_key(identity: str, topic: str, partition: int) -> bytes:
    return _json([identity, "progress", topic, partition])


def _seal_key(identity: str, window: int) -> bytes:
    return _json([identity, "seal", window])


@dataclass(frozen=True)
class CommitLog:
    """Reads and writes the log of ``identity`` in ``topic``, which `topics.ensure_topics` made.

    ``wait_seconds`` is how long `read` waits for transactions that are open in the log; it should be more than
    the publishers' transaction timeout, after which the broker aborts them.
    """

    connection: KafkaConnection
    topic: str
    identity: str
    wait_seconds: float = 150.0

    def exists(self) -> bool:
        """Whether the topic is there. Raises BrokerUnavailableError, TopicError."""
        with self.connection.admin() as admin:
            (found,) = admin.describe_topics([self.topic])
        return bool(found["error_code"] != _NO_SUCH_TOPIC)

    def read(self) -> CommitLogState:
        """Everything committed up to the end that the log has now.

        The end is the high watermark, not the last stable offset: records of a transaction that is already
        committed can lie behind one that is still open, and passing over them would publish their messages twice.
        So it waits until the open ones are committed or aborted.

        Raises BrokerUnavailableError when they stay open for ``wait_seconds`` or no broker answers, TopicError where
        the topic is gone, CheckpointError for a record that cannot be read.
        """
        return self._state(self._latest())

    def identities(self) -> list[str]:
        """Whose records the log holds: the one that wrote last comes last. Raises as `read` does."""
        written = [key for key, value in self._latest().items() if value is not None]
        return list(dict.fromkeys(str(json.loads(key)[0]) for key in reversed(written)))[::-1]

    def _latest(self) -> dict[bytes, bytes | None]:
        """The last value of each key, in the order in which they were written."""
        latest: dict[bytes, bytes | None] = {}
        wanted = f"to read the commit log of {self.identity!r}"
        with partition_reader(self.connection, [(self.topic, 0)], wanted) as reader:
            for record in reader.to_end(patience_seconds=self.wait_seconds):
                key = record.key or b""
                latest.pop(key, None)
                latest[key] = record.value
        return latest

    def _state(self, latest: Mapping[bytes, bytes | None]) -> CommitLogState:
        progress: dict[TopicPartition, Progress] = {}
        seals: dict[int, dict[str, Any]] = {}
        seeks: dict[int, dict[str, Any]] = {}
        begun: dict[int, dict[str, Any]] = {}
        failovers: dict[FailoverKey, list[dict[str, Any]]] = {}
        attempt = ""
        for key, text in latest.items():
            try:
                identity, kind, *rest = json.loads(key)
                if identity != self.identity or text is None:
                    continue
                value = json.loads(text)
                if kind == "progress":
                    progress[str(rest[0]), int(rest[1])] = Progress.from_json(value)
                elif kind == "seal":
                    seals[int(rest[0])] = value
                elif kind == "seek":
                    seeks[int(rest[0])] = value
                elif kind == "begun":
                    begun[int(rest[0])] = value
                elif kind == "failover":
                    failovers[int(rest[0]), str(rest[1]), str(rest[2])] = list(value)
                elif kind == "attempt":
                    attempt = str(value)
            except (ValueError, TypeError, IndexError) as error:
                raise CheckpointError(
                    f"record {key!r} of commit log {self.topic!r} cannot be read ({error}): only changefeed may write "
                    "to that topic. Its progress is unknown, so nothing is published."
                ) from error
        return CommitLogState(
            progress,
            dict(sorted(seals.items())),
            dict(sorted(seeks.items())),
            attempt,
            dict(sorted(begun.items())),
            failovers,
        )

    def seal(self, window: int, manifest: Mapping[str, Any], keep: int = 100, sealed: Iterable[int] = ()) -> None:
        """Write the manifest of a window, and tombstones for all but the last ``keep`` of the windows ``sealed``.

        Seals of higher numbers are left by a state store that was restored from an older backup since: they are
        forgotten too, so that the highest one is where the pipeline stands. Writing the same seal again is harmless.
        Raises BrokerUnavailableError or TopicError; then it is unknown whether the seal was written.
        """
        numbers = sorted({window, *(number for number in sealed if number < window)})
        old = [*numbers[: max(0, len(numbers) - keep)], *(number for number in sealed if number > window)]
        records: dict[bytes, bytes | None] = {_seal_key(self.identity, window): _json(dict(manifest))}
        records |= {_seal_key(self.identity, number): None for number in old if number != window}
        records |= {self._begun_key(number): None for number in (window, *old)}
        self._write(records, f"to seal window {window}")

    def note_seek(self, number: int, record: Mapping[str, Any]) -> None:
        """Keep the record of a seek; it is never forgotten. Raises as `seal` does."""
        self._write({_json([self.identity, "seek", number]): _json(dict(record))}, f"to note seek {number}")

    def begin_window(self, window: int, record: Mapping[str, Any]) -> None:
        """Keep what window is being published until it is sealed. Raises as `seal` does."""
        self._write({self._begun_key(window): _json(dict(record))}, f"to begin window {window}")

    def note_failover(self, key: FailoverKey, marks: Iterable[Mapping[str, Any]]) -> None:
        """Keep how far each topic-partition was given by the old server. Raises as `seal` does."""
        number, old, new = key
        record = _json([dict(mark) for mark in marks])
        self._write({_json([self.identity, "failover", number, old, new]): record}, "to note a failover")

    def _begun_key(self, window: int) -> bytes:
        return _json([self.identity, "begun", window])

    def begin_attempt(self, attempt: str) -> None:
        """Say that from now on only ``attempt`` may publish."""
        self._write({_json([self.identity, "attempt"]): _json(attempt)}, "to begin an attempt")

    def forget(self, topics: Iterable[str], state: CommitLogState | None = None) -> int:
        """Write tombstones for the progress of ``topics``; return how many. For dead tables, and after a seek."""
        names = set(topics)
        known = (state or self.read()).progress
        gone = [key for key in known if key[0] in names]
        self._write({progress_key(self.identity, *key): None for key in gone}, f"to forget {sorted(names)}")
        return len(gone)

    def forget_begun(self, state: CommitLogState, window: int) -> int:
        """Forget windows begun and failovers up to ``window``, which is committed; return how many records."""
        gone = [self._begun_key(number) for number in state.begun if number <= window]
        gone += [_json([self.identity, "failover", *key]) for key in state.failovers if key[0] < window]
        self._write(dict.fromkeys(gone), f"to forget windows up to {window}")
        return len(gone)

    def forget_everything(self) -> int:
        """Forget all records of this identity; return how many. For a backfill that nobody will try again."""
        gone = [key for key, value in self._latest().items() if value and json.loads(key)[0] == self.identity]
        self._write(dict.fromkeys(gone), "to forget everything")
        return len(gone)

    def _write(self, records: Mapping[bytes, bytes | None], wanted: str) -> None:
        if not records:
            return
        milliseconds = int(self.connection.timeout_seconds * 1000)
        # Not idempotent: that costs half a second at the first record, and the same record twice is no harm here.
        producer = self.connection.producer(
            acks="all", max_in_flight_requests_per_connection=1, message_timeout_ms=milliseconds, linger_ms=0
        )
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _record: Message) -> None:
            if error is not None:
                failed.append(error)

        try:
            for key, value in records.items():
                producer.produce(self.topic, value=value, key=key, partition=0, on_delivery=delivered)
            left = producer.flush(self.connection.timeout_seconds + 1)
        except KafkaException as error:
            raise self.connection.refused(error, self._wanted(wanted)) from error
        finally:
            producer.purge()
        if failed:
            raise self._refused(failed[0], wanted)
        if left:
            raise self._refused(KafkaError(KafkaError._MSG_TIMED_OUT), wanted)

    def _refused(self, error: KafkaError, wanted: str) -> ChangefeedError:
        return self.connection.refused(KafkaException(error), self._wanted(wanted))

    def _wanted(self, wanted: str) -> str:
        return f"{wanted} of {self.identity!r} in commit log {self.topic!r}"
