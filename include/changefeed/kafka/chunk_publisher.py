"""Rows of a snapshot into Kafka: each chunk in one transaction, whole, with the record that says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Self

from changefeed.batches.batch import Batch
from changefeed.kafka.commit_log import CommitLog, CommitLogState
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.log_record import LogRecord
from changefeed.kafka.publisher import OnStage, Publisher
from changefeed.kafka.topics import TopicLimits
from changefeed.publish_settings import PublishSettings


class ChunkPublisher(Publisher):
    """As a `Publisher` of the pipeline's windows, whose transactional ids and attempts it shares: a window that begins
    fences it, so that nothing read before that window's changes is published behind them.

    What is published is not in the progress of topic-partitions, which is that of windows, but in ``identity``'s own
    records. A transaction has several chunks where they are small: it is committed behind the chunk with which it has
    the rows or the seconds that ``settings`` give to one. Raises as `Publisher` does.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        pipeline: str,
        task: int,
        commit_log_topic: str,
        limits: Mapping[str, TopicLimits],
        settings: PublishSettings,
        *,
        identity: str,
        attempt: str,
        dead_letter: str | None = None,
        on_stage: OnStage | None = None,
    ) -> None:
        whole = replace(settings, transaction_rows=1 << 60)
        super().__init__(
            connection, pipeline, task, 0, commit_log_topic, limits, whole,
            attempt=attempt, dead_letter=dead_letter, on_stage=on_stage,
        )  # fmt: skip
        self._own = CommitLog(connection, commit_log_topic, identity, self._log.wait_seconds)
        self._rows_each = settings.transaction_rows
        self._done: list[LogRecord] = []
        self._keys: set[bytes | None] = set()

    def __enter__(self) -> Self:
        super().__enter__()
        self._progress = {}  # the windows' own
        return self

    def _read_log(self) -> CommitLogState:
        state, own = self._log.read_beside(self._own.identity)
        self._keys = {entry.record.key for entry in own.entries}
        return state

    def is_published(self, done: LogRecord) -> bool:
        """Whether an earlier copy of this task published the chunk that ``done`` is the record of."""
        return done.key(self._own.identity) in self._keys

    def add(self, batches: Iterable[Batch], done: LogRecord) -> None:
        """Publish ``batches`` and ``done`` in one transaction, the open one: all of it, or nothing.

        They are in Kafka when `commit` returns. Chunks come in the order of their numbers.
        """
        try:
            self._transactions.open()
            for batch in batches:
                self._publish_batch(batch)
        except BaseException:
            self._transactions.abort()
            raise
        self._done.append(done)

    @property
    def is_full(self) -> bool:
        """Whether the open transaction is to be committed before a further chunk."""
        seconds = self._settings.transaction_seconds
        return bool(self._done) and (self._rows >= self._rows_each or self._transactions.age_seconds >= seconds)

    def commit(self) -> list[LogRecord]:
        """Commit what was added since the last time; the records of its chunks."""
        done = self._done
        try:
            self._close()
        except BaseException:
            self._transactions.abort()
            raise
        self._done, self._accounts = [], {}
        return done

    def _write_progress(self) -> None:
        identity = self._own.identity
        self._others += [
            self._transactions.send(self._log.topic, 0, done.value(), done.key(identity), []) for done in self._done
        ]
