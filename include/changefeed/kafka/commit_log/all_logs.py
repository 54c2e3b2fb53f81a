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
    """What the commit logs in the cluster say of their pipelines, by name, without that of pipeline ``but``.

    A log that cannot be read, or that the user may not read, is left out, and logged. Whether those pipelines signed
    their records is not known here: what is read may stop a first run, and nothing else. Raises BrokerUnavailableError.
    """
    with connection.admin() as admin:
        names = {topic: found for topic in admin.list_topics() if (found := pipeline_of_commit_log(topic))}
    topics = [topic for topic in sorted(names) if topic != commit_log_topic(but)]
    records = _records(connection, topics)
    states = {}
    for topic in topics:
        try:
            own = tuple(entry for entry in latest_entries(records.get(topic, ())) if entry.identity == names[topic])
            for entry in own:
                entry.read()  # what cannot be read of another pipeline is no reason to stop this one
        except CheckpointError as error:
            _log.warning("%s", error)
        else:
            states[names[topic]] = CommitLogState(own)
    return states


def _records(connection: KafkaConnection, topics: Sequence[str]) -> dict[str, list[KafkaRecord]]:
    """The records of each topic, all read at once; one by one where that fails, without those that cannot be read."""
    records: dict[str, list[KafkaRecord]] = {}
    if not topics:
        return records
    wanted = "to read the commit logs of other pipelines"
    try:
        with partition_reader(connection, [(topic, 0) for topic in topics], wanted, of_a_log=True) as reader:
            for record in reader.to_end(patience_seconds=6 * connection.timeout_seconds, open_seconds=1.0):
                records.setdefault(record.topic, []).append(record)
    except TopicError as error:
        if len(topics) == 1:
            _log.warning("%s", error)
            return {}
        return {name: found for topic in topics for name, found in _records(connection, [topic]).items()}
    return records
