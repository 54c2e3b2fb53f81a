"""Checks that Kafka does not delete records of a pipeline's logs: they may be compacted, but must have no retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka import OffsetSpec

from changefeed.errors import CheckpointError, TopicError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.progress import TopicPartition
from changefeed.kafka.topics import cleanup_policies, offsets_of
from changefeed.kept_clients import boot_seconds, keeps_clients

CHECKED_SECONDS = 60.0
"""How long a continuous run relies on its last check."""
_checked: dict[tuple[str, tuple[str, ...]], float] = {}
"""When a process that keeps its clients checked topics of a cluster."""


def check_log_retention(connection: KafkaConnection, topics: Sequence[str]) -> None:
    """Raise an error if Kafka deletes records of ``topics`` or has deleted some; missing topics are ignored. A process
    that keeps its clients checks once a minute.

    Raises TopicError for a cleanup.policy that deletes records (without the ACL DescribeConfigs the policy is not
    checked), CheckpointError for a topic whose first records were deleted, BrokerUnavailableError.
    """
    now, key = boot_seconds(), (connection.bootstrap, tuple(topics))
    if keeps_clients() and now - _checked.get(key, -CHECKED_SECONDS) < CHECKED_SECONDS:
        return
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
    check_first_offsets(offsets_of(connection, [(topic, 0) for topic in policies], OffsetSpec.EARLIEST))
    _checked[key] = now


def check_first_offsets(offsets: Mapping[TopicPartition, int]) -> None:
    """Raise CheckpointError if the first records of a partition of a log were deleted.

    Compaction leaves the first offset at 0; only retention and DeleteRecords move it.
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
