"""The commit logs of all pipelines in a cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from changefeed.errors import CheckpointError, TopicError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import latest_entries
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.model.topic_name import commit_log_topic, pipeline_of_commit_log

_log = logging.getLogger(__name__)


def read_commit_logs(connection: KafkaConnection, *, but: str) -> dict[str, CommitLogState]:
    """The states of all commit logs in the cluster by pipeline, except pipeline ``but``.

    A log that this process cannot or may not read is left out, and a warning is logged. The signatures of other
    pipelines cannot be checked here: use the result only to stop a first run. Raises BrokerUnavailableError.
    """
    with connection.admin() as admin:
        names = {topic: found for topic in admin.list_topics() if (found := pipeline_of_commit_log(topic))}
    topics = [topic for topic in sorted(names) if topic != commit_log_topic(but)]
    records = records_of_logs(connection, topics, "to read the commit logs of other pipelines")
    states = {}
    for topic in topics:
        try:
            own = tuple(entry for entry in latest_entries(records.get(topic, ())) if entry.identity == names[topic])
            for entry in own:
                if not entry.is_note:
                    entry.read()  # unreadable records of another pipeline do not stop this one
        except CheckpointError as error:
            _log.warning("%s", error)
        else:
            states[names[topic]] = CommitLogState(own)
    return states


def records_of_logs(connection: KafkaConnection, topics: Sequence[str], purpose: str) -> dict[str, list[KafkaRecord]]:
    """The records of each readable topic. All topics are read together; if that fails, one by one.

    ``purpose`` ("to read ...") begins the messages of errors. Raises BrokerUnavailableError.
    """
    records: dict[str, list[KafkaRecord]] = {}
    if not topics:
        return records
    try:
        with partition_reader(connection, [(topic, 0) for topic in topics], purpose, of_a_log=True) as reader:
            for record in reader.to_end(timeout_seconds=6 * connection.timeout_seconds, open_seconds=1.0):
                records.setdefault(record.topic, []).append(record)
    except TopicError as error:
        if len(topics) == 1:
            _log.warning("%s", error)
            return {}
        return {
            name: found for topic in topics for name, found in records_of_logs(connection, [topic], purpose).items()
        }
    return records
