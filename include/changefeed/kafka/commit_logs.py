"""The commit logs of all pipelines in a cluster."""

from __future__ import annotations

import logging
import re

from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log import CommitLogState
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.log_record import latest_entries
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.kafka.topics import commit_log_topic

_log = logging.getLogger(__name__)

_LOG_TOPIC = re.compile(r"changefeed\.([^.]+)\.commits")


def read_commit_logs(connection: KafkaConnection, *, but: str) -> dict[str, CommitLogState]:
    """What the commit logs in the cluster say of their pipelines, by name, without that of pipeline ``but``.

    A log that cannot be read is left out, and logged. Raises BrokerUnavailableError.
    """
    with connection.admin() as admin:
        names = {topic: found[1] for topic in admin.list_topics() if (found := _LOG_TOPIC.fullmatch(topic))}
    topics = [topic for topic in sorted(names) if topic != commit_log_topic(but)]
    records: dict[str, list[KafkaRecord]] = {topic: [] for topic in topics}
    if topics:
        wanted = "to read the commit logs of other pipelines"
        with partition_reader(connection, [(topic, 0) for topic in topics], wanted) as reader:
            for record in reader.to_end(patience_seconds=6 * connection.timeout_seconds, open_seconds=1.0):
                records[record.topic].append(record)
    states = {}
    for topic in topics:
        try:
            own = tuple(entry for entry in latest_entries(records[topic]) if entry.identity == names[topic])
        except CheckpointError as error:
            _log.warning("%s", error)
        else:
            states[names[topic]] = CommitLogState(own)
    return states
