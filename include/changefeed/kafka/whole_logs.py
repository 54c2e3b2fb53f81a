"""Whether Kafka keeps what the logs of a pipeline hold: compaction removes what was replaced, retention anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from changefeed.errors import CheckpointError, TopicError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import partition_reader
from changefeed.kafka.progress import TopicPartition
from changefeed.kafka.topics import cleanup_policies


def check_whole_logs(connection: KafkaConnection, topics: Sequence[str]) -> None:
    """Raises where Kafka deletes records of ``topics``, or has done so. Topics that are not there are left out.

    TopicError for a cleanup.policy that deletes (without the ACL DescribeConfigs it is not known), CheckpointError for
    a topic whose first records are gone, BrokerUnavailableError.
    """
    policies = cleanup_policies(connection, topics)
    if not policies:
        return
    for topic, policy in policies.items():
        if "delete" in policy:
            raise TopicError(
                f"topic {topic!r} at {connection.bootstrap!r} has cleanup.policy={policy}, expected compact: Kafka "
                "deletes its records when they are old, and then it is not known what was published: changes would be "
                "published twice, or lost. Nothing was published. Set it with `kafka-configs.sh --alter --entity-type "
                f"topics --entity-name {topic} --add-config cleanup.policy=compact`."
            )
    with partition_reader(connection, [(topic, 0) for topic in policies], "to look for deleted records") as reader:
        check_first_offsets(reader.first_offsets())


def check_first_offsets(offsets: Mapping[TopicPartition, int]) -> None:
    """Raises CheckpointError where a partition of a log begins behind its first record.

    Compaction leaves it at 0, whatever it forgets; only retention and DeleteRecords move it.
    """
    for (topic, _), offset in offsets.items():
        if offset:
            raise CheckpointError(
                f"topic {topic!r} begins at offset {offset}, expected 0: Kafka has deleted its records before that, by "
                "a retention policy or by kafka-delete-records.sh. What they said of published changes, and of tables, "
                "is not known any more, so a run might publish changes twice, or lose some. "
                "Nothing was published. See that the topic has cleanup.policy=compact and nothing else deletes from "
                "it; then restore it from a copy, or remove it (kafka-topics.sh --delete) and run again: the run says "
                "how to go on from the checkpoint."
            )
