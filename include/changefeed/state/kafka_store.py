"""Checkpoints in Kafka: a compacted topic for each pipeline."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from changefeed.errors import FencedError, StateStoreUnavailableError
from changefeed.kafka.checkpoint_log import (
    CHECKPOINT,
    SCHEMAS,
    CheckpointLog,
    Records,
    checkpoint_settings,
    record_key,
)
from changefeed.kafka.commit_log.all_logs import records_of_logs
from changefeed.kafka.connection import KafkaConnection
from changefeed.model import fault_point
from changefeed.model.checkpoint import Checkpoint, check_forward, stale
from changefeed.model.topic_name import pipeline_of_checkpoint

_ATTEMPTS = 20
_LONGEST_PAUSE_SECONDS = 10.0  # longer than a write takes on a busy machine, so that one of several succeeds


class KafkaCheckpointStore:
    """A `CheckpointStore` in the topic `changefeed.<pipeline>.checkpoint`, with a true compare-and-set.

    A writer takes over the transactional id of the pipeline's checkpoint, which fences every earlier writer. Then it
    reads the stored checkpoint, compares and writes. If another writer takes over in between, nothing is written, and
    the writer begins again.

    With ``create_topics`` a missing topic is created with ``replication_factor``. All methods raise
    BrokerUnavailableError, TopicError, and CheckpointError if Kafka deleted records of the topic.
    """

    def __init__(
        self, connection: KafkaConnection, replication_factor: int = -1, *, create_topics: bool = True
    ) -> None:
        self._connection, self._create = connection, create_topics
        self._settings = checkpoint_settings(replication_factor)

    def load(self, pipeline: str) -> Checkpoint | None:
        text = self._log(pipeline).load(CHECKPOINT)
        return None if text is None else Checkpoint.from_text(text)

    def advance(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        check_forward(expected, new)
        self.replace(expected, new)

    def replace(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        def check_expected() -> Records:
            stored = self.load(new.pipeline)
            if stored != expected:
                raise stale(new.pipeline, expected, stored)
            fault_point.reach("before_checkpoint_write")
            return {CHECKPOINT: new.to_text()}

        self._write(new.pipeline, check_expected)

    def pipelines(self) -> list[str]:
        with self._connection.admin() as admin:
            topics = {topic: name for topic in admin.list_topics() if (name := pipeline_of_checkpoint(topic))}
        records = records_of_logs(self._connection, sorted(topics), "to read the checkpoints of all pipelines")
        names = []
        for topic, name in topics.items():
            of_checkpoint = [each for each in records.get(topic, ()) if each.key == record_key(name, CHECKPOINT)]
            if of_checkpoint and of_checkpoint[-1].value is not None:
                names.append(name)
        return sorted(names)

    def remove(self, pipeline: str, expected: Checkpoint | None) -> None:
        def check_expected() -> Records:
            stored = self.load(pipeline)
            if stored not in (None, expected):
                raise stale(pipeline, expected, stored)
            return {CHECKPOINT: None, SCHEMAS: None}

        if self._log(pipeline).exists():
            self._write(pipeline, check_expected)

    def load_schemas(self, pipeline: str) -> str | None:
        return self._log(pipeline).load(SCHEMAS)

    def save_schemas(self, pipeline: str, text: str) -> None:
        self._write(pipeline, lambda: {SCHEMAS: text})

    def _log(self, pipeline: str) -> CheckpointLog:
        return CheckpointLog(self._connection, pipeline)

    def _write(self, pipeline: str, build_records: Callable[[], Records]) -> None:
        """Write the result of ``build_records``; no other writer can change the stored value between check and
        write."""
        for attempt in range(_ATTEMPTS):
            try:
                with self._log(pipeline).open_writer(self._settings, create=self._create) as write:
                    write(build_records())
                    return
            except FencedError:  # another writer took over: compare again
                time.sleep(random.uniform(0, min(_LONGEST_PAUSE_SECONDS, 0.05 * 2**attempt)))
        raise StateStoreUnavailableError(
            f"the checkpoint of pipeline {pipeline!r} was not stored in {self._log(pipeline).topic!r}: expected to be "
            f"the only writer, found another one in each of {_ATTEMPTS} attempts. Nothing was stored; run again when "
            "the other processes that write it are done."
        )
